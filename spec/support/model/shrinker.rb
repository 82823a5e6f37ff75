# frozen_string_literal: true

module Model
  # Looks for the shortest part of a program that still fails: halves are left out, then quarters, … then single steps.
  class Shrinker
    # Most runs of one search.
    MOST_RUNS = 100

    # It ends after so many seconds: programs that hang take long.
    MOST_SECONDS = 400

    # @return [Integer] how often of three the whole program failed
    attr_reader :failures

    def initialize(nursery)
      @nursery = nursery
    end

    # @return [Array(Program, Outcome), nil] nil if it does not fail again
    def shrink(program)
      @runs = 0
      @attempts = 1
      outcomes = Array.new(3) { run(program) }
      @deadline = Waiting.now + MOST_SECONDS
      @failures = outcomes.count { |outcome| !outcome.passed? }
      return if @failures.zero?

      @attempts = 5 if @failures < 3 # chance has a part in it
      @outcome = outcomes.reject(&:passed?).first
      program = without_chunks(program)
      [program, @outcome]
    end

    private

    def without_chunks(program)
      size = program.numbers.size / 2
      while size >= 1
        shorter = without_one_chunk(program, size)
        shorter ? program = shorter : size /= 2
        size = [size, program.numbers.size / 2].min if shorter
        break if enough?
      end
      program
    end

    def without_one_chunk(program, size)
      program.numbers.each_slice(size) do |chunk|
        shorter = program.only(program.numbers - chunk)
        return shorter if fails?(shorter)
        break if enough?
      end
      nil
    end

    def fails?(program)
      @attempts.times do
        outcome = run(program)
        return @outcome = outcome unless outcome.passed?
        break if enough?
      end
      false
    end

    def enough? = @runs >= MOST_RUNS || Waiting.now > @deadline

    def run(program)
      @runs += 1
      @nursery.run(program)
    end
  end
end
