# frozen_string_literal: true

# What bursts at their default budget cost. The bars are finer than what processes differ by, so bare and profiled
# stretches of a workload take turns in one process, each profiled one between two bare ones.

Bench.define("bursts", "Bursts at the default budget beside no profiler, CPU time of the process") do |report|
  require_relative "support/gems"
  require_relative "support/variants"
  require_relative "support/workloads"

  rounds = Bench.rounds(9)
  bars = { "Object.new, 50 deep" => 1.03, "JSON" => 1.02, "Rack" => 1.02, "ORM" => 1.02 }
  variants = Bench::Variants.all.select { |variant| variant.name.start_with?("burst") }

  # @return [Array(Float, Float)] the cost as a multiple of that of the stretches around it, and what stats say of it
  measure = lambda do |workload, unit, variant, collector|
    before = workload.cost(unit, 0.1, 1.0)
    collector.start!
    cost = workload.cost(unit, variant.settle, 2.0)
    overhead = collector.stats[:burst][:overhead]
    collector.stop!
    [cost / ((before + workload.cost(unit, 0.1, 1.0)) / 2), overhead]
  end

  # @return [Float] CPU seconds that the prelude of a run takes, by what gets done in the most of it
  prelude = lambda do |workload, unit|
    before = workload.cost(unit, 0.1, 0.5)
    collector = MemprofilerPprof::Collector.new(mode: :burst)
    collector.start!
    cost = workload.cost(unit, 0.0, collector.prelude * 0.8)
    collector.stop!
    collector.prelude * (1 - (before / cost))
  end

  bars.each do |name, bar|
    workload = Bench::Workloads.all.find { |candidate| candidate.name == name }
    lack = Bench::Gems.need(*workload.gems)
    variants.each do |variant|
      title = "#{name}: #{variant.name} / no profiler"
      next report.lack(title, lack, bar: bar) if lack

      ratios, overheads = Bench.in_child do
        unit = workload.prepare.call
        collector = variant.load.call
        Array.new(rounds) { measure.(workload, unit, variant, collector) }.transpose
      end
      report.add(title, ratios, unit: "×", bar: bar)
      report.add("#{name}: #{variant.name}, its cost as it measures it", overheads.map { |share| share * 100 }, unit: "%")
    end
    next if lack

    costs = Bench.in_child { workload.prepare.call.then { |unit| Array.new(rounds) { prelude.(workload, unit) } } }
    report.add("#{name}: the prelude, once a run", costs.map { |seconds| seconds * 1_000 }, unit: "ms")
  end
  report.note("Median of #{rounds} rounds: a second bare, two in bursts without a prelude, a second bare.")
end
