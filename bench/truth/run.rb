# frozen_string_literal: true

# Burst mode against known truth, a test of the product: each kind of program many times, the bias of each site beside its
# standard error, how far single runs stray beside what Bernoulli sampling of as many samples would give, and how often
# the 95 % interval holds the truth. Exit status 1 and the rows that are wrong if a bias is more than chance and the holes
# that are known allow, or an interval does not hold as often as it says. With --write into bench/TRUTH.md, where each Ruby
# has a section.
#
#   bundle exec rake truth                                    all (some forty minutes)
#   ruby -Ilib bench/truth/run.rb [--write] [PART OF A NAME…]  these alone; TRUTH_RUNS=5 TRUTH_SECONDS=3 makes it shorter

$LOAD_PATH.unshift(File.expand_path("../../lib", __dir__))
require "ruby_memprofiler_pprof"
require_relative "../../spec/support/truth_workloads"
require_relative "chance"
require_relative "programs"

RUNS = Integer(ENV.fetch("TRUTH_RUNS", "30"))
SECONDS = Float(ENV.fetch("TRUTH_SECONDS", "4"))
OUTPUT = File.expand_path("../TRUTH.md", __dir__)
abort "TRUTH_RUNS must be at least 2: one run has no spread" if RUNS < 2

# That a row of a family in which all is right is called wrong.
FALSE_ALARM = 1e-4
# What is known to be wrong (docs/sampling.md, "What is not right"): points that a bias may have besides.
HOLES = { "20000 objects in one native call" => 5, "200000 objects in one native call" => 35,
          "locked to 10 ms of CPU time" => 3 }.freeze

# One site in one run. Of allocations: shares of all that the sites (of a library: the whole program) allocated. Of what is
# retained: in units of the truth of all sites, so that the sum has to be right as well. `variance`: Bernoulli's.
Outcome = Struct.new(:truth, :estimate, :covered, :variance)

def outcomes(data, counter, rate)
  truth = counter.truth
  truth.flat_map do |type, sites|
    estimates = sites.to_h { |site, _| [site, data.estimate(counter.pattern(site), type: type)] }
    whole = counter.whole(type).to_f
    unit = counter.found_whole(data, type)
    sites.map do |site, value|
      share = value / whole
      variance = if type == :allocations
                   share * (1 - share) / (rate * whole)
                 else
                   share * share / (rate * truth[:retained_objects][site])
                 end
      estimate = estimates[site]
      [[type, site], Outcome.new(share, estimate.value / unit, value.between?(estimate.low, estimate.high), variance)]
    end
  end.to_h
end

# @return [Array(Hash, Hash)] outcomes by type and site; what stats say of the bursts
def run(workload, seed)
  workload.prepare
  collector = MemprofilerPprof::Collector.new(mode: :burst, overhead: 0.05, prelude: 0, seed: seed)
  collector.start!
  counter = workload.run(SECONDS)
  data = collector.flush(gc: true)
  stats = collector.stats
  collector.stop!
  [outcomes(data, counter, stats[:samples].fdiv(stats[:allocations][:vm])), stats[:burst]]
end

def mean(numbers) = numbers.sum.fdiv(numbers.size)

def deviation(numbers)
  center = mean(numbers)
  Math.sqrt(numbers.sum { |number| (number - center)**2 } / (numbers.size - 1))
end

# One site over all runs, in points.
class Row
  HEAD = ["program", "value", "site", "truth, %", "bias, points", "its standard error", "bound", "spread of a run",
          "Bernoulli's", "covered", "windows", "not observed"].freeze

  def initialize(workload, type, site, outcomes, bursts)
    @names = [workload.name, type.to_s.tr("_", " "), site]
    @hole = HOLES.fetch(workload.name, 0)
    @outcomes = outcomes
    @bursts = bursts
    @errors = outcomes.map { |outcome| 100 * (outcome.estimate - outcome.truth) }
  end

  # @return [String]
  def program = @names.first

  def bias = mean(@errors)
  def spread = deviation(@errors)
  def bernoulli = 100 * Math.sqrt(mean(@outcomes.map(&:variance)))
  def covered = @outcomes.count(&:covered)

  # Of a rare site that happens to be hit in hardly any run the spread says too little.
  def bound(quantile) = (quantile * [spread, bernoulli].max / Math.sqrt(RUNS)) + @hole

  def to_s
    format("%s: %+.2f ± %.2f points, covered %d of %d", @names.join(", "), bias, spread / Math.sqrt(RUNS), covered, RUNS)
  end

  def failures(quantile, least_covered)
    [(format("%s; the bias may be %.2f", self, bound(quantile)) if bias.abs > bound(quantile)),
     ("#{self}; that must be #{least_covered}" if covered < least_covered)].compact
  end

  def to_a(quantile)
    windows = mean(@bursts.map { |burst| burst[:windows] })
    unobserved = mean(@bursts.map { |burst| burst[:missed] / (burst[:missed] + burst[:observed]) })
    [*@names, format("%.2f", 100 * mean(@outcomes.map(&:truth))), format("%+.2f", bias),
     *[spread / Math.sqrt(RUNS), bound(quantile), spread, bernoulli].map { |number| format("%.2f", number) },
     "#{covered} of #{RUNS}", format("%.0f", windows), format("%.1f %%", 100 * unobserved)]
  end
end

writes = ARGV.delete("--write")
abort "--write is for runs of full length: without TRUTH_RUNS and TRUTH_SECONDS" if writes && ENV.keys.grep(/\ATRUTH_/).any?
chosen = [*TruthWorkloads::ALL, *TruthPrograms.all]
chosen = chosen.select { |workload| ARGV.any? { |part| workload.name.include?(part) } } unless ARGV.empty?
rows = chosen.flat_map do |workload|
  results = Array.new(RUNS) { |seed| run(workload, seed) }
  lines = results.first.first.keys.map do |type, site|
    Row.new(workload, type, site, results.map { |outcomes, _| outcomes[[type, site]] }, results.map(&:last))
  end
  warn lines
  lines
end

# The rows of each Ruby's section, by program.
sections = File.exist?(OUTPUT) ? File.read(OUTPUT).scan(/^## Ruby (\S+)\n(.*?)(?=^## |\z)/m).to_h : {}
sections.transform_values! { |text| text.lines.grep(/^\| (?!program|---)/).group_by { |line| line.split(" | ").first.delete_prefix("| ") } }
former = sections.fetch(RUBY_VERSION, {})
family = former.except(*chosen.map(&:name)).values.sum(&:size) + rows.size

each = FALSE_ALARM / (2 * family) # a bias and a coverage to each row
quantile = Chance.student_quantile(each / 2, RUNS - 1)
least_covered = Chance.binomial_least(each, RUNS, 0.95)
line = ->(cells) { "| #{cells.join(" | ")} |\n" }
head = line.call(Row::HEAD) + line.call(["---", "---", "---", *["--:"] * (Row::HEAD.size - 3)])
present = rows.group_by(&:program).transform_values { |list| list.map { |row| line.call(row.to_a(quantile)) } }

if writes
  sections[RUBY_VERSION] = former.merge(present)
  texts = sections.sort.map { |version, programs| "## Ruby #{version}\n\n#{head}#{programs.values.join}" }
  File.write(OUTPUT, <<~MARKDOWN + texts.join("\n"))
    # Burst mode against known truth

    Written by `rake truth`: #{RUNS} runs of #{SECONDS} CPU seconds each. Allocations are told as shares of what the program's sites
    allocated (of a library: of all, and a site is a method with what it calls, in truth as rate 1 has it), what is retained
    in units of the truth of all its sites. The bias is that of the mean over all runs; Bernoulli's spread is that of as many
    samples as the runs had, drawn independently.

    The task fails where a bias is beyond its bound, or an interval held the truth less than #{least_covered} times of #{RUNS}: one false
    alarm in #{(1 / FALSE_ALARM).round} runs of the whole. The bound is #{format("%.1f", quantile)} standard errors (or Bernoulli's, if they are more), and where
    there is a known hole so many points more: #{HOLES.map { |name, points| "#{points} for \"#{name}\"" }.join(", ")}.

    Not all of this is proof alike. The estimator was chosen and tuned by scripted programs in the core
    (`test/c/test_burst_truth.c`) and by programs here. These came when it was done, and nothing was changed for them: the
    first allocations after I/O, what is retained in steady state, and the libraries.

  MARKDOWN
else
  puts head, present.values
end
failures = rows.flat_map { |row| row.failures(quantile, least_covered) }
abort failures.map { |failure| "FAILED: #{failure}" }.join("\n") unless failures.empty?
