# frozen_string_literal: true

module Bench
  # Very many stacks that cost little to get to: they differ in the lines of three calls.
  module Sites
    WIDTH = 50

    class_eval <<~RUBY, "sites", 1
      def self.branch(number)
        case number % WIDTH
        #{Array.new(WIDTH) { |line| "when #{line} then yield" }.join("\n")}
        end
      end
    RUBY

    module_function

    # Calls the block n times, each time at another stack, neighbours sharing all but the innermost frames.
    # @param n [Integer] at most WIDTH**3
    def each(n)
      n.times do |number|
        branch(number / WIDTH**2) { branch(number / WIDTH) { branch(number) { yield } } }
      end
    end
  end
end
