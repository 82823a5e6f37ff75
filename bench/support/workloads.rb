# frozen_string_literal: true

require_relative "depth"

module Bench
  # A piece of work to profile. Defined in bench/workloads.
  #
  #   name     as the tables head their columns
  #   depth    frames of the stack at an Object.new right in the unit
  #   slice    CPU seconds to measure it for, at least
  #   prepare  gives the unit: work of some milliseconds, to be called again and again, in a forked process
  #   gems     what it needs of Gems
  Workload = Struct.new(:name, :depth, :slice, :gems, :prepare, keyword_init: true) do
    # @return [Float] CPU seconds of the process a unit, after a warm-up that makes tables, names frames, fills caches
    def cost(unit, warm_up, seconds)
      limits = [warm_up, seconds]
      Depth.at(depth - 1) do # the unit is called one frame further on
        cost = nil
        while (limit = limits.shift)
          GC.start
          n = 0
          start = now = Bench.process_cpu_clock
          while now - start < limit
            unit.call
            n += 1
            now = Bench.process_cpu_clock
          end
          cost = (now - start) / n
        end
        cost
      end
    end
  end

  # The list of them.
  module Workloads
    FILES = %w[objects strings json rack orm live_heap threads].freeze
    ORDINARY_DEPTH = 50
    SLICE = 0.1

    @all = {}

    class << self
      def define(name, depth: ORDINARY_DEPTH, slice: SLICE, gems: [], &prepare)
        @all[name] = Workload.new(name: name, depth: depth, slice: slice, gems: gems, prepare: prepare)
      end

      # @return [Array<Workload>]
      def all
        FILES.each { |file| require_relative "../workloads/#{file}" }
        @all.values
      end
    end
  end
end
