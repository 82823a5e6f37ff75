# frozen_string_literal: true

# Burst mode against known truth: each kind of program many times, the bias of each site's share beside its standard
# error, how far single runs stray beside what Bernoulli sampling of as many samples would give, and how often the 95 %
# interval holds the truth. Writes bench/TRUTH.md, a section for each Ruby.
#
#   bundle exec rake truth                       all (about half an hour)
#   TRUTH_RUNS=5 TRUTH_SECONDS=3 ruby -Ilib bench/truth/run.rb [PART OF A NAME…]   shorter, nothing is written

$LOAD_PATH.unshift(File.expand_path("../../lib", __dir__))
require "ruby_memprofiler_pprof"
require_relative "../../spec/support/truth_workloads"

RUNS = Integer(ENV.fetch("TRUTH_RUNS", "30"))
SECONDS = Float(ENV.fetch("TRUTH_SECONDS", "4"))
OUTPUT = File.expand_path("../TRUTH.md", __dir__)

# One site in one run: shares of all that the sites allocated.
Run = Struct.new(:truth, :estimate, :covered, :samples)

def run(workload, seed)
  collector = MemprofilerPprof::Collector.new(mode: :burst, overhead: 0.05, seed: seed)
  collector.start!
  counts = workload.run(SECONDS)
  data = collector.flush
  stats = collector.stats
  collector.stop!
  values = counts.to_h { |site, _| [site, data.estimate(/#{site}\z/, type: :allocations)] }
  whole = counts.values.sum.to_f
  estimated = values.values.sum(&:value)
  # What is estimated is a number of objects; the interval is of that number.
  runs = counts.to_h do |site, count|
    estimate = values[site]
    [site, Run.new(count / whole, estimate.value / estimated, count.between?(estimate.low, estimate.high),
                   stats[:samples] * count / whole)]
  end
  [runs, stats[:burst]]
end

def mean(numbers) = numbers.sum.fdiv(numbers.size)

def deviation(numbers)
  center = mean(numbers)
  Math.sqrt(numbers.sum { |number| (number - center)**2 } / [numbers.size - 1, 1].max)
end

def row(workload, site, runs, bursts)
  errors = runs.map { |run| 100 * (run.estimate - run.truth) }
  share = mean(runs.map(&:truth))
  bernoulli = 100 * Math.sqrt(share * (1 - share) / mean(bursts.map { |burst| burst[:windows] }) / 4)
  unobserved = mean(bursts.map { |burst| burst[:missed] / (burst[:missed] + burst[:observed]) })
  [workload.name, site, format("%.2f", 100 * share), format("%+.2f", mean(errors)),
   format("%.2f", deviation(errors) / Math.sqrt(runs.size)), format("%.2f", deviation(errors)), format("%.2f", bernoulli),
   "#{runs.count(&:covered)} of #{runs.size}", format("%.0f", mean(bursts.map { |burst| burst[:windows] })),
   format("%.1f %%", 100 * unobserved)]
end

HEAD = ["program", "site", "truth, %", "bias, points", "its standard error", "spread of a run", "Bernoulli's", "covered",
        "windows", "not observed"].freeze

chosen = TruthWorkloads::ALL.select { |workload| ARGV.empty? || ARGV.any? { |part| workload.name.include?(part) } }
rows = chosen.flat_map do |workload|
  results = Array.new(RUNS) { |seed| run(workload, seed) }
  lines = workload.sites.map { |site| row(workload, site, results.map { |runs, _| runs[site] }, results.map(&:last)) }
  lines.each { |line| puts line.join(" | ") }
  $stdout.flush
  lines
end

table = [HEAD, ["---", "---", *["--:"] * (HEAD.size - 2)], *rows].map { |row| "| #{row.join(" | ")} |" }.join("\n")
if ARGV.empty? && !ENV.key?("TRUTH_RUNS") && !ENV.key?("TRUTH_SECONDS")
  sections = File.exist?(OUTPUT) ? File.read(OUTPUT).scan(/^## Ruby (\S+)\n(.*?)(?=^## |\z)/m).to_h : {}
  sections[RUBY_VERSION] = "\n#{RUNS} runs of #{SECONDS} CPU seconds each, #{Time.now.strftime("%F")}.\n\n#{table}\n\n"
  File.write(OUTPUT, <<~MARKDOWN + sections.sort.map { |version, text| "## Ruby #{version}\n#{text}" }.join.rstrip + "\n")
    # Burst mode against known truth

    Written by `rake truth`. Shares are of what the program's sites allocated. The bias is that of the mean over all
    runs; Bernoulli's spread is that of as many samples as four to each window, drawn independently.

  MARKDOWN
else
  puts table
end
