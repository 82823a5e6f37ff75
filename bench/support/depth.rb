# frozen_string_literal: true

require_relative "floor"

module Bench
  # Work at a given depth of the stack.
  module Depth
    class << self
      # Calls the block on a thread of its own: its stack holds nothing but what is counted here.
      #
      # @param depth [Integer] frames that a walk finds at an Object.new right in the block
      # @return [Object] what the block gives
      def at(depth, &block)
        @frames_without_levels ||= count_frames
        levels = depth - @frames_without_levels
        raise ArgumentError, "the least is #{@frames_without_levels} deep, not #{depth}" if levels.negative?

        Thread.new { descend(levels, &block) }.value
      end

      private

      def descend(levels, &block)
        levels.zero? ? block.call : descend(levels - 1, &block)
      end

      # The first time the VM allocates caches for the constants as well.
      def count_frames
        MemprofilerFloor.install(1, false, false)
        probe = -> { Object.new && MemprofilerFloor.last_depth }
        Array.new(2) { Thread.new { descend(0, &probe) }.value }.last
      ensure
        MemprofilerFloor.remove
      end
    end
  end
end
