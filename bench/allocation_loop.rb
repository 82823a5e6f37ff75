# frozen_string_literal: true

# What ours adds to the least that it could cost: a loop of Object.new at a given stack depth, bare, with empty hooks,
# with a walk of the stack at each allocation (the floor of what records whole stacks), and with collectors. They take
# turns in one process, in short rounds, which tells finer differences than the comparison's processes do.

Bench.define("allocation_loop", "Object.new in a loop beside its floors, CPU time of the thread") do |report|
  require_relative "support/depth"
  require_relative "support/variants"

  rounds = Bench.rounds(21)
  # Arguments of MemprofilerFloor.install.
  floors = {
    "empty NEWOBJ hook" => [0, false, false],
    "both empty hooks" => [0, false, true],
    "floor" => [1, false, true],
    "floor, and an empty job" => [1, true, true],
    "walk and empty job at 1 of 100" => [100, true, true]
  }
  compared = [ # what, beside what, bar at depth 50
    ["1/1 free_hook", "floor", 1.35],
    ["1/1 free_hook", "floor, and an empty job"],
    ["1/100 weak_map", "both empty hooks", 1.1], # what a rate of 0.01 takes unasked
    ["1/100 free_hook", "both empty hooks"],
    ["walk and empty job at 1 of 100", "both empty hooks"],
    ["1/100 weak_map", "empty NEWOBJ hook", 1.2],
    ["1/1000 weak_map", "empty NEWOBJ hook", 1.1],
    ["1/1000 free_hook", "both empty hooks"],
    ["1/10 free_hook", "both empty hooks"]
  ]
  ours = Bench::Variants.all.to_h { |variant| [variant.name, variant] }.slice(*compared.map(&:first))
  lacks = ours.transform_values { |variant| variant.lacks.call }.compact
  ours.reject! { |name, _| lacks.key?(name) }
  ours.each_value { |variant| variant.load.call }

  # Twice over: names of frames are made, and tables grow to what lives between two collections, once a run, however
  # long that is.
  measure = lambda do |name, depth|
    ours[name]&.start&.call
    MemprofilerFloor.install(*floors[name]) if floors.key?(name)
    n = name.start_with?("floor", "1/1 ") ? 100_000 : 400_000 # so that all take about as long
    passes = [60_000, n]
    Bench::Depth.at(depth) do # no block within: it would be a frame
      cost = nil
      while (left = passes.shift)
        GC.start
        start = Bench.thread_cpu_clock
        while left > 0
          Object.new
          left -= 1
        end
        cost = Bench.thread_cpu_clock - start
      end
      cost / n
    end
  ensure
    MemprofilerFloor.remove
    ours[name]&.stop&.call
  end

  # What is compared stands side by side.
  names = ["bare loop", *compared.flat_map { |what, beside, _| [beside, what] }.uniq - lacks.keys]
  [50, 5, 200].each do |depth|
    costs = Bench.interleave(names, rounds: depth == 50 ? rounds : (rounds / 2.0).ceil) { |name| measure.(name, depth) }
    compared.each do |name, reference, bar|
      bar = nil unless depth == 50
      title = "depth #{depth}: #{name} / #{reference}"
      next report.lack(title, lacks[name], bar: bar) if lacks.key?(name)

      report.add(title, Bench.ratios(costs[name], costs[reference]), unit: "×", bar: bar)
    end
    costs.each do |name, seconds|
      report.add("depth #{depth}: #{name}, an allocation", seconds.map { |cost| cost * 1e9 }, unit: "ns")
    end
  end
  report.note("Median of #{rounds} interleaved rounds at depth 50, half as many elsewhere; ratios within a round.")
  report.note("Floor: both hooks, and one rb_profile_frames with lines at each allocation.")
end
