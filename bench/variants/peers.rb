# frozen_string_literal: true

require "stringio"
require_relative "../support/gems"

# Other people's allocation profilers, at the same rates where they have one, with whole stacks where they can.

module Bench
  module Peers
    class << self
      def define(name, gem: nil, **attributes)
        Variants.define(name, peer: true, lacks: -> { Gems.need(gem) if gem }, **attributes)
      end
    end

    [100, 1].each do |interval|
      define("stackprof 1/#{interval}", gem: "stackprof",
             rate: 1r / interval, tells: [:stack],
             load: -> { require "stackprof" },
             start: -> { StackProf.start(mode: :object, interval: interval, raw: true) },
             result: -> { StackProf.stop && Marshal.dump(StackProf.results) })
    end

    # It samples time as well, which cannot be switched off: once in a quarter of an hour here.
    [100, 1].each do |interval|
      define("vernier 1/#{interval}", gem: "vernier",
             rate: 1r / interval, tells: [:stack],
             load: -> { require "vernier" },
             start: -> { Vernier.start_profile(interval: 900_000_000, allocation_interval: interval) },
             result: -> { Vernier.stop_profile.to_firefox })
    end

    define("vernier retained", gem: "vernier",
           rate: 1, tells: %i[stack retained],
           load: -> { require "vernier" },
           start: -> { Vernier.start_profile(mode: :retained) },
           result: -> { Vernier.stop_profile.to_firefox })

    # It stops garbage collection while it runs.
    define("memory_profiler", gem: "memory_profiler",
           rate: 1, tells: [:retained],
           load: -> { require "memory_profiler" },
           start: -> { MemoryProfiler.start },
           result: -> { StringIO.new.tap { |text| MemoryProfiler.stop.pretty_print(text) }.string })

    # One line an object, to be asked for object by object: no profile comes out of it.
    define("trace_object_allocations",
           rate: 1, tells: [:retained],
           load: -> { require "objspace" },
           start: -> { ObjectSpace.trace_object_allocations_start })
  end
end
