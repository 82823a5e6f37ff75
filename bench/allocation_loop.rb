# frozen_string_literal: true

# What an allocation costs: a loop of Object.new at a given stack depth, bare, with both hooks empty, with a walk of the
# stack at each allocation (the floor of what records whole stacks), and with collectors of several rates.

Bench.define("allocation_loop", "Object.new in a loop, CPU time of the thread") do |report|
  require "ruby_memprofiler_pprof"
  require_relative "support/floor"

  rounds = Integer(ENV.fetch("BENCH_ROUNDS", "31"))
  rates = [1.0, 0.1, 0.01, 0.001]
  collectors = rates.to_h { |rate| [rate, MemprofilerPprof::Collector.new(sample_rate: rate)] }
  floors = { hooks: [0, false], floor: [1, false], floor_with_job: [1, true], rare_floor: [100, true] }
  # So many allocations that each part takes about as long. What is compared stands side by side.
  loops = { bare: 400_000, rare_floor: 400_000, hooks: 400_000, 0.01 => 400_000, 0.001 => 400_000, floor: 100_000,
            1.0 => 100_000, floor_with_job: 100_000, 0.1 => 200_000 }
  names = { bare: "bare loop", hooks: "both empty hooks", floor: "floor", floor_with_job: "floor, and an empty job",
            rare_floor: "walk and empty job at 1 of 100", **rates.to_h { |rate| [rate, "rate #{rate}"] } }

  measure = lambda do |variant, levels|
    collectors[variant]&.start!
    MemprofilerFloor.install(*floors[variant]) if floors.key?(variant)
    AllocationLoop.cost_at(levels, loops.fetch(variant))
  ensure
    MemprofilerFloor.remove
    collectors[variant]&.stop!
  end

  [50, 5, 200].each do |depth|
    levels = AllocationLoop.levels_for(depth)
    turns = depth == 50 ? rounds : rounds / 2
    costs = Bench.interleave(loops.keys, rounds: turns) { |variant| measure.(variant, levels) }
    compare = lambda do |variant, reference, bar|
      report.add("depth #{depth}: #{names[variant]} / #{names[reference]}",
                 Bench.ratios(costs[variant], costs[reference]), unit: "×", bar: bar)
    end
    compare.(1.0, :floor, (1.65 if depth == 50))
    compare.(1.0, :floor_with_job, nil)
    compare.(0.01, :hooks, (1.1 if depth == 50))
    compare.(:rare_floor, :hooks, nil)
    (loops.keys - [:bare]).each { |variant| compare.(variant, :bare, nil) }
    costs.each do |variant, seconds|
      report.add("depth #{depth}: #{names[variant]}, an allocation", seconds.map { |cost| cost * 1e9 }, unit: "ns")
    end
  end
  report.note("Median of #{rounds} interleaved rounds at depth 50, half as many elsewhere; ratios within a round.")
  report.note("Floor: both hooks, and one rb_profile_frames with lines at each allocation.")
end

# The loop itself, on a thread of its own: its stack holds nothing but what is counted here.
module AllocationLoop
  WARM_UP = 5_000

  module_function

  # @return [Float] CPU seconds of one allocation, collections included
  def cost_at(levels, n)
    Thread.new { descend(levels, n) }.value
  end

  # @return [Integer] levels to descend for a walk in the hook to find that many frames
  def levels_for(depth)
    MemprofilerFloor.install(1, false)
    cost_at(0, 1)
    MemprofilerFloor.remove
    depth - @frames_without_levels
  end

  def descend(levels, n)
    levels.zero? ? measure(n) : descend(levels - 1, n)
  end

  # The first pass names frames and makes tables: once a run, however long that is, so it is not counted.
  def measure(n)
    cost = 0.0
    passes = [WARM_UP, n]
    until passes.empty?
      left = times = passes.shift
      GC.start
      start = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      while left > 0
        Object.new
        left -= 1
      end
      cost = (Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - start) / times
    end
    @frames_without_levels = MemprofilerFloor.last_depth if n == 1
    cost
  end
end
