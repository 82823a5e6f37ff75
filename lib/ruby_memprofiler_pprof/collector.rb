# frozen_string_literal: true

require_relative "options"

module MemprofilerPprof
  # Samples the allocations of this process and follows the sampled objects until they die. Several may run at once,
  # none sees another's own work. To be used from the main Ractor.
  #
  # A collector is new, then running, then stopped; each start begins a run with everything at zero. What a run has
  # gathered stays readable after it.
  #
  # @example Over one piece of work
  #   MemprofilerPprof::Collector.new(sample_rate: 1.0).profile { work }.write("work.pb.gz")
  # @example Always on
  #   collector = MemprofilerPprof::Collector.new(sample_rate: 0.01)
  #   collector.start!
  #   loop { sleep 60; collector.flush.write("heap-#{Time.now.to_i}.pb.gz") }
  #
  # @!method running?
  #   @return [Boolean] whether it is between start and stop
  # @!method live_heap_samples_count
  #   @return [Integer] sampled objects that are not known to be dead
  # @!method stats
  #   The collector's numbers: samples, drops by reason, own memory in bytes by table, time spent in seconds, back end.
  #   @return [Hash{Symbol=>Object}]
  class Collector
    DEFAULT_SAMPLE_RATE = 0.01
    DEFAULT_OVERHEAD = 0.01
    DEFAULT_PRELUDE = 0.25
    private_constant :DEFAULT_SAMPLE_RATE, :DEFAULT_OVERHEAD, :DEFAULT_PRELUDE

    # @return [Symbol] how allocations are sampled, as asked for; stats tells what is done
    attr_reader :mode

    # @return [Float, nil] share of the process's CPU time that profiling may take, in burst mode
    attr_reader :overhead

    # @return [Float, nil] seconds of CPU time from the start on that burst mode samples at a fixed rate
    attr_reader :prelude

    # @return [Integer, nil] signal of the timer in burst mode, as asked for
    attr_reader :timer_signal

    # @return [Float, nil] probability with which an allocation is sampled; nil in burst mode, where it varies
    attr_reader :sample_rate

    # @return [Integer] most sampled live objects followed at once
    attr_reader :max_heap_samples

    # @return [Integer] most distinct combinations of stack, class and labels kept
    attr_reader :max_allocation_samples

    # @return [Integer] bytes that the collector's tables may take
    attr_reader :memory_limit

    # @return [Integer] most frames kept of a stack
    attr_reader :max_stack_depth

    # @return [Symbol, nil] how profiles show classes, nil: as the sample types have it
    attr_reader :class_names

    # @return [Symbol] how profiles name their values
    attr_reader :sample_types

    # @return [Boolean] whether samples are counted as they are, not scaled up
    attr_reader :raw_counts

    # @return [Symbol] how the death of objects becomes known, as asked for; stats tells what is used
    attr_reader :liveness

    # @return [Symbol] whose allocations are sampled
    attr_reader :threads

    # @return [Integer, nil] what the random numbers start from
    attr_reader :seed

    # Nothing runs yet.
    #
    # @param mode [Symbol] +:fixed+ (each allocation is sampled with one probability; for short runs and exact questions)
    #   or +:burst+ (the hook is in for short windows of CPU time only, and the VM's own count scales the samples; for
    #   processes that run for hours). Where the system has no timer for it, a run in burst mode is fixed, with a warning
    # @param overhead [Float, Rational, nil] in burst mode, the share of the process's CPU time that profiling may take,
    #   above 0, up to 0.5; nil: 0.01
    # @param prelude [Float, Integer, Rational, nil] in burst mode, the seconds of CPU time from the start on in which
    #   allocations are sampled at a fixed rate of 0.01 instead, for what a program that ends soon is known by; 0 to 60;
    #   nil: 0.25. What that costs comes on top of the overhead. A forked child has none
    # @param timer_signal [Integer, nil] in burst mode, the signal of the timer, a real-time one: 34 to 64; nil: one
    #   that nobody handles. All collectors in bursts share one timer, which the first to start chooses the signal of
    # @param sample_rate [Float, Integer, Rational, nil] probability with which an allocation is sampled, 1.0e-06 to 1;
    #   nil: 0.01. What is sampled counts for 1 / sample_rate allocations
    # @param max_heap_samples [Integer] most sampled live objects followed, 1 to 16,777,216. At the limit every second
    #   one is let go and the others count double
    # @param max_allocation_samples [Integer] most distinct combinations of stack, class and labels, 16 to 16,777,216.
    #   At the limit the least used are folded into one, named +(evicted)+. In burst mode each counts once for each of
    #   the 16 groups of windows that it was seen in
    # @param memory_limit [Integer] bytes for the tables, 1 MiB to 1 TiB. At the limit stacks are folded and live
    #   samples let go in the same ways; samples that find no room even so are dropped and counted. A flush takes memory
    #   for its copy of the rows and up to 4 MiB more
    # @param max_stack_depth [Integer] most frames of a stack, 1 to 10,000, the innermost are kept
    # @param class_names [Symbol, nil] how a profile shows an object's class: +:label+ (a label named class), +:frame+
    #   (an innermost frame) or +:off+; nil: +:off+ where the sample types are +:go+, else +:label+
    # @param sample_types [Symbol] +:memprofiler+ (allocations, allocation_size, retained_objects, retained_size) or
    #   +:go+ (alloc_objects, alloc_space, inuse_objects, inuse_space)
    # @param raw_counts [Boolean] true: a sample counts 1, nothing is scaled up
    # @param liveness [Symbol] how deaths become known: +:free_hook+ (when they happen; costs at every death, sampled or
    #   not), +:weak_map+ (from each collection; costs at samples alone. Before Ruby 3.4 no WeakMap can be filled
    #   safely, and the marks of the collection are read instead: stats then tells +:mark_hook+), +:none+ (not at all:
    #   retained is zero) or +:auto+ (+:free_hook+ at rates of 0.1 and above, +:weak_map+ below and in bursts)
    # @param threads [Symbol] +:all+, or +:current+ for the thread that calls start
    # @param seed [Integer, nil] makes the choice of samples repeatable, 0 to 2**64 - 1; nil: a random one
    # @raise [ArgumentError] if a value is out of its range or an option unknown, or two do not go together
    # @raise [TypeError] if a value is of another type
    def initialize(mode: :fixed, overhead: nil, prelude: nil, timer_signal: nil, sample_rate: nil,
                   max_heap_samples: 100_000, max_allocation_samples: 100_000, memory_limit: 64 * 1024 * 1024,
                   max_stack_depth: 512, class_names: nil, sample_types: :memprofiler, raw_counts: false,
                   liveness: :auto, threads: :all, seed: nil)
      Options.check(:mode, mode)
      Options.check(:overhead, overhead)
      Options.check(:prelude, prelude)
      Options.check(:timer_signal, timer_signal)
      Options.check(:sample_rate, sample_rate)
      Options.check(:max_heap_samples, max_heap_samples)
      Options.check(:max_allocation_samples, max_allocation_samples)
      Options.check(:memory_limit, memory_limit)
      Options.check(:max_stack_depth, max_stack_depth)
      Options.check(:class_names, class_names)
      Options.check(:sample_types, sample_types)
      Options.check(:raw_counts, raw_counts)
      Options.check(:liveness, liveness)
      Options.check(:threads, threads)
      Options.check(:seed, seed)
      Options.check_mode(mode, overhead: overhead, prelude: prelude, timer_signal: timer_signal,
                               sample_rate: sample_rate, raw_counts: raw_counts)
      overhead = (overhead || DEFAULT_OVERHEAD).to_f if mode == :burst
      prelude = (prelude || DEFAULT_PRELUDE).to_f if mode == :burst
      sample_rate = (sample_rate || DEFAULT_SAMPLE_RATE).to_f if mode == :fixed
      initialize_native(sample_rate || DEFAULT_SAMPLE_RATE, max_heap_samples, max_allocation_samples, memory_limit,
                        max_stack_depth, raw_counts, liveness, seed, overhead, prelude, timer_signal)
      @mode = mode
      @overhead = overhead
      @prelude = prelude
      @timer_signal = timer_signal
      @sample_rate = sample_rate
      @max_heap_samples = max_heap_samples
      @max_allocation_samples = max_allocation_samples
      @memory_limit = memory_limit
      @max_stack_depth = max_stack_depth
      @class_names = class_names
      @sample_types = sample_types
      @raw_counts = raw_counts
      @liveness = liveness
      @threads = threads
      @seed = seed
    end

    # Begins a run: what an earlier one has gathered is gone.
    #
    # @return [Boolean] false if it was running, and goes on so
    def start!
      return false unless start_native(@threads)

      reason = burst_fallback_native
      warn_of_fallback(reason) if reason
      true
    end
    alias start start!

    # Ends the run. Its numbers stay readable; of the objects, no address is kept.
    #
    # @param gc [Boolean] collect garbage first, so that what is retained is exact
    # @return [Boolean] false if it was not running
    # @raise [TypeError] if gc is neither true nor false
    def stop!(gc: false)
      stop_native(Options.check(:gc, gc))
    end
    alias stop stop!

    # The allocations since the last flush (or the start), and what is retained of all since the start. Objects that are
    # dead but not collected yet count as retained. In burst mode, what was allocated before the first sample after a flush
    # may come in a later one: an interval without any has no allocations.
    #
    # @param gc [Boolean] collect garbage first, so that what is retained is exact. Without effect after stop
    # @param min_gc_age [Integer] leave out of retained what has not survived so many collections, 0 to 2**31 - 1
    # @param sample_types [Symbol, Array<Symbol>, nil] how to name the values this time, see {#initialize}; nil: as the
    #   collector has it; several: a profile for each, of one and the same moment and interval
    # @param class_names [Symbol, nil] how to show classes this time, see {#initialize}; nil: as the collector has it
    # @return [ProfileData, Array<ProfileData>] an empty profile before the first start; an Array for an Array
    # @raise [ArgumentError] if a value is out of its range or an option unknown
    # @raise [TypeError] if a value is of another type
    # @raise [NoMemoryError] if there is no memory for the profile; the next flush has these allocations then
    # @example What has been alive for three collections, by stack alone
    #   collector.flush(min_gc_age: 3, class_names: :off).write("leak.pb.gz")
    # @example For a receiver that expects Go's names, and for oneself
    #   go, own = collector.flush(sample_types: %i[go memprofiler])
    def flush(gc: false, min_gc_age: 0, sample_types: nil, class_names: nil)
      encode(true, gc, min_gc_age, sample_types, class_names)
    end

    # As {#flush}, with all allocations since the start. It takes nothing from the next flush.
    #
    # @param (see #flush)
    # @return (see #flush)
    # @raise (see #flush)
    def snapshot(gc: false, min_gc_age: 0, sample_types: nil, class_names: nil)
      encode(false, gc, min_gc_age, sample_types, class_names)
    end

    # Starts, yields, flushes, stops. In fixed mode also where the collector's is burst, at a rate of 0.01: a block is over
    # too soon for that. It stops also when the block raises or is left, and the exception goes on.
    #
    # @param threads [Symbol, nil] +:all+ or +:current+, for this run alone; nil: as the collector has it
    # @param gc [Boolean] see {#flush}: without it garbage that is not collected yet counts as retained
    # @param min_gc_age [Integer] see {#flush}
    # @param sample_types [Symbol, Array<Symbol>, nil] see {#flush}
    # @param class_names [Symbol, nil] see {#flush}
    # @return (see #flush)
    # @raise [StateError] if the collector is running: it goes on, the block is not called
    # @raise [ArgumentError] without a block
    # @raise [TypeError, ArgumentError] if an option is something else; the block is not called
    # @example What one request allocates, in a server with many threads
    #   collector.profile(threads: :current) { app.call(env) }
    # @example What a piece of work leaves behind
    #   collector.profile(gc: true) { work }
    def profile(threads: nil, gc: false, min_gc_age: 0, sample_types: nil, class_names: nil, &block)
      raise ArgumentError, "profile needs a block" unless block

      Options.check(:gc, gc)
      Options.check(:min_gc_age, min_gc_age)
      flush_options = { gc: gc || nil, min_gc_age: min_gc_age.zero? ? nil : min_gc_age,
                        sample_types: Options.check_formats(sample_types),
                        class_names: Options.override(:class_names, class_names, nil) }.compact
      profile_native(Options.override(:threads, threads, @threads), flush_options, &block)
    end

    private

    def initialize_copy(_other) = raise(TypeError, "a collector cannot be copied")

    # A program may make warnings raise: then this is no start.
    def warn_of_fallback(reason)
      warned = false
      warn "#{self.class}: a fixed rate of #{DEFAULT_SAMPLE_RATE} instead of in bursts, for #{reason}"
      warned = true
    ensure
      stop! unless warned
    end

    def encode(delta, gc, min_gc_age, sample_types, class_names)
      Options.check(:gc, gc)
      Options.check(:min_gc_age, min_gc_age)
      formats = Options.check_formats(sample_types) || @sample_types
      one = Symbol === formats
      class_names = Options.override(:class_names, class_names, @class_names)
      encodings = (one ? [formats] : formats).map { |format| [format, class_names || (format == :go ? :off : :label)] }
      data, = all = flush_native(delta, gc, min_gc_age, encodings)
      one ? data : all
    end
  end
end
