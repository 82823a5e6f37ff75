# encoding: UTF-8
# frozen_string_literal: true

require_relative "estimate"

module MemprofilerPprof
  # How estimates come out of one profile. Samples of fixed mode are independent of each other, so their number says how
  # well a sum is known; those of burst mode come in windows, so it is the spread between groups of windows; but for those
  # of its prelude.
  # @api private
  class Estimator
    # @param data [ProfileData]
    # @param live_thinning [Float, nil] share of the live samples that thinning has left; nil: none were followed
    # @param spread [Hash, nil] in burst mode, what the flush knows of the windows
    def initialize(data, live_thinning, spread)
      @sample_rate = data.sample_rate
      @live_thinning = live_thinning
      @spread = spread
      @profile = ProfileReader.read(spread ? spread.fetch(:pprof_data) : data.pprof_data)
    end

    # @return [Estimate]
    # @raise [ArgumentError] if the profile has no such type, or nothing is known of it
    def estimate(pattern, type)
      types = @profile.sample_types.map(&:first)
      index = type.nil? ? types.size - 1 : types.index(type.to_s)
      unless index
        raise ArgumentError, "type must be one of #{types.map(&:inspect).join(", ")}, not #{type.inspect}"
      end
      if index >= 2 && @live_thinning.nil?
        raise ArgumentError, "type must be one of #{types.first(2).map(&:inspect).join(", ")}, not #{types[index].inspect}: " \
                             "with liveness: :none nothing is known of what is retained"
      end

      samples = @profile.samples.select { |sample| matches?(sample, pattern) }
      numbers = @spread ? of_bursts(samples, types, index) : of_draws(samples, types, index)
      value, standard_error, low, high = numbers
      Estimate.new(value: value, standard_error: standard_error, low: low, high: high,
                   unit: @profile.sample_types[index].last)
    end

    private

    def matches?(sample, pattern) = sample.stack.any? { |frame| pattern.match?(frame.name) }

    # Windows and the prelude are told apart by the group of a sample; (dropped) and (evicted) have none.
    def of_bursts(samples, types, index)
      spread = @spread.fetch(index < 2 ? :allocated : :retained)
      early, late = samples.select { |sample| sample.labels["group"] }
                           .partition { |sample| sample.labels["group"] == @spread.fetch(:prelude_group) }
      parts = []
      parts << of_windows(late, types, index, spread) if spread.fetch(:groups).sum.positive?
      parts << of_prelude(early, types, index, spread) if spread.fetch(:prelude).positive?
      bound(parts.first, types, index, spread) if parts.size == 2
      return [0.0, Float::INFINITY, 0.0, Float::INFINITY] if parts.empty?

      parts.inject { |left, right| MemprofilerPprof.__send__(:add_estimates_native, left, right) }
    end

    # What one group of windows says is nothing; but it is no more than windows stand for, as far as they tell.
    def bound(numbers, types, index, spread)
      return if numbers.last.finite?

      whole = @profile.samples.sum do |sample|
        group = sample.labels["group"]
        group && group != @spread.fetch(:prelude_group) ? sample.values.fetch(types[index]) : 0
      end
      numbers[-1] = [whole * spread.fetch(:windows_factor), numbers.first].max
    end

    def of_windows(samples, types, index, spread)
      whole = spread.fetch(:groups)
      unit = index.even? ? 1.0 : mean_size(types, index) # so that part and whole are of one size
      part = sums_by_group(samples, types[index], whole, spread.fetch(:windows_factor)).map { |sum| sum / unit }
      unobserved = spread.fetch(:unobserved)
      numbers = MemprofilerPprof.__send__(:estimate_part_native, part, whole, spread.fetch(:windows),
                                          index < 2 ? unobserved : 0.0, index.even?)
      numbers = numbers.map { |number| number * whole.sum * unit }
      index < 2 ? numbers : widen(numbers, unobserved, @profile.total(types[index]))
    end

    # The values of a profile are rounded: what differs from the whole by no more than that is all of it.
    def sums_by_group(samples, type, whole, factor)
      groups = samples.group_by { |sample| sample.labels["group"] }
      whole.each_with_index.map do |limit, group|
        values = groups.fetch(group, []).map { |sample| sample.values.fetch(type) }
        sum = values.sum * factor
        (limit - sum).abs <= values.size * factor ? limit : sum
      end
    end

    # As in fixed mode, but what the samples stand for is known.
    def of_prelude(samples, types, index, spread)
      rate = spread.fetch(:prelude_rate) * (index < 2 ? 1.0 : @live_thinning)
      numbers = sum_of_draws(samples, types, index, rate, spread.fetch(:prelude_factor))
      return numbers if spread.fetch(:groups).sum.positive?

      widen(numbers, spread.fetch(:unobserved), @profile.total(types[index]))
    end

    # Of what no window has seen as large a share is retained as of the rest, and all of that may be the part's.
    def widen((value, standard_error, low, high), unobserved, retained)
      high = (high * (1 - unobserved)) + (unobserved * retained) if high.finite?
      [value, standard_error, low * (1 - unobserved), [high, value].max]
    end

    def mean_size(types, index)
      count, bytes = @profile.total(types[index - 1]), @profile.total(types[index])
      count.positive? && bytes.positive? ? bytes.to_f / count : 1.0
    end

    # A live sample that thinning might have let go stands for more.
    def of_draws(samples, types, index)
      rate = index < 2 ? @sample_rate : @sample_rate * @live_thinning
      sum_of_draws(samples, types, index, rate, 1.0)
    end

    # Each sample stands for 1 / rate objects: a sum over them varies by the sum of (1 - rate) / rate² × size².
    # @param factor [Float] of the values
    def sum_of_draws(samples, types, index, rate, factor)
      count_type = types[index - index % 2]
      scale = (1 - rate) / rate
      sum = variance = 0.0
      samples.each do |sample|
        value = sample.values.fetch(types[index]) * factor
        sum += value
        count = sample.values.fetch(count_type) * factor
        variance += scale * value * value / count if count.positive?
      end
      MemprofilerPprof.__send__(:estimate_sum_native, sum, variance, scale)
    end
  end
  private_constant :Estimator
end
