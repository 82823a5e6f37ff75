# frozen_string_literal: true

# Native memory for the records of live objects, at every fill, and all that a collector holds.

Bench.define("live_memory", "Native memory of live records, 200 stacks") do |report|
  require "ruby_memprofiler_pprof"
  require "objspace"
  require_relative "support/stacks"

  stacks = 200
  first = 50_000
  last = 200_000
  step = 500
  kept = Array.new(last)

  collector = MemprofilerPprof::Collector.new(sample_rate: 1.0, max_heap_samples: last + step)
  collector.start!
  worst = worst_peak = 0.0
  worst_at = peak = 0
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
    # The table of live records is what grows; everything else stays as it is.
    peak_of_table = memory[:peak] - (memory[:total] - memory[:live])
    if goal >= first
      each = memory[:live].fdiv(live)
      worst, worst_at = each, live if each > worst
      worst_peak = [worst_peak, peak_of_table.fdiv(live)].max if memory[:peak] > peak
    end
    peak = memory[:peak]
    if [50_000, 100_000, 150_000, 200_000].include?(goal)
      report.add("a record at #{live} live", memory[:live].fdiv(live), unit: "B", bar: 48)
    end
  end
  report.add("a record at the worst fill of 50,000 … 200,000 (#{worst_at} live)", worst, unit: "B", bar: 48)
  report.add("a record at the peak while the table grows (it copies its index)", worst_peak, unit: "B")
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
  report.note("Fills in steps of #{step}. Bytes as asked of libc, whose own overhead is not in it.")
end
