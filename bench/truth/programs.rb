# frozen_string_literal: true

require_relative "../support/workloads"
require_relative "../support/gems"

# Programs of libraries, whose truth is what rate 1 says of one round of them: what methods allocate, with all that they
# call. Nothing of the estimator was chosen by them.
module TruthPrograms
  NAMES = %w[JSON Rack ORM].freeze
  ROUNDS = 20 # the ORM's pages come round
  SITES = 6
  SHARES = (0.01..0.8).freeze

  # A round's allocations, by method and in all.
  Round = Struct.new(:whole, :sites)

  # What so many rounds have allocated.
  Counter = Struct.new(:round, :n_rounds) do
    # @return [Hash{Symbol=>Hash{String=>Float}}]
    def truth = { allocations: round.sites.transform_values { |n| n * n_rounds } }

    # @return [Float] of which these are parts
    def whole(_type) = round.whole * n_rounds

    # @return [Float] what the profile has in place of that
    def found_whole(data, type) = data.estimate(/./, type: type).value

    # @return [Regexp]
    def pattern(site) = /\A#{Regexp.escape(site)}\z/
  end

  # One library at work.
  class Program
    # @return [String]
    attr_reader :name

    def initialize(workload)
      @name = "#{workload.name}, as a library has it"
      @workload = workload
    end

    # @return [Counter]
    def run(seconds)
      prepare
      ending = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
      n_rounds = 0
      while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < ending
        ROUNDS.times { @unit.call }
        n_rounds += ROUNDS
      end
      Counter.new(@round, n_rounds)
    end

    # Before the first run: so that nothing but the rounds is in it.
    # @return [void]
    def prepare
      @round ||= look_closely
    end

    private

    def look_closely
      @unit = @workload.prepare.call
      (2 * ROUNDS).times { @unit.call }
      collector = MemprofilerPprof::Collector.new(sample_rate: 1, liveness: :none)
      data = collector.profile { ROUNDS.times { @unit.call } }
      samples = MemprofilerPprof::ProfileReader.read(data.pprof_data).samples
      counts = Hash.new(0)
      samples.each do |sample|
        sample.stack.map(&:name).uniq.each { |name| counts[name] += sample.values.fetch("allocations") }
      end
      whole = samples.sum { |sample| sample.values.fetch("allocations") }
      Round.new(whole.fdiv(ROUNDS), choose(counts, whole).transform_values { |n| n.fdiv(ROUNDS) })
    end

    # Of methods that allocate as much one, spread over the shares that there are.
    def choose(counts, whole)
      found = counts.select { |_, n| SHARES.cover?(n.fdiv(whole)) }.sort_by { |name, n| [-n, name] }
      found = found.uniq(&:last)
      step = [found.size.fdiv(SITES), 1].max
      Array.new([SITES, found.size].min) { |i| found[(i * step).floor] }.to_h
    end
  end

  # @return [Array<Program>] those whose libraries are to be had; what is missing is told
  def self.all
    Bench::Workloads.all.select { |workload| NAMES.include?(workload.name) }.filter_map do |workload|
      lack = Bench::Gems.need(*workload.gems)
      lack ? warn("#{workload.name}: #{lack}") : Program.new(workload)
    end
  end
end
