# frozen_string_literal: true

# One process of the soak: the churn without a collector, then with two of them of one kind, of which one runs all the time
# and the other is started anew again and again. Prints a table, and ends with 1 if anything grows or is kept alive.
#
#   ruby test/soak/run.rb SECONDS fixed|burst LIVENESS

require "objspace"
require "ruby_memprofiler_pprof"
require_relative "churn"
require_relative "trend"

class Soak
  # So that the tables fill up within the rounds that are not judged.
  COLLECTORS = {
    fixed: { sample_rate: 1, max_allocation_samples: 2_000, max_heap_samples: 2_000, memory_limit: 4 * 1024 * 1024 },
    burst: { mode: :burst, overhead: 0.5, max_allocation_samples: 64, max_heap_samples: 64, memory_limit: 1024 * 1024 }
  }.freeze
  OPTIONS = [{}, { gc: true }, { min_gc_age: 2, class_names: :frame }, { sample_types: :go }, { class_names: :off },
             { gc: true, sample_types: :go, class_names: :label }].freeze
  # Rounds: without a collector, with them and not judged (the first half at least), and judged at least. The VM keeps some of
  # what is churned, by caches that take long to fill, and by then its heap is in pieces: without a collector too resident
  # memory goes up by steps of a MiB for a thousand rounds. The longer the run, the less a round may leave.
  ALONE = 80
  WARM_UP = 100
  JUDGED = 60

  # What may seem to grow in a series that is flat: share of its level, and amount. Rows are evicted by the eighth, tables
  # are doubled; how many nodes the stacks of 60 rows in bursts have, of 3 to 75 frames each, is chance.
  TOLERANCE = Hash.new { |_, name| name.start_with?("memory: ") ? [0.25, 32 * 1024] : [0.15, 64] }.update(
    "resident bytes" => [0.08, 0], "VM: live slots" => [0.02, 2_000], "stacks" => [0.15, 400], "memory: total" => [0.05, 64 * 1024]
  ).freeze
  # What collectors may keep of the program beside what it has without them: share of that, and amount.
  KEPT = { "VM: classes" => [0.05, 100], "VM: iclasses" => [0.05, 100], "VM: iseqs" => [0.05, 200],
           "VM: methods" => [0.05, 200], "VM: symbols" => [0.05, 200] }.freeze

  def initialize(seconds, mode, liveness)
    @seconds = seconds
    @options = { liveness: liveness, seed: 1, **COLLECTORS.fetch(mode) }
    @churn = Churn.new(1)
    @failures = []
  end

  # @return [Boolean] whether all is flat
  def run
    ending = now + @seconds
    MemprofilerPprof::ProfileReader # loads what it needs
    alone = readings_while(->(number) { number < ALONE }) { vm_sizes }
    @steady, @restarted = Array.new(2) { MemprofilerPprof::Collector.new(**@options).tap(&:start!) }
    during = readings_while(->(number) { now < ending || number < WARM_UP + JUDGED }) { |number| turn(number) }
    report(alone, during)
    @failures.empty?
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # @return [Hash{String=>Array<Numeric>}] what the block gives after each round
  def readings_while(more)
    readings = Hash.new { |series, name| series[name] = [] }
    number = 0
    while more.call(number)
      @churn.round
      yield(number += 1).each { |name, value| readings[name] << value }
    end
    readings
  end

  def turn(number)
    sizes = flush(number)
    restart(number) if (number % 7).zero?
    fork_and_flush if (number % 11).zero?
    GC.compact if (number % 13).zero? && GC.respond_to?(:compact)
    sizes.merge(vm_sizes)
  end

  def flush(number)
    options = OPTIONS[number % OPTIONS.size]
    data = @steady.flush(**options)
    @restarted.snapshot(**options)
    data.write(File::NULL)
    data.estimate(/descend/) if (number % 5).zero?
    sizes_of(@steady.stats)
  end

  # At times as another collector, and at times while its flush is under way.
  def restart(number)
    flusher = Thread.new { @restarted.flush } if number.odd?
    @restarted.stop!(gc: number.even?)
    flusher&.join
    @restarted = MemprofilerPprof::Collector.new(**@options) if (number % 3).zero?
    @restarted.start!
  end

  def fork_and_flush
    pid = fork do
      @churn.round
      [@steady, @restarted].each { |collector| collector.flush.write(File::NULL) }
      exit!(0)
    rescue Exception => e
      warn e.full_message
      exit!(1)
    end
    status = Process.wait2(pid).last
    @failures << "a forked child ended with #{status}" unless status.success?
  end

  def sizes_of(stats)
    check(stats)
    sizes = stats.slice(:rows, :strings, :functions, :locations, :stacks, :live_samples).transform_keys(&:to_s)
    memory = stats[:memory].except(:limit, :peak).transform_keys { |name| "memory: #{name}" }
    sizes.update(memory)
  end

  # What is to be true of each reading by itself.
  def check(stats)
    parts = stats[:allocations]
    difference = parts.except(:vm).values.sum - parts[:vm]
    lost = stats[:dropped_samples].slice(:no_memory, :pending_full)
    lost[:unseen] = parts[:unseen] if RUBY_VERSION < "3.4" # from then on compaction's read barrier has some
    @failures << "off by #{difference} allocations" unless difference.zero?
    @failures << "lost: #{lost}" if stats[:mode] == :fixed && lost.values.any?(&:positive?)
    @failures << "#{stats[:memory][:peak]} bytes are above the limit" if stats[:memory][:peak] > stats[:memory][:limit]
  end

  def vm_sizes
    GC.start
    objects = ObjectSpace.count_objects
    imemos = ObjectSpace.count_imemo_objects
    {
      "VM: classes" => objects.fetch(:T_CLASS), "VM: iclasses" => objects.fetch(:T_ICLASS, 0),
      "VM: symbols" => objects.fetch(:T_SYMBOL, 0), "VM: iseqs" => imemos.fetch(:imemo_iseq),
      "VM: methods" => imemos.fetch(:imemo_ment), "VM: live slots" => GC.stat(:heap_live_slots),
      "resident bytes" => File.read("/proc/self/statm").split[1].to_i * 4096
    }
  end

  def report(alone, during)
    rounds = during.fetch("rows").size
    warm_up = [WARM_UP, rounds / 2].max
    puts format("%-22s %12s %12s   in %d rounds", "", "level", "growth", rounds - warm_up)
    during.each do |name, readings|
      trend = Trend.new(readings.drop(warm_up))
      flat = trend.flat?(*TOLERANCE[name])
      puts format("%-22s %12d %+12d%s", name, trend.level, trend.growth, flat ? "" : "   GROWS")
      @failures << "#{name} grows" unless flat
      compare(name, Trend.new(alone.fetch(name).last(ALONE / 4)).level, trend.level) if KEPT.key?(name)
    end
    puts @failures.tally.map { |failure, n| "FAILED #{n} times: #{failure}" }
  end

  def compare(name, alone, level)
    share, amount = KEPT.fetch(name)
    return if level <= alone * (1 + share) + amount

    @failures << "#{name}: #{level.round} with collectors, #{alone.round} without"
  end
end

abort "usage: run.rb SECONDS fixed|burst free_hook|weak_map" unless ARGV.size == 3
$stdout.sync = true
exit(Soak.new(Float(ARGV[0]), ARGV[1].to_sym, ARGV[2].to_sym).run)
