# frozen_string_literal: true

# What profiling costs, ours and the peers' way: each variant (bench/variants) over each workload (bench/workloads).

Bench.define("comparison", "CPU time with a profiler, as a multiple of that without") do |report|
  require_relative "support/gems"
  require_relative "support/variants"
  require_relative "support/workloads"
  comparison = Comparison.new(Bench.rounds(7))
  comparison.tabulate(report)
  comparison.compare_with_bars(report)
  comparison.add_notes(report)
end

# Runs them, and knows the bars.
class Comparison
  # Each measurement is a process of its own, forked from one that holds the workload: nothing of a profiler (its loaded
  # code, a heap it has grown, hooks it left) meets another. In it the workload runs bare first and then profiled, and
  # the ratio of the two is what counts: they stand a fraction of a second apart.
  NONE = "no profiler"
  WARM_UP = 0.05

  FAILED = "failed"
  EXACT = "1/1 free_hook"
  LOOPS = ["Object.new, 50 deep", "strings"].freeze

  def initialize(rounds)
    @rounds = rounds
    @workloads = Bench::Workloads.all
    @variants = [Bench::Variant.new(name: NONE, start: -> {}), *Bench::Variants.all]
    @lacks = @variants.to_h { |variant| [variant.name, variant.lacks.call] }
    @workloads.each { |workload| @lacks[workload.name] = Bench::Gems.need(*workload.gems) }
    @ratios = @workloads.to_h { |workload| [workload.name, measure_all(workload)] }
  end

  def tabulate(report)
    columns = @workloads.map(&:name)
    lines = @variants.map(&:name).to_h { |variant| [variant, columns.map { |workload| cell(workload, variant) }] }
    report.tabulate(columns, lines)
  end

  def compare_with_bars(report)
    LOOPS.each do |workload|
      peers(&:exact?).each { |peer| compare(report, workload, EXACT, peer.name, bar_of_exact(peer, workload)) }
    end
    LOOPS.each do |workload|
      peers { |peer| peer.rate == 1r / 100 }.each do |peer|
        ["1/100 free_hook", "1/100 weak_map"].each { |ours| compare(report, workload, ours, peer.name, 1) }
      end
    end
  end

  def add_notes(report)
    report.note("Median of #{@rounds} rounds ± half the distance of the quartiles. In a round each variant has a " \
                "process of its own, which runs the workload bare and then profiled; the cost is the CPU time of the " \
                "whole process for a unit of work while the profiler runs, its start, end and result left out. The " \
                "first line, no profiler against none, shows the noise.")
    report.note("memory_profiler and trace_object_allocations keep one line an object and no stack. The former runs " \
                "without garbage collection, whose cost it thus saves.")
    report.note("With #{Bench::Gems.versions.map { |gem| gem.join(" ") }.join(", ")}.")
    @lacks.compact.each { |name, reason| report.note("#{name}: #{reason}.") }
  end

  private

  def peers(&condition)
    @variants.select(&:peer).select(&condition)
  end

  # At rate 1 ours is to be faster than all that record whole stacks, and twice as fast as those that tell what is retained
  # as well. Beside the others, which know a line of an object and no stack, the figure is for information.
  def bar_of_exact(peer, workload)
    return if workload != LOOPS.first || !peer.tells.include?(:stack)

    peer.tells.include?(:retained) ? 0.5 : 1
  end

  def compare(report, workload, variant, reference, bar)
    name = "#{workload}: #{variant} / #{reference}"
    reason = reason(workload, variant) || reason(workload, reference)
    return report.lack(name, reason, bar: bar) if reason

    report.add(name, Bench.ratios(@ratios[workload][variant], @ratios[workload][reference]), unit: "×", bar: bar)
  end

  def cell(workload, variant)
    reason = reason(workload, variant) or return @ratios[workload][variant]

    reason == FAILED ? FAILED : "–"
  end

  # @return [String, nil] why there are no ratios
  def reason(workload, variant)
    @lacks[variant] || @lacks[workload] || (FAILED unless @ratios[workload][variant].all?)
  end

  # @return [Hash{String=>Array<Float, nil>}] for each variant a ratio a round, nil where it failed
  def measure_all(workload)
    return {} if @lacks[workload.name]

    warn "comparison: #{workload.name}" if $stderr.tty?
    Bench.in_child do
      unit = workload.prepare.call
      4.times { GC.start } # what it holds grows old
      variants = @variants.reject { |variant| @lacks[variant.name] }
      ratios = Bench.interleave(variants, rounds: @rounds) do |variant|
        Bench.in_child { measure(workload, unit, variant) }
      rescue Bench::ChildFailed
        nil
      end
      ratios.transform_keys(&:name)
    end
  end

  def measure(workload, unit, variant)
    seconds = [workload.slice, variant.slice].max
    variant.load.call
    bare = workload.cost(unit, WARM_UP, seconds)
    variant.start.call
    workload.cost(unit, [WARM_UP, variant.settle].max, seconds) / bare
  end
end
