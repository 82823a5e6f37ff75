# frozen_string_literal: true

require "etc"

module Bench
  # Median and quartiles of repeated measurements.
  Spread = Struct.new(:low, :median, :high, :n, keyword_init: true) do
    def self.of(values)
      sorted = Array(values).sort
      new(low: quantile(sorted, 0.25), median: quantile(sorted, 0.5), high: quantile(sorted, 0.75), n: sorted.size)
    end

    # By linear interpolation between neighbours.
    def self.quantile(sorted, fraction)
      place = fraction * (sorted.size - 1)
      below = sorted[place.floor]
      below + ((sorted[place.ceil] - below) * (place - place.floor))
    end
  end

  module_function

  def median(values)
    Spread.of(values).median
  end

  # Measures several variants in turn, in short rounds, each starting with another one, so that what else the machine
  # does meets all of them alike.
  #
  # @param variants [Array] of anything
  # @yieldparam variant
  # @yieldreturn [Float] its cost in this round
  # @return [Hash{Object=>Array<Float>}] costs of each variant, one a round
  def interleave(variants, rounds:)
    costs = variants.to_h { |variant| [variant, []] }
    rounds.times do |round|
      variants.rotate(round).each { |variant| costs[variant] << yield(variant) }
    end
    costs
  end

  # @return [Array<Float>] the ratio in each round
  def ratios(costs, reference)
    costs.zip(reference).map { |cost, base| cost / base }
  end

  def wall_clock
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # CPU seconds of the process, all threads. Not by CLOCK_PROCESS_CPUTIME_ID: it lags while a timer runs on that clock.
  def process_cpu_clock
    Process.clock_gettime(:GETRUSAGE_BASED_CLOCK_PROCESS_CPUTIME_ID)
  end

  # CPU seconds of this thread while the block runs.
  def cpu_seconds
    start = thread_cpu_clock
    yield
    thread_cpu_clock - start
  end

  def thread_cpu_clock
    Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  end

  # @return [Integer] bytes of this process in memory
  def resident_bytes
    File.read("/proc/self/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE)
  end
end
