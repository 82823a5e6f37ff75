# frozen_string_literal: true

# Other people's programs: the test suites of gems, each without the profiler and then with it, once in each mode, without
# and with compaction at the VM's collections. What a suite does must not differ, and its profiles must be right.
#
#   run.rb               every suite, every mode
#   run.rb short         two suites in two modes
#   run.rb NAME…         these suites, every mode
#
# A difference counts if it is there twice and in no unprofiled run, for many a suite looks at the clock.

require_relative "modes"
require_relative "suite"
require_relative "verdict"

module Suites
  # The table.
  class Table
    FORMAT = "%-16s %-10s %-8s %6s  %8s %7s %9s %7s  %s"

    MOST = 20 # lines for a run

    attr_reader :passed, :failed

    def initialize
      @passed = @failed = 0
      puts format(FORMAT, "suite", "mode", "compact", "tests", "failing", "seconds", "allocated", "flushes", "")
    end

    def add(suite, mode, compact, outcome, problems)
      problems.empty? ? @passed += 1 : @failed += 1
      puts format(FORMAT, suite.name, mode || "none", compact ? "yes" : "no", outcome.tests.values.sum(&:size),
                  failing(outcome), outcome.seconds.round(1), outcome.records.first&.dig(:stats, :allocations, :vm),
                  outcome.records.sum { |record| record[:flushes].size }, problems.empty? ? "same" : "DIFFERS")
      problems.first(MOST).each { |problem| puts "    #{problem.lines.first(30).join("    ")}" }
      $stdout.flush
    end

    private

    def failing(outcome) = outcome.tests.values.flatten.grep(/\A(F|E|failed)/).size
  end

  # One suite in all its modes.
  class Comparison
    def initialize(suite, table)
      @suite = suite
      @table = table
    end

    def run(modes, compact:)
      @compact = compact
      plain = run_once(nil)
      @references = [plain]
      nothing = plain.tests.empty?
      @table.add(@suite, nil, compact, plain, nothing ? ["no test ran", *plain.messages] : [])
      return if nothing

      modes.each do |mode|
        outcome = run_once(mode)
        @table.add(@suite, mode, compact, outcome, problems(mode, outcome))
      end
    end

    private

    def run_once(mode) = @suite.run(mode, compact: @compact)

    def problems(mode, outcome)
      differences = Verdict.differences(outcome, @references)
      differences = repeated(mode, differences) unless differences.empty?
      differences + Verdict.defects(outcome, exact: MODES.fetch(mode)[:sample_rate] == 1, compact: @compact)
    end

    # Those that are there again, and not in another unprofiled run. The others are told, too.
    def repeated(mode, differences)
      @references << run_once(nil)
      again = differences & Verdict.differences(run_once(mode), @references)
      (differences - again).first(Table::MOST).each { |difference| puts "    once: #{difference}" }
      again
    end
  end

  short = ARGV.delete("short")
  chosen = Suite.all.select { |suite| short ? suite.short? : ARGV.empty? || ARGV.include?(suite.name) }
  abort "no such suite: there are #{Suite.all.map(&:name).join(", ")}" if chosen.empty?
  table = Table.new
  chosen.select(&:runs_here?).each do |suite|
    reason = suite.prepare
    abort reason if reason
    comparison = Comparison.new(suite, table)
    if short
      comparison.run(%w[weak_map burst], compact: false)
    else
      [false, true].each { |compact| comparison.run(MODES.keys, compact: compact) }
    end
  end
  puts "#{table.passed} passed, #{table.failed} failed"
  exit table.failed.zero?
end
