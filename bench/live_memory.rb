# frozen_string_literal: true

# Native memory for the records of live objects, at every fill, for the nodes of the stacks' tree, and all that a
# collector holds.

Bench.define("live_memory", "Native memory of live records, 200 stacks, and of stacks") do |report|
  require "ruby_memprofiler_pprof"
  require "objspace"
  require_relative "support/sites"
  require_relative "support/stacks"

  stacks = 200
  ranges = [1_000...10_000, 10_000...50_000, 50_000..200_000]
  last = 200_000
  step = 500
  kept = Array.new(last)

  collector = MemprofilerPprof::Collector.new(sample_rate: 1.0, max_heap_samples: last + step)
  collector.start!
  worst = Hash.new { |fills, range| fills[range] = [0.0, 0] } # bytes a record, and at how many
  worst_peak = Hash.new(0.0)
  peak = 0
  n = 0
  fill = lambda do |goal|
    quota = (goal - n).fdiv(stacks).ceil
    Bench::Stacks.each(stacks) do |_|
      [quota, goal - n].min.times do
        kept[n] = Object.new
        n += 1
      end
    end
  end
  (step..last).step(step) do |goal|
    fill.(goal)
    live = collector.live_heap_samples_count
    memory = collector.stats.fetch(:memory)
    each = memory[:live].fdiv(live)
    # The table of live records is what grows; everything else stays as it is.
    peak_of_table = memory[:peak] - (memory[:total] - memory[:live])
    if (range = ranges.find { |candidate| candidate.cover?(goal) })
      worst[range] = [worst[range], [each, live]].max
      worst_peak[range] = [worst_peak[range], peak_of_table.fdiv(live)].max if memory[:peak] > peak
    end
    peak = memory[:peak]
    if [1_000, 10_000, 50_000, 100_000, 150_000, 200_000].include?(goal)
      report.add("a record at #{live} live", each, unit: "B", bar: 48)
    end
  end
  ranges.each do |range|
    title = [range.begin, range.end].join(" … ")
    bytes, live = worst[range]
    report.add("a record at the worst fill of #{title} (#{live} live)", bytes, unit: "B", bar: 48)
    report.add("a record at the peak while the table grows, #{title}", worst_peak[range], unit: "B", bar: 48)
  end
  collector.stop!

  kept.fill(nil)
  n = 0
  collector = MemprofilerPprof::Collector.new(sample_rate: 1.0, max_heap_samples: 110_000)
  collector.start!
  fill.(100_000)
  collector.flush
  live = collector.live_heap_samples_count
  all = ObjectSpace.memsize_of(collector)
  memory = collector.stats.fetch(:memory)
  collector.stop!
  flush = memory[:last_snapshot] + memory[:last_scratch]
  report.add("all native memory of a collector at #{live} live", all / 1024.0**2, unit: "MiB", bar: 8)
  report.add("its peak until then, with a flush on top", (memory[:peak] + flush) / 1024.0**2, unit: "MiB", bar: 8)
  report.add("of it, what a flush takes for a while", flush / 1024.0**2, unit: "MiB")

  # Few functions and lines, many ways through them. Between two fills there are more nodes, and now and then more slots.
  collector = MemprofilerPprof::Collector.new(sample_rate: 1.0)
  collector.start!
  n = 0
  fills = []
  Bench::Sites.each(50_000) do
    Object.new
    n += 1
    stats = collector.stats if (n % 1_000).zero?
    fills << [stats.dig(:memory, :stacks), stats.fetch(:stacks)] if stats
  end
  collector.stop!
  added = fills.each_cons(2).map { |before, after| (after[0] - before[0]).fdiv(after[1] - before[1]) }
  bytes, nodes = fills.max_by { |bytes, nodes| bytes.fdiv(nodes) }
  report.add("a node of the stacks' tree", added, unit: "B", bar: 24)
  report.add("a node with its slots of the index, worst fill of 1000 … 50000 stacks (#{nodes} nodes)", bytes.fdiv(nodes), unit: "B")
  report.note("Fills in steps of #{step}. Bytes as asked of libc, whose own overhead is not in it.")
end
