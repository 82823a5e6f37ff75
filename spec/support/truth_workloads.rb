# frozen_string_literal: true

require "objspace"

# Programs whose allocations are known by site, of the kinds on which a sampler that looks at certain times goes wrong.
# Each runs for so many seconds of CPU time and gives a counter, which knows how many objects each site has allocated and
# has those that are kept. A site is a method of that name in Sites.
module TruthWorkloads
  # One kind. `sites`: the methods that allocate; `native_call`: longest run of allocations without a safe point.
  Workload = Struct.new(:name, :sites, :body, :native_call, keyword_init: true) do
    # @return [Counter]
    def run(seconds) = Counter.new(sites).tap { |counter| body.call(counter, seconds) }

    # @return [void]
    def prepare = nil
  end

  # Counts while it allocates.
  class Counter
    attr_reader :counts

    def initialize(sites)
      @counts = sites.to_h { |site| [site, 0] }
      @rings = Hash.new { |rings, site| rings[site] = [] }
    end

    # @return [Hash{Symbol=>Hash{Symbol=>Integer}}] by type of value, then by site. What is retained: where anything is kept
    def truth
      return { allocations: counts } if @rings.empty?

      { allocations: counts, retained_objects: @rings.transform_values(&:size),
        retained_size: @rings.transform_values { |ring| ring.sum { |object| ObjectSpace.memsize_of(object) } } }
    end

    # @return [Integer] all that the sites have of it
    def whole(type) = truth.fetch(type).values.sum

    # @return [Numeric] what the profile has in place of that: of allocations what it has of the sites, else the same
    def found_whole(data, type)
      type == :allocations ? counts.keys.sum { |site| data.estimate(pattern(site), type: type).value } : whole(type)
    end

    # @return [Regexp]
    def pattern(site) = /#{site}\z/

    # @return [void]
    def at(site, n)
      @counts[site] += Sites.public_send(site, n)
    end

    # One object, in place of the one that the site has kept longest, of so many.
    # @return [void]
    def keep(site, places)
      @rings[site][counts[site] % places] = Sites.public_send(site)
      @counts[site] += 1
    end

    # @return [Boolean] whether this thread has CPU time left, the first call starts the clock
    def more?(seconds)
      now = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      now < (Thread.current[:truth_deadline] ||= now + seconds)
    end

    # @return [void]
    def each_round(seconds)
      Thread.current[:truth_deadline] = nil
      round = 0
      while more?(seconds)
        yield(round)
        round += 1
      end
    end
  end

  # Each allocates as many objects as it returns, or the one that it returns.
  module Sites
    PARTS = [20, 400, 20_000, 200_000].to_h { |n| [n, ("ab " * n).freeze] }.freeze
    private_constant :PARTS

    class << self
      %i[a b c d e].each do |letter|
        class_eval <<~RUBY, __FILE__, __LINE__ + 1
          def site_#{letter}(n)
            left = n
            while left > 0
              Object.new
              left -= 1
            end
            n
          end
        RUBY
      end

      # One object in as long as a hundred take otherwise.
      def site_slow(n)
        left = n
        while left > 0
          Object.new
          i = 0
          i += 1 while i < 400
          left -= 1
        end
        n
      end

      # In one call of native code.
      def site_native(n)
        before = GC.stat(:total_allocated_objects)
        PARTS.fetch(n).split(" ")
        GC.stat(:total_allocated_objects) - before
      end

      def site_object = Object.new

      def site_buffer = "b" * 1_000
    end
  end

  MIXED = ([:site_a] * 60 + [:site_b] * 25 + [:site_c] * 10 + [:site_d] * 4 + [:site_e]).shuffle(random: Random.new(7)).freeze
  private_constant :MIXED

  def self.native(n)
    Workload.new(name: "#{n} objects in one native call", sites: %i[site_native site_b], native_call: n,
                 body: lambda do |counter, seconds|
                   Sites.site_native(n) # GC.stat makes what it needs once
                   counter.each_round(seconds) do
                     counter.at(:site_native, n)
                     counter.at(:site_b, n)
                   end
                 end)
  end
  private_class_method :native

  def self.phase(counter, site, seconds)
    ends = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
    counter.at(site, 20) while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < ends
  end

  # Calls the block with a way to read from a pipe that has something to read after a millisecond only.
  def self.with_slow_pipe
    reader, writer = IO.pipe
    requests = Queue.new
    answering = Thread.new do
      while requests.pop
        sleep(0.001)
        writer.syswrite(".")
      end
    end
    yield(-> { requests.push(true) && reader.getbyte })
  ensure
    requests.close
    answering.join
    [reader, writer].each(&:close)
  end
  private_class_method :with_slow_pipe

  ALL = [
    Workload.new(name: "interleaved sites", sites: %i[site_a site_b site_c site_d site_e],
                 body: lambda do |counter, seconds|
                   counter.each_round(seconds) { MIXED.each { |site| counter.at(site, 1) } }
                 end),
    Workload.new(name: "phases of 50 ms at different speeds", sites: %i[site_slow site_b],
                 body: lambda do |counter, seconds|
                   counter.each_round(seconds) do
                     phase(counter, :site_slow, 0.05)
                     phase(counter, :site_b, 0.05)
                   end
                 end),
    Workload.new(name: "every seventh allocation", sites: %i[site_a site_b],
                 body: lambda do |counter, seconds|
                   counter.each_round(seconds) do
                     100.times do
                       counter.at(:site_a, 6)
                       counter.at(:site_b, 1)
                     end
                   end
                 end),
    Workload.new(name: "locked to 10 ms of CPU time", sites: %i[site_a site_slow],
                 body: lambda do |counter, seconds|
                   counter.each_round(seconds) do
                     phase(counter, :site_a, 0.002)
                     phase(counter, :site_slow, 0.008)
                   end
                 end),
    Workload.new(name: "first allocations after a sleep", sites: %i[site_a site_b],
                 body: lambda do |counter, seconds|
                   counter.each_round(seconds) do
                     sleep(0.001)
                     counter.at(:site_a, 5)
                     counter.at(:site_b, 20_000)
                   end
                 end),
    Workload.new(name: "first allocations after I/O", sites: %i[site_a site_b],
                 body: lambda do |counter, seconds|
                   with_slow_pipe do |read|
                     counter.each_round(seconds) do
                       read.call
                       counter.at(:site_a, 5)
                       counter.at(:site_b, 20_000)
                     end
                   end
                 end),
    Workload.new(name: "four threads", sites: %i[site_a site_b site_c site_slow],
                 body: lambda do |counter, seconds|
                   shares = { site_a: 4, site_b: 2, site_c: 1, site_slow: 1 }
                   threads = shares.map do |site, share|
                     Thread.new { counter.each_round(seconds * share / 8.0) { counter.at(site, 50) } }
                   end
                   threads.each(&:join)
                 end),
    native(20), native(400), native(20_000), native(200_000),
    Workload.new(name: "young garbage beside a growing heap", sites: %i[site_a site_b site_slow],
                 body: lambda do |counter, seconds|
                   kept = []
                   counter.each_round(seconds) do |round|
                     counter.at(:site_a, 900)
                     counter.at(:site_b, 90)
                     counter.at(:site_slow, 10)
                     kept << round.to_s if (round % 10).zero?
                   end
                 end),
    # Rings that live for some tenths of a second of CPU time: long beside the time between windows, short beside a run.
    Workload.new(name: "retained memory in steady state", sites: %i[site_slow site_object site_buffer],
                 body: lambda do |counter, seconds|
                   counter.each_round(seconds) do
                     counter.at(:site_slow, 40)
                     20.times { counter.keep(:site_object, 40_000) }
                     10.times { counter.keep(:site_buffer, 10_000) }
                   end
                 end)
  ].freeze
end
