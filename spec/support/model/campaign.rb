# frozen_string_literal: true

module Model
  # Many programs, and what came of them.
  class Campaign
    LENGTH = 25

    # @return [Array<String>] a report for each program that failed
    attr_reader :failures

    # @return [Sums] over all that passed
    attr_reader :sums

    # @return [Integer] programs run
    attr_reader :count

    # @param seeds [Enumerable<Integer>] one for each program
    # @param length [Integer] steps of each, not counting those that steps hold
    # @param most_failures [Integer] it ends after so many
    # @yield after each program
    # @yieldparam count [Integer] programs run so far
    # @yieldparam failure [String, nil] the report, if it failed
    def initialize(seeds, length: LENGTH, most_failures: 3)
      @seeds = seeds
      @length = length
      @most_failures = most_failures
      @failures = []
      @sums = Sums.new
      @count = 0
    end

    # @return [Array<String>] what failed, and what all together say that cannot be
    def run(&block)
      Nursery.open do |nursery|
        @seeds.each do |seed|
          failure = run_one(nursery, seed)
          @failures << failure if failure
          block&.call(@count, failure)
          break if @failures.size >= @most_failures
        end
      end
      @failures + @sums.violations
    end

    private

    # @return [String, nil] the report of a failure
    def run_one(nursery, seed)
      program = Program.generate(seed, @length)
      outcome = nursery.run(program)
      @count += 1
      if outcome.passed?
        @sums.add(outcome.findings)
        return
      end

      shrinker = Shrinker.new(nursery)
      shorter, last = shrinker.shrink(program)
      report(program, outcome, shorter, last, shrinker.failures)
    end

    def report(program, outcome, shorter, last, failures)
      again = "rake \"model:replay[#{program.seed},#{@length}#{",#{shorter.numbers.join(" ")}" if shorter}]\""
      <<~TEXT
        program #{program.seed} #{outcome.kind} at step #{outcome.at} (0: the last checks), then in #{failures} of 3 runs:
        #{outcome.message}
        #{"shrunk to these steps (#{last.kind} at #{last.at}: #{last.message.lines.first&.chomp}):" if shorter}
        #{(shorter || program)}
        again: #{again}
      TEXT
    end
  end

  # @return [String] how a part of a program ends, and what it is
  def self.replay(seed, length, numbers)
    program = Program.generate(seed, length)
    program = program.only(numbers) if numbers
    outcome = Nursery.open { |nursery| nursery.run(program) }
    "#{program}\n#{outcome.kind} at step #{outcome.at}: #{outcome.message}"
  end
end
