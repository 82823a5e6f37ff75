# frozen_string_literal: true

module Model
  # Where a program runs: its collectors, what it holds, and what is known of both. Every reading is checked.
  class World
    include Checks

    SLOTS = 3

    # @return [Array<Expected, nil>] the collectors that the program can name
    attr_reader :slots

    # @return [Array<Batch>] what it holds
    attr_reader :batches

    # @return [String] a folder for files
    attr_reader :folder

    # @return [Array<Array>] for Sums
    attr_reader :findings

    # @return [Array<Array(Integer, String)>] every profile and the step that it came at
    attr_reader :profiles

    # @return [Array, nil] the last profile, what it has, and of whom
    attr_accessor :last

    # @param progress [#call] told the number of each step before it is done
    def initialize(folder, progress)
      @folder = folder
      @progress = progress
      @slots = Array.new(SLOTS)
      @orphans = []
      @in_finalizer = false
      @batches = []
      @findings = []
      @profiles = []
    end

    # @raise [Mismatch]
    def perform(steps)
      steps.each do |step|
        @progress.call(@at = step.number)
        OPERATIONS.fetch(step.name).run.call(self, step)
      end
    end

    # From here on.
    def deaths_may_be_missed! = @missed_deaths = true

    # Checks every collector a last time, running or not, and ends it.
    # @raise [Mismatch]
    def finish
      @progress.call(@at = 0)
      everyone.each { |expected| finish_one(expected) }
    end

    # @return [Array<Expected>] those whose collectors certainly exist
    def everyone = [*@slots.compact, *@orphans.select(&:running?)]

    # The program no longer refers to it; if it runs it goes on.
    def abandon(slot)
      expected = @slots[slot] or return
      @slots[slot] = nil
      @last = nil
      expected.forget
      @orphans << expected if expected.running?
    end

    # @param stress [Boolean] with a collection at each allocation of the site
    def allocate(site, n, keep:, stress: false)
      watching = everyone.select { |expected| expected.running? && expected.run.covers?(Thread.current) }.map(&:run)
      before = GC.count
      GC.stress = stress
      objects = Sites.public_send(site, n)
      GC.stress = false
      expect "objects made", objects.size, n
      watching.each { |run| run.allocated(Sites.counts(site, n)) }
      keep ? @batches << Batch.new(site, objects, watching, before..GC.count) : objects.clear
    end

    def start(expected)
      expect "start!", expected.collector.start!, !expected.running?
      expected.began(expected.collector.stats, Thread.current) unless expected.running?
      check_state(expected)
    end

    def stop(expected, gc: false)
      kept = kept_of(expected.run) if expected.running?
      expect "stop!", expected.collector.stop!(gc: gc), expected.running?
      expected.ended(kept) if expected.running?
      check_state(expected)
    end

    # Where it is to be in one format, it is in both.
    # @param options [Hash] of the flush or snapshot
    def read(expected, delta: true, **options)
      before = expected.collector.stats
      @collections = GC.count
      other = { memprofiler: :go, go: :memprofiler }[options[:sample_types]]
      formats = other ? { sample_types: [options[:sample_types], other] } : {}
      data, second = expected.collector.public_send(delta ? :flush : :snapshot, **options, **formats)
      observed = check_profile(expected, data, before, delta: delta, **options)
      check_same(observed, second, other, options[:class_names]) if other
      @last = [data, observed, expected]
      observed
    end

    # What became of a call that an exception or a kill has struck: all of it or nothing.
    # @param call [Symbol]
    # @param thread [Thread] that made it
    # @param outcome [Symbol] of a flush: :done, :undone or :unknown
    def settle(expected, call, thread, outcome)
      stats = expected.collector.stats
      check_outcome(expected, call, stats)
      if stats[:run] != expected.run&.number.to_i && stats[:state] != :new && begins?(call) && anew?(expected, stats)
        expected.began(stats, thread)
        expected.run.maybe_flushed! if call == :profile
      elsif %i[flush flush_gc write].include?(call) && expected.run
        expected.run.maybe_flushed! unless outcome == :undone && call != :write
        expected.run.flushed!(expected.run.totals.dup) if outcome == :done
      end
      expected.ended(kept_of(expected.run)) if expected.running? && stats[:state] == :stopped
      check_state(expected)
    end

    def in_finalizer
      before = @in_finalizer
      @in_finalizer = true
      yield
    ensure
      @in_finalizer = before
    end

    def in_finalizer? = @in_finalizer

    # In the child of a fork.
    def forked
      everyone.each(&:forked)
    end

    # @return [Hash] what of a run's objects is certainly there
    def kept_of(run) = counts(@batches.select { |batch| batch.runs.include?(run) })

    # @return [Hash] the same of those that had survived so many collections before the last reading
    def aged_of(run, collections)
      counts(@batches.select { |batch| batch.runs.include?(run) && @collections - batch.born.max > collections })
    end

    def size_of(run, key)
      @batches.sum { |batch| batch.runs.include?(run) && batch.counts.key?(key) ? batch.size(key) : 0 }
    end

    # @raise [Mismatch] unless the block raises that, naming the text
    def refused(error, text)
      yield
    rescue Exception => e # whatever it is
      raise unless e.is_a?(StandardError) && !e.is_a?(Mismatch)

      expect "what is raised", e.class.equal?(error) || e
      expect "its message", e.message, /#{Regexp.escape(text)}/
    else
      raise Mismatch, "nothing raised, where #{error} was due for #{text}"
    end

    public :aside, :expect, :check_state, :check_stats, :check_profile

    private

    def counts(batches) = batches.map(&:counts).reduce({}) { |sum, more| sum.merge(more) { |_, a, b| a + b } }

    def begins?(call) = %i[start profile].include?(call)

    def anew?(expected, stats) = expected.run.nil? || stats[:run] > expected.run.number

    def check_outcome(expected, call, stats)
      before = expected.state
      allowed = case call
                when :start then [before, :running]
                when :stop, :stop_gc then before == :running ? %i[running stopped] : [before]
                when :profile then before == :running ? [:running] : [before, :stopped]
                else [before]
                end
      expect "state after #{call} was struck, which was #{before}", allowed.include?(stats[:state]) || stats[:state]
    end

    def finish_one(expected)
      expected.remember
      if expected.running?
        retained = read(expected, gc: true, class_names: :label)
        note_retained(expected, retained, expected.collector.stats)
        stop(expected)
      else
        check_state(expected)
      end
      return unless expected.run

      read(expected)
      whole = read(expected, delta: false, class_names: :label)
      check_sum(expected, whole)
      note_statistics(expected, whole, expected.collector.stats)
      again = read(expected)
      expect "allocations of a second flush after the end", again.total(0), 0
    end
  end
end
