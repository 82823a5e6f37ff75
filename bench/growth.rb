# frozen_string_literal: true

# Whether an allocation costs more the more a collector holds: live objects, and distinct stacks, at rate 1.

Bench.define("growth", "Cost of an allocation as live objects and stacks grow, rate 1") do |report|
  require "ruby_memprofiler_pprof"
  require_relative "support/sites"
  require_relative "support/stacks"

  growth = Growth.new(Bench.rounds(7))
  live = [1_000, 10_000, 100_000, 1_000_000]
  stacks = [100, 1_000, 10_000, 100_000]
  growth.add(report, "live objects", live, 1.15) { |size| growth.with_live(size) }
  growth.add(report, "distinct stacks", stacks, 1.25) { |size| growth.with_stacks(size) }
  report.note("Median of #{growth.rounds} interleaved rounds, each a process that runs the loop bare and then " \
              "profiled. Every stack was seen before it is measured. \"Added\" is the difference of the two.")
end

# The two loops, each with so many of what is to grow.
class Growth
  KEPT_STACKS = 200
  ALLOCATIONS = 200_000

  attr_reader :rounds

  def initialize(rounds)
    @rounds = rounds
  end

  # @yieldparam size [Integer]
  # @yieldreturn [Array(Float, Float)] CPU seconds of an allocation bare and profiled, measured in a child
  def add(report, what, sizes, bar)
    pairs = Bench.interleave(sizes, rounds: @rounds) { |size| Bench.in_child { yield size } }
    ratios = pairs.transform_values { |list| list.map { |bare, profiled| profiled / bare } }
    sizes.each do |size|
      report.add("#{size} #{what}: profiled / bare", ratios[size], unit: "×")
      report.add("#{size} #{what}: added", pairs[size].map { |bare, profiled| (profiled - bare) * 1e9 }, unit: "ns")
    end
    report.add("#{what}: that ratio at #{sizes.last} / at #{sizes.first}",
               Bench.ratios(ratios[sizes.last], ratios[sizes.first]), unit: "×", bar: bar)
  end

  # A heap of so many objects that stay, made under the collector, and a loop whose objects die at once.
  def with_live(size)
    kept = keep(size)
    bare = garbage_loop
    collector.start!
    kept.replace(keep(size))
    live = collector.live_heap_samples_count
    raise "#{live} live records, not #{size}" if live < size

    [bare, garbage_loop]
  end

  # A loop that allocates once at the end of each of so many stacks, again and again.
  def with_stacks(size)
    bare = stacks_loop(size)
    collector.start!
    [bare, stacks_loop(size)]
  end

  private

  def collector
    @collector ||= MemprofilerPprof::Collector.new(sample_rate: 1.0, max_heap_samples: 4_000_000,
                                                   max_allocation_samples: 1_000_000, memory_limit: 4 * 1024**3)
  end

  def keep(size)
    kept = Array.new(size)
    n = 0
    Bench::Stacks.each(KEPT_STACKS) do |_|
      (size / KEPT_STACKS).times do
        kept[n] = Object.new
        n += 1
      end
    end
    4.times { GC.start } # they grow old
    kept
  end

  def garbage_loop
    Bench::Stacks.descend(40) do
      allocate_in_loop(ALLOCATIONS / 10)
      allocate_in_loop(ALLOCATIONS)
    end
  end

  def allocate_in_loop(n)
    seconds = Bench.cpu_seconds do
      left = n
      while left > 0
        Object.new
        left -= 1
      end
    end
    seconds / n
  end

  # The first pass, at the same lines as the others, is not measured.
  def stacks_loop(size)
    n = (ALLOCATIONS / size.to_f).ceil
    cost = nil
    Bench::Stacks.descend(40) do
      [1, n].each do |passes|
        GC.start
        cost = Bench.cpu_seconds { passes.times { Bench::Sites.each(size) { Object.new } } } / (passes * size)
      end
    end
    cost
  end
end
