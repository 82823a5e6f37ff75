# frozen_string_literal: true

module Model
  # The product did not do what the model says.
  Mismatch = Class.new(StandardError)

  # Compares what a collector says with what is known.
  module Checks
    # Objects that the machine's stack may still refer to after they were let go, for each site.
    SLACK = 12

    # Objects of other classes that the VM may make at a site (3.1: a Hash, within finalizers).
    STRAY = 3

    private

    def expect(text, actual, expected = true)
      raise Mismatch, "#{text}: #{actual.inspect}, not #{expected.inspect}" unless expected === actual
    end

    # In the handler of a signal Zlib cannot be used.
    def aside(&block) = Thread.new(&block).tap { |thread| Waiting.join(thread) }.value

    def check_state(expected)
      expect "running?", expected.collector.running?, expected.running?
      check_stats(expected)
    end

    # @return [Hash] the stats
    def check_stats(expected)
      stats = expected.collector.stats
      expect "stats[:state]", stats[:state], expected.state
      if expected.run
        expect "stats[:run]", stats[:run], expected.run.number
        expect "stats[:mode]", stats[:mode], expected.run.rate ? :fixed : :burst
        check_balance(expected, stats)
      else
        expect "allocations of a collector that never ran", stats[:allocations].values.uniq, [0]
      end
      check_bounds(expected, stats)
      stats
    end

    def check_bounds(expected, stats)
      memory = stats[:memory]
      expect "memory", memory[:total], 0..memory[:limit]
      expect "peak of memory", memory[:peak], memory[:total]..memory[:limit]
      expect "live samples", stats[:live_samples], 0..expected.options.fetch(:max_heap_samples, 100_000)
      expect "live samples, of all", stats[:live_samples], 0..stats[:samples]
      expect "rows", stats[:rows], 0..expected.options.fetch(:max_allocation_samples, 100_000)
      missed_deaths = @missed_deaths || moved_back?(expected.run, stats)
      expect "untracked, with one Ractor", stats[:dropped_samples][:untracked], 0 unless missed_deaths
      return unless expected.roomy? && stats[:samples] < 90_000

      expect "dropped with room for all #{stats[:dropped_samples]}", stats[:dropped_samples].values.sum, 0 unless missed_deaths
      expect "evicted with room for all", stats[:evicted_rows], 0
      expect "thinned with room for all", stats[:live_thinning], 1.0
    end

    # What compaction puts back looks like deaths that were not told, and in bursts nothing says that it is no such thing.
    def moved_back?(run, stats)
      stats[:mode] == :burst && stats[:liveness] == :free_hook && moved_in(run).positive?
    end

    def moved_in(run) = RUBY_VERSION >= "3.4" && run ? GC.stat(:total_moved_objects) - run.moved : 0

    # Every allocation that the VM counts is one of those that the collector tells of.
    def check_balance(expected, stats)
      run = expected.run
      allocations = stats[:allocations]
      sum = allocations.except(:vm).values.sum
      certain = allocations.values_at(:own, :other_ractor, :unseen).sum
      expect "unseen", allocations[:unseen], 0..moved_in(run)
      if run.rate.nil? || run.exact?
        expect "sum of #{allocations}", sum, allocations[:vm]
      else
        samples = (sum - certain) * (expected.raw? ? 1 : run.rate)
        expect "samples of #{allocations} being likely at #{run.rate}",
               Statistics.likely?(samples.round, allocations[:vm] - certain, run.rate)
      end
    end

    # @param delta [Boolean] whether it was a flush, not a snapshot
    # @param before [Hash] stats before it
    # @return [Observed]
    def check_profile(expected, data, before, delta:, gc: false, min_gc_age: 0, class_names: nil, sample_types: nil)
      types = sample_types || expected.options.fetch(:sample_types, :memprofiler)
      names = class_names || expected.options[:class_names] || (types == :go ? :off : :label)
      observed = aside { Observed.new(data, names) }
      check_form(data, observed, types)
      return check_empty(observed) && observed unless expected.run

      check_totals(expected, data, observed, before, delta)
      check_interval(expected, data, delta)
      check_sites(expected, observed, delta, gc, min_gc_age, names) if expected.deep? && expected.run.rate
      note_flush(expected, data, observed) if delta
      observed
    end

    TYPES = { memprofiler: %w[allocations allocation_size retained_objects retained_size],
              go: %w[alloc_objects alloc_space inuse_objects inuse_space] }.freeze
    private_constant :TYPES

    def check_form(data, observed, types)
      @profiles << [@at, data.pprof_data] # read by all the rules when the program is over, and nothing watches
      expect "sample types", observed.types, TYPES.fetch(types)
      expect "frozen", [data, data.pprof_data, data.dropped_samples].all?(&:frozen?)
    end

    # What a flush gave, in another format.
    def check_same(observed, data, types, class_names)
      same = aside { Observed.new(data, class_names || (types == :go ? :off : :label)) }
      check_form(data, same, types)
      4.times { |i| expect "total of value #{i} in both formats", same.total(i), (observed.total(i) - 1)..(observed.total(i) + 1) }
    end

    def check_empty(observed)
      expect "samples of a collector that never ran", observed.rows, 0
      true
    end

    def check_totals(expected, data, observed, before, delta)
      stats = check_stats(expected)
      total = observed.total(0)
      counted = [before, stats].map { |reading| reading[:allocations].values_at(:counted, :dropped).sum }
      unless delta || (expected.run.rate.nil? && expected.running?) # then the next window may say less, or more
        slack = expected.run.rate ? 0 : 2 # estimates are rounded each for itself
        low, high = expected.running? ? counted : counted.minmax
        low = 0 if expected.run.rate.nil? && total.zero? # before the first window, nothing is known
        expect "total of the snapshot", total, (low - slack)..(high + slack)
      end
      if expected.run.rate.nil? || expected.run.exact?
        expect "total of the profile", total, 0..(stats[:allocations][:vm] + 2)
      end
      return unless expected.run.rate && stats[:dropped_samples].values.sum.zero?

      scale = expected.raw? ? 1 : expected.run.rate
      expect "allocation_samples_count", data.allocation_samples_count, (total * scale).round
      return unless stats[:live_thinnings].zero?

      expect "heap_samples_count", data.heap_samples_count, (observed.total(2) * scale).round
    end

    def check_interval(expected, data, delta)
      expect "duration", data.duration, (0.0..)
      return unless delta && expected.run.interval_end

      gap = (data.started_at - expected.run.interval_end).abs
      expect "gap between intervals", gap, 0.0..0.02
    end

    # @return [Boolean] whether every sample is where it was made: nothing was dropped or folded
    def complete?(stats) = stats[:dropped_samples].values.sum.zero? && stats[:evicted_rows].zero?

    def check_sites(expected, observed, delta, gc, min_gc_age, names)
      stats = expected.collector.stats
      scale = expected.raw? ? 1 : expected.run.rate
      if expected.run.exact? && complete?(stats)
        check_exact_allocations(expected.run, observed, delta, names)
      else
        check_likely_allocations(expected.run, observed, scale, complete?(stats), names)
      end
      return check_none_retained(observed) if expected.liveness == :none
      return unless stats[:live_thinnings].zero?

      check_retained(expected, observed, scale, complete?(stats), gc && expected.running?, min_gc_age, names)
    end

    # With class_names: :off a profile tells sites alone.
    def fold(counts, names)
      return counts unless names == :off

      counts.each_with_object(Hash.new(0)) { |((site, _), n), sums| sums[[site, nil]] += n }
    end

    def keys(names)
      return Sites::NAMES.map { |site| [site, nil] } if names == :off

      Sites::NAMES.flat_map { |site| Sites.counts(site, 1).keys }
    end

    def check_exact_allocations(run, observed, delta, names)
      stray = names == :off ? 0..STRAY : 0..0
      wrong = (delta ? run.bases : [{}]).map do |base|
        due = fold(run.totals.to_h { |key, n| [key, n - base.fetch(key, 0)] }, names)
        keys(names).to_h { |key| [key, { due: due.fetch(key, 0), told: observed.at(key)[0] }] }
                   .reject { |_, counts| stray.cover?(counts[:told] - counts[:due]) }
      end
      expect "wrong allocations at sites, for each way that flushes may have gone", wrong.any?(&:empty?) || wrong
      observed.keys.each do |key|
        count, size = observed.at(key)
        expect "allocation_size of #{count} at #{key}", size, ((count * 40)..)
      end
    end

    def difference(expected, actual)
      (expected.keys | actual.keys).reject { |key| expected[key] == actual[key] }.to_h { |key| [key, expected[key]] }
    end

    def check_likely_allocations(run, observed, scale, complete, names)
      fold(run.totals, names).each do |key, n|
        samples = (observed.at(key)[0] * scale).round
        expect "samples at #{key}, of #{n}", samples, 0..(n + STRAY)
      end
      return unless complete && names != :off

      expect "sites where nothing was allocated", observed.keys - fold(run.totals, names).keys, []
    end

    def check_none_retained(observed)
      expect "retained without liveness", [observed.total(2), observed.total(3)], [0, 0]
    end

    # What is kept is retained; what was let go is not once a collection has said so.
    def check_retained(expected, observed, scale, complete, collected, min_gc_age, names)
      run = expected.run
      kept = run.over? ? run.least : kept_of(run)
      most = collected ? run.most.to_h { |key, n| [key, [n, kept.fetch(key, 0) + SLACK].min] } : run.most
      least = min_gc_age.zero? ? kept : (run.over? ? {} : aged_of(run, min_gc_age))
      low = run.exact? && complete ? fold(least, names) : {}
      high = fold(most, names)
      stray = names == :off ? STRAY : 0
      keys(names).each do |key|
        retained = (observed.at(key)[2] * scale).round
        range = low.fetch(key, 0)..(high.fetch(key, 0) + stray)
        expect "retained at #{key}#{" after a collection" if collected}", retained, range
      end
      check_settled(run, observed) if run.over? && min_gc_age.zero? && names != :off
      return unless run.exact? && complete && min_gc_age.zero? && names != :off

      check_sizes(run, observed, kept) if collected
      most.each_key { |key| run.most[key] = [most[key], observed.at(key)[2]].min }
    end

    def check_settled(run, observed)
      retained = keys(:label).to_h { |key| [key, observed.at(key).values_at(2, 3)] }
      run.settled ||= retained
      expect "retained after the end", difference(run.settled, retained), {}
    end

    # Sizes are of the moment of the flush.
    def check_sizes(run, observed, kept)
      kept.each do |key, n|
        _, _, retained, size = observed.at(key)
        next unless retained == n

        expect "retained_size at #{key}", size, size_of(run, key)
      end
    end

    def note_flush(expected, data, observed)
      run = expected.run
      run.flushed!(run.totals.dup)
      run.flushed += observed.total(0)
      run.flushes += 1
      run.interval_end = data.started_at + data.duration
    end

    # The flushes of a run that is over add up to its snapshot.
    def check_sum(expected, observed)
      run = expected.run
      return unless run.whole? && run.rate

      slack = run.exact? ? 0 : run.flushes + 1 # each is rounded for itself
      expect "sum of #{run.flushes} flushes", run.flushed, (observed.total(0) - slack)..(observed.total(0) + slack)
    end

    # What only many programs together can tell.
    def note_statistics(expected, observed, stats)
      run = expected.run
      return unless complete?(stats) && expected.deep? && observed

      if run.rate.nil?
        windows, samples = stats[:burst] ? stats[:burst].values_at(:windows, :prelude_samples) : [0, 0]
        enough = windows >= 10 || samples >= 40
        @findings << [:burst, observed_at_sites(observed), run.totals.values.sum] if enough
      elsif !run.exact?
        scale = expected.raw? ? 1 : run.rate
        @findings << [:draws, "allocations", run.rate, (observed_at_sites(observed) * scale).round, run.totals.values.sum]
      end
    end

    def observed_at_sites(observed) = observed.keys.sum { |key| observed.at(key)[0] }

    # After a collection, of the sites where the run saw nothing let go.
    def note_retained(expected, observed, stats)
      run = expected.run
      return unless complete?(stats) && expected.deep? && run.rate && expected.liveness != :none

      kept = fold(kept_of(run), :off)
      whole = kept.select { |(site, _), n| fold(run.totals, :off)[[site, nil]] == n }
      estimated = observed.keys.select { |site, _| whole.key?([site, nil]) }.sum { |key| observed.at(key)[2] }
      if stats[:live_thinnings].zero?
        scale = expected.raw? ? 1 : run.rate
        @findings << [:draws, "retained", run.rate, (estimated * scale).round, whole.values.sum] unless run.exact?
      elsif run.exact? && stats[:live_thinnings] <= 12
        @findings << [:thinned, estimated, whole.values.sum, 2**stats[:live_thinnings]]
      end
    end
  end
end
