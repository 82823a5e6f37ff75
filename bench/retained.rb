# frozen_string_literal: true

# 500,000 retained objects from 200 stacks, at rate 1: what it takes to know of them, and how long until there is a
# result. Ours and the peers that tell what is retained.

Bench.define("retained", "500,000 retained objects from 200 stacks, rate 1") do |report|
  require_relative "support/gems"
  require_relative "support/stacks"
  require_relative "support/variants"

  objects = 500_000
  stacks = 200
  rounds = Bench.rounds(3)

  # @return [Array] bytes that the process grew by, seconds until there was a result, its bytes
  measure = lambda do |variant|
    variant&.load&.call
    kept = Array.new(objects)
    GC.start
    variant&.start&.call
    before = Bench.resident_bytes
    n = 0
    Bench::Stacks.each(stacks) do |_|
      (objects / stacks).times do
        kept[n] = Object.new
        n += 1
      end
    end
    grown = Bench.resident_bytes - before
    start = Bench.wall_clock
    result = variant&.result&.call
    [grown, Bench.wall_clock - start, result&.bytesize]
  end

  none = nil
  variants = Bench::Variants.all.select { |variant| variant.exact? && variant.tells.include?(:retained) }
  lacks = variants.to_h { |variant| [variant, variant.lacks.call] }.compact
  figures = Bench.interleave([none, *variants] - lacks.keys, rounds: rounds) do |variant|
    Bench.in_child { measure.(variant) }
  end
  alone = figures.fetch(none).map(&:first)

  variants.each do |variant|
    bar = 0.2 unless variant.peer
    next report.lack("#{variant.name}: to the result", lacks[variant], bar: bar) if lacks.key?(variant)

    grown, times, sizes = figures[variant].transpose
    report.add("#{variant.name}: resident memory, a retained object",
               grown.zip(alone).map { |with, without| (with - without).fdiv(objects) }, unit: "B")
    next if sizes.none?

    report.add("#{variant.name}: to the result", times, unit: "s", bar: bar)
    report.add("#{variant.name}: the result", sizes.map { |bytes| bytes / 1024.0 }, unit: "KiB")
  end
  report.note("Resident memory is what the process grew by, less what it grows by without a profiler. The result is " \
              "what would go to a file: a profile, of memory_profiler a report as text. " \
              "trace_object_allocations gives none.")
end
