# frozen_string_literal: true

# What a flush costs a program with many live sampled objects: how long other threads stand still, how long it takes,
# how much memory it needs on top, how large its profile is.

Bench.define("flush", "Flush of many live records") do |report|
  require "ruby_memprofiler_pprof"
  require_relative "support/stacks"
  require_relative "support/ticker"

  flushes = Bench.rounds(11)
  [[100_000, 200, 10], [100_000, 1_000, 10], [1_000_000, 1_000, 20]].each do |live, stacks, longest_hold|
    collector = MemprofilerPprof::Collector.new(sample_rate: 1.0, max_heap_samples: live * 2, memory_limit: 1024**3)
    collector.start!
    kept = Array.new(live)
    n = 0
    Bench::Stacks.each(stacks) do |_|
      (live / stacks).times do
        kept[n] = Object.new
        n += 1
      end
    end
    GC.start
    name = "#{live} records, #{stacks} stacks"
    idle = Bench::Ticker.longest_gap { sleep 0.05 }
    gaps = []
    times = Array.new(flushes) do
      start = Bench.wall_clock
      gaps << Bench::Ticker.longest_gap { collector.flush }
      Bench.wall_clock - start
    end
    stats = collector.stats
    report.add("#{name}: longest hold of the GVL, as the collector measures it, of #{flushes} flushes",
               stats[:time][:longest_hold] * 1e3, unit: "ms", bar: longest_hold)
    report.add("#{name}: longest gap of a thread that ticks each millisecond", gaps.map { |gap| gap * 1e3 },
               unit: "ms", bar: longest_hold)
    report.add("#{name}: that gap without a flush", idle * 1e3, unit: "ms")
    report.add("#{name}: a flush from call to return", times.map { |time| time * 1e3 }, unit: "ms")
    scratch, copy = stats[:memory].values_at(:last_scratch, :last_snapshot).map { |bytes| bytes / 1024.0**2 }
    report.add("#{name}: scratch memory of the encoding", scratch, unit: "MiB", bar: 4)
    report.add("#{name}: the copy of the rows", copy, unit: "MiB")
    report.add("#{name}: the profile", collector.snapshot.pprof_data.bytesize / 1024.0, unit: "KiB")
    report.add("#{name}: live records at the end", stats[:live_samples], unit: "")

    # Nothing is measured anew after stop, so what is left of a snapshot is the copy and the encoding.
    collector.stop!
    encodings = Array.new(flushes) do
      start = Bench.wall_clock
      collector.snapshot
      Bench.wall_clock - start
    end
    report.add("#{name}: encoding alone (a snapshot after stop)", encodings.map { |time| time * 1e3 }, unit: "ms")
    kept.clear
  end
end
