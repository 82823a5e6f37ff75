# frozen_string_literal: true

module Model
  # Arguments that are refused, each by name; nothing changes by them.
  module BadInput
    extend Defining

    NEW = [
      [{ mode: :none }, ArgumentError, "mode"],
      [{ mode: 1 }, TypeError, "mode"],
      [{ sample_rate: 0 }, ArgumentError, "sample_rate"],
      [{ sample_rate: 1.1 }, ArgumentError, "sample_rate"],
      [{ sample_rate: Float::NAN }, ArgumentError, "sample_rate"],
      [{ sample_rate: "1" }, TypeError, "sample_rate"],
      [{ mode: :burst, overhead: 0 }, ArgumentError, "overhead"],
      [{ mode: :burst, overhead: 0.6 }, ArgumentError, "overhead"],
      [{ overhead: 0.01 }, ArgumentError, "overhead"],
      [{ mode: :burst, prelude: -1 }, ArgumentError, "prelude"],
      [{ mode: :burst, sample_rate: 1 }, ArgumentError, "sample_rate"],
      [{ mode: :burst, raw_counts: true }, ArgumentError, "raw_counts"],
      [{ timer_signal: 64 }, ArgumentError, "timer_signal"],
      [{ mode: :burst, timer_signal: 14 }, ArgumentError, "timer_signal"],
      [{ max_heap_samples: 0 }, ArgumentError, "max_heap_samples"],
      [{ max_allocation_samples: 15 }, ArgumentError, "max_allocation_samples"],
      [{ memory_limit: 1 }, ArgumentError, "memory_limit"],
      [{ max_stack_depth: 10_001 }, ArgumentError, "max_stack_depth"],
      [{ max_stack_depth: 1.0 }, TypeError, "max_stack_depth"],
      [{ class_names: :all }, ArgumentError, "class_names"],
      [{ sample_types: nil }, TypeError, "sample_types"],
      [{ raw_counts: nil }, TypeError, "raw_counts"],
      [{ liveness: :some }, ArgumentError, "liveness"],
      [{ threads: nil }, TypeError, "threads"],
      [{ seed: -1 }, ArgumentError, "seed"],
      [{ seed: 2**64 }, ArgumentError, "seed"],
      [{ unknown: 1 }, ArgumentError, "unknown"]
    ].freeze

    CALLS = [
      ["flush(gc: 1)", ->(c) { c.flush(gc: 1) }, TypeError, "gc"],
      ["flush(min_gc_age: -1)", ->(c) { c.flush(min_gc_age: -1) }, ArgumentError, "min_gc_age"],
      ["flush(class_names: 1)", ->(c) { c.flush(class_names: 1) }, TypeError, "class_names"],
      ["flush(unknown: 1)", ->(c) { c.flush(unknown: 1) }, ArgumentError, "unknown"],
      ["snapshot(sample_types: :x)", ->(c) { c.snapshot(sample_types: :x) }, ArgumentError, "sample_types"],
      ["stop!(gc: nil)", ->(c) { c.stop!(gc: nil) }, TypeError, "gc"],
      ["profile", ->(c) { c.profile }, ArgumentError, "block"],
      ["profile(threads: :x) { }", ->(c) { c.profile(threads: :x) { raise "ran" } }, ArgumentError, "threads"],
      ["dup", ->(c) { c.dup }, TypeError, "copied"],
      ["initialize", ->(c) { c.__send__(:initialize) }, ArgumentError, "already initialized"]
    ].freeze

    operation(:bad_new, 2, arguments: ->(random) { { index: random.rand(NEW.size) } },
                           text: ->(index:) { "Collector.new(#{in_words(NEW.fetch(index).first)})" }) do |world, step|
      options, error, text = NEW.fetch(step.arguments[:index])
      world.refused(error, text) { MemprofilerPprof::Collector.new(**options) }
    end

    on_collector(:bad_call, 2, arguments: ->(random) { { index: random.rand(CALLS.size) } },
                               text: ->(index:) { CALLS.fetch(index).first }) do |world, step, expected|
      _, call, error, text = CALLS.fetch(step.arguments[:index])
      world.refused(error, text) { call.call(expected.collector) }
      world.check_state(expected)
    end
  end
end
