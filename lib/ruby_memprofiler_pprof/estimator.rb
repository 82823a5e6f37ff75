# encoding: UTF-8
# frozen_string_literal: true

require_relative "estimate"

module MemprofilerPprof
  # How estimates come out of one profile. Samples of fixed mode are independent of each other, so their number says how
  # well a sum is known; those of burst mode come in windows, so it is the spread between groups of windows.
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
      numbers = @spread ? of_windows(samples, types, index) : of_draws(samples, types, index)
      value, standard_error, low, high = numbers
      Estimate.new(value: value, standard_error: standard_error, low: low, high: high,
                   unit: @profile.sample_types[index].last)
    end

    private

    def matches?(sample, pattern) = sample.stack.any? { |frame| pattern.match?(frame.name) }

    def of_windows(samples, types, index)
      kind = index < 2 ? :allocated : :retained
      whole = @spread.fetch(kind)
      return [0.0, Float::INFINITY, 0.0, Float::INFINITY] if whole.sum.zero?

      part = Array.new(whole.size, 0.0)
      unit = index.even? ? 1.0 : mean_size(types, index) # so that part and whole are of one size
      samples.each do |sample|
        group = sample.labels["group"] # (dropped) and (evicted) have none
        part[group] += sample.values.fetch(types[index]) / unit if group
      end
      unobserved = @spread.fetch(:"#{kind}_unobserved")
      numbers = MemprofilerPprof.__send__(:estimate_part_native, part, whole, @spread.fetch(:"#{kind}_windows"),
                                          kind == :retained ? 0.0 : unobserved, index.even?)
      numbers = numbers.map { |number| number * whole.sum * unit }
      kind == :retained ? widen(numbers, unobserved, @profile.total(types[index])) : numbers
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

    # Each sample stands for 1 / rate objects: a sum over them varies by the sum of (1 - rate) / rate² × size². A live one
    # that thinning might have let go stands for more.
    def of_draws(samples, types, index)
      count_type = types[index - index % 2]
      sum = variance = 0.0
      rate = index < 2 ? @sample_rate : @sample_rate * @live_thinning
      scale = (1 - rate) / rate
      samples.each do |sample|
        value = sample.values.fetch(types[index])
        sum += value
        count = sample.values.fetch(count_type)
        variance += scale * value * value / count if count.positive?
      end
      MemprofilerPprof.__send__(:estimate_sum_native, sum, variance, scale)
    end
  end
  private_constant :Estimator
end
