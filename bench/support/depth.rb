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
        Thread.new { descend(depth - @frames_without_levels, &block) }.value
      end

      private

      def descend(levels, &block)
        levels.zero? ? block.call : descend(levels - 1, &block)
      end

      def count_frames
        MemprofilerFloor.install(1, false, false)
        Thread.new { descend(0) { Object.new && MemprofilerFloor.last_depth } }.value
      ensure
        MemprofilerFloor.remove
      end
    end
  end
end
