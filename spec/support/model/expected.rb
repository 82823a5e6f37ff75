# frozen_string_literal: true

module Model
  # What a profile has of the sites. It looks at no more than that, for what it allocates is in the next profile.
  class Observed
    # @return [Array<String>] names of the values
    attr_reader :types

    # @return [Integer] samples in it
    attr_reader :rows

    def initialize(data, class_names)
      @message = ProfileReader::MESSAGE.decode(Zlib.gunzip(data.pprof_data))
      @strings = @message.string_table
      @types = @message.sample_type.map { |type| @strings[type.type] }
      @class_names = class_names
      @rows = @message.sample.size
      @totals = Array.new(@types.size, 0)
      @sites = Hash.new { |sums, site| sums[site] = [0, 0, 0, 0] }
      @sums = Hash.new { |sums, key| sums[key] = [0, 0, 0, 0] }
      add_samples(sites_by_location)
      @message = @strings = nil
    end

    # @return [Integer] what all samples have of the n-th value
    def total(index) = @totals.fetch(index)

    # @return [Array<Integer>] the four values at a site; with class_names: :off the class is nil
    def at(key) = @sums.fetch(key, [0, 0, 0, 0])

    # @return [Array<Integer>] what a site has, of whatever class
    def whole(site) = @sites.fetch(site, [0, 0, 0, 0])

    # @return [Array] those that have any
    def keys = @sums.keys

    private

    def sites_by_location
      functions = @message.function.to_h { |function| [function.id, Sites::FRAMES[@strings[function.name]]] }
      @message.location.each_with_object({}) do |location, sites|
        site = functions[location.line[0].function_id]
        sites[location.id] = site if site
      end
    end

    def add_samples(sites)
      @message.sample.each do |sample|
        values = sample.value.to_a
        values.each_with_index { |value, index| @totals[index] += value }
        next if sites.empty?

        locations = sample.location_id
        first = locations.find { |id| sites.key?(id) }
        add(sites[first], class_of(sample, locations), values) if first
      end
    end

    def add(site, class_name, values)
      values.each_with_index { |value, index| @sites[site][index] += value }
      return if class_name && !Sites.classes(site).include?(class_name) # the VM's own, now and then

      sums = @sums[[site, class_name]]
      values.each_with_index { |value, index| sums[index] += value }
    end

    def class_of(sample, locations)
      case @class_names
      when :label then sample.label[0] && @strings[sample.label[0].str]
      when :frame
        function = @message.location[locations[0] - 1].line[0].function_id # ids are places in the list
        @strings[@message.function[function - 1].name]
      end
    end
  end

  # What one run of a collector has seen of the sites.
  class Run
    # @return [Float, nil] nil in bursts
    attr_reader :rate

    # @return [Integer] number that the collector's stats give it
    attr_reader :number

    # @return [Hash{Array=>Integer}] allocations by site and class, since the start
    attr_reader :totals

    # @return [Array<Hash>] what they may have been at the last flush: more than one where it was interrupted
    attr_reader :bases

    # @return [Hash{Array=>Integer}] most that can be retained
    attr_reader :most

    # @return [Hash{Array=>Integer}, nil] least that is retained of a run that is over
    attr_reader :least

    # @return [Integer] sum of the totals of the flushes, as far as they are known
    attr_accessor :flushed

    # @return [Integer] flushes
    attr_accessor :flushes

    # @return [Time, nil] where the last interval ended, if that is known
    attr_accessor :interval_end

    # @return [Hash, nil] retained by site and class, as a profile after the end has said
    attr_accessor :settled

    # @return [Integer] objects that the VM had moved before
    attr_reader :moved

    def initialize(rate, number, thread)
      @rate = rate
      @number = number
      @thread = thread
      @totals = Hash.new(0)
      @most = Hash.new(0)
      @bases = [{}]
      @flushed = @flushes = 0
      @whole = true
      @moved = GC.stat.fetch(:total_moved_objects, 0)
    end

    def exact? = @rate == 1

    # @return [Boolean] whether allocations of that thread are its own to count
    def covers?(thread) = @thread.nil? || @thread.equal?(thread)

    def allocated(counts)
      counts.each do |key, n|
        @totals[key] += n
        @most[key] += n
      end
    end

    # @return [Boolean] whether every flush came back
    def whole? = @whole

    def flushed!(base) = @bases = [base]

    # A flush was struck: nobody knows whether it was done.
    def maybe_flushed!
      @whole = false
      @interval_end = nil
      @bases = [*@bases, @totals.dup].uniq
    end

    def over!(least) = @least = least

    # @return [Boolean]
    def over? = !@least.nil?
  end

  # A collector and what is known of it without asking it.
  class Expected
    # @return [Hash] what it was made with
    attr_reader :options

    # @return [Symbol] :new, :running or :stopped
    attr_reader :state

    # @return [Run, nil] the current or last one
    attr_reader :run

    def initialize(collector, options)
      @collector = collector
      @id = collector.object_id
      @options = options
      @state = :new
    end

    # @return [MemprofilerPprof::Collector] found again if it was forgotten
    # @raise [Mismatch] if it is gone, though it runs
    def collector = found || raise(Mismatch, "a running collector is gone")

    # @return [MemprofilerPprof::Collector, nil] the same for who may come too late
    def found
      @collector || ObjectSpace.each_object(MemprofilerPprof::Collector).find { |candidate| candidate.object_id == @id }
    end

    # Nothing of the program refers to it from now on.
    def forget = @collector = nil

    # It will be asked after its end.
    def remember = @collector = collector

    def running? = @state == :running

    def burst? = @options[:mode] == :burst

    def raw? = @options.fetch(:raw_counts, false)

    def liveness = @options.fetch(:liveness, :auto)

    # Whether a row can be told by its site at all.
    def deep? = @options.fetch(:max_stack_depth, 512) >= 16

    # Whether its limits are far from what a program here can reach.
    def roomy? = %i[max_heap_samples max_allocation_samples memory_limit].none? { |limit| @options.key?(limit) }

    # @param stats [Hash] for what chance decides: the number of the run, and whether there is a timer for bursts
    def began(stats, thread, threads: nil)
      rate = stats.fetch(:sample_rate) # nil in bursts
      thread = nil if (threads || @options.fetch(:threads, :all)) == :all
      @run = Run.new(rate, stats.fetch(:run), thread)
      @state = :running
    end

    # A child of a fork goes on from zero, with the thread that it was told.
    def forked
      return unless running?

      thread = @run.covers?(nil) ? nil : Thread.current
      covered = thread.nil? || @run.covers?(thread)
      @run = Run.new(@run.rate, collector.stats.fetch(:run), covered ? thread : Object.new)
    end

    # @param least [Hash] what is certainly retained
    def ended(least)
      @state = :stopped
      @run.over!(least)
    end
  end
end
