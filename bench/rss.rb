# frozen_string_literal: true

# Memory of a process whose program is steady, over many flushes.

Bench.define("rss", "Resident memory over 200 flush cycles of a steady program") do |report|
  require_relative "support/stacks"

  cycles = 200
  ring = Array.new(5_000)
  at = 0
  work = lambda do
    Bench::Stacks.each(100) do |number|
      30.times do |i|
        ring[at = (at + 1) % ring.size] = [Object.new, "text #{i}", [number], { i => nil }]
      end
    end
  end
  run = lambda do |&flush|
    sizes = Array.new(cycles) do
      work.call
      flush.call
      Bench.resident_bytes
    end
    [sizes[50...100], sizes[150...200]].map { |part| Bench.median(part) }
  end
  report_run = lambda do |name, early, late, bar|
    report.add("#{name}: median of cycles 50–100", early / 1024.0**2, unit: "MiB")
    report.add("#{name}: median of cycles 150–200", late / 1024.0**2, unit: "MiB")
    report.add("#{name}: the later / the earlier", late.fdiv(early), unit: "×", bar: bar)
  end

  alone = run.call { GC.start }
  require "ruby_memprofiler_pprof"
  collector = MemprofilerPprof::Collector.new(sample_rate: 1.0)
  collector.start!
  profiled = run.call { collector.flush(gc: true) }
  stats = collector.stats
  collector.stop!

  report_run.("rate 1.0", *profiled, 1.01)
  report_run.("without a collector", *alone, nil)
  report.add("rate 1.0: samples taken", stats[:samples], unit: "")
  report.add("rate 1.0: the collector's own memory", stats[:memory][:total] / 1024.0**2, unit: "MiB")
end
