# frozen_string_literal: true

module Bench
  # Call paths that share what real ones share: a trunk from the root, and branches near the leaves.
  module Stacks
    BRANCH_BITS = 10

    module_function

    # Yields n times, at the end of n different stacks.
    # @param trunk [Integer] frames below the branches
    # @yieldparam number [Integer] 0 … n - 1
    def each(n, trunk: 40, &block)
      descend(trunk) { n.times { |number| branch(BRANCH_BITS, number, &block) } }
    end

    def descend(levels, &block)
      levels.zero? ? yield : descend(levels - 1, &block)
    end

    def branch(bits, number, &block)
      if bits.zero?
        yield number
      elsif (number >> (bits - 1)).even?
        left(bits, number, &block)
      else
        right(bits, number, &block)
      end
    end

    def left(bits, number, &block)
      branch(bits - 1, number, &block)
    end

    def right(bits, number, &block)
      branch(bits - 1, number, &block)
    end
  end
end
