# frozen_string_literal: true

require "ruby_memprofiler_pprof"

# Ours: burst at its default budget, and fixed rates with each liveness back end. Limits are out of the way, so that
# what is exact is exact. An option that this version refuses is shown as not built yet.
module Bench
  module Ours
    LIMITS = { max_heap_samples: 4_000_000, max_allocation_samples: 1_000_000, memory_limit: 4 * 1024**3 }.freeze
    NOT_BUILT = "not built yet"

    class << self
      def define(name, settle: 0, slice: 0, **options)
        collector = nil
        Variants.define(
          name,
          rate: options[:sample_rate], tells: %i[stack retained], settle: settle, slice: slice,
          lacks: -> { NOT_BUILT unless build(options) },
          load: -> { collector = build(options) },
          start: -> { collector.start! },
          stop: -> { collector.stop! },
          result: -> { collector.flush.pprof_data }
        )
      end

      # @return [MemprofilerPprof::Collector, nil]
      def build(options)
        MemprofilerPprof::Collector.new(**LIMITS, **options)
      rescue ArgumentError
        nil
      end
    end

    # What goes on for hours, without the prelude that a run has once. Its windows come a hundred times in a CPU second at
    # most, and its controller needs two seconds to settle.
    define("burst", mode: :burst, prelude: 0, settle: 2.5, slice: 1.0)
    # Any internal hook slows every allocation there, and this is without the one that follows deaths.
    define("burst, liveness: :none", mode: :burst, prelude: 0, liveness: :none, settle: 2.5, slice: 1.0) if RUBY_VERSION < "3.3"
    %i[free_hook weak_map].each do |liveness|
      [1000, 100, 10, 1].each do |interval|
        define("1/#{interval} #{liveness}", sample_rate: 1r / interval, liveness: liveness)
      end
    end
  end
end
