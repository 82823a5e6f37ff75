# frozen_string_literal: true

require "objspace"

# A program of which every allocation is known, without any that the Ruby version decides on.
module TruthProgram
  class Plain; end
  Pair = Struct.new(:a, :b)
  BIG = 2**100

  class << self
    def plain(n) = times(n) { Plain.new }
    def strings(n) = times(n) { "x" * 1_000 }
    def arrays(n) = times(n) { |i| [i, i] }
    def hashes(n) = times(n) { |i| { a: i } }
    def pairs(n) = times(n) { |i| Pair.new(i, nil) }
    def bignums(n) = times(n) { |i| BIG | i }
    def ranges(n) = times(n) { |i| (i..n) }

    def two_lines(n)
      i = 0
      while i < n
        a = Plain.new
        b = Plain.new if i.even?
        i += 1
      end
      [a, b]
    end

    # @return [Array] what the block gave
    def times(n)
      results = Array.new(n)
      i = 0
      while i < n
        results[i] = yield(i)
        i += 1
      end
      results
    end
  end
end

RSpec.describe "the truth of what is told" do
  kinds = { plain: "TruthProgram::Plain", strings: "String", arrays: "Array", hashes: "Hash",
            pairs: "TruthProgram::Pair", bignums: "Integer", ranges: "Range" }

  describe "at rate 1" do
    it "is exact: counts and sizes by site and class" do
      kept = {}
      data = exact.profile do
        kinds.each_key.with_index(1) { |kind, i| kept[kind] = TruthProgram.public_send(kind, 100 * i) }
      end
      profile = read(data)
      kinds.each.with_index(1) do |(kind, class_name), i|
        expected = { "allocations" => 100 * i, "retained_objects" => 100 * i }
        bytes = kept[kind].sum { |object| ObjectSpace.memsize_of(object) }
        expected["allocation_size"] = expected["retained_size"] = bytes
        if kind == :arrays # the results
          expected["allocations"] += 1
          expected["retained_objects"] += 1
          expected["allocation_size"] += ObjectSpace.memsize_of(kept[kind])
          expected["retained_size"] += ObjectSpace.memsize_of(kept[kind])
        end
        samples = samples_in(profile, "TruthProgram.#{kind}", class_name)
        actual = expected.keys.to_h { |type| [type, samples.sum { |sample| sample.values[type] }] }
        expect([kind, actual]).to eq [kind, expected]
      end
    end

    it "tells lines apart" do
      data = exact.profile { TruthProgram.two_lines(1_000) }
      line = TruthProgram.method(:two_lines).source_location.last
      by_line = samples_in(data, "TruthProgram.two_lines", "TruthProgram::Plain").to_h do |sample|
        frame = sample.stack.find { |candidate| candidate.name == "TruthProgram.two_lines" }
        [frame.line - line, sample.values["allocations"]]
      end
      expect(by_line).to eq(3 => 1_000, 4 => 500)
    end

    it "tells callers apart" do
      first = -> { TruthProgram.plain(10) }
      second = -> { TruthProgram.plain(20) }
      data = exact.profile { first.call && second.call }
      samples = samples_in(data, "TruthProgram.plain", "TruthProgram::Plain")
      expect(samples.map { |sample| sample.values["allocations"] }.sort).to eq [10, 20]
    end

    it "sums to the same whatever the classes are shown as" do
      collector = exact
      collector.start!
      kept = TruthProgram.hashes(500)
      collector.stop!
      totals = %i[label frame off].map { |mode| read(collector.snapshot(class_names: mode)) }
      %w[allocations allocation_size retained_objects retained_size].each do |type|
        expect(totals.map { |profile| profile.total(type) }.uniq.size).to eq 1
      end
      expect(kept.size).to eq 500
    end
  end

  # An estimate is unbiased if the mean over many runs meets the truth. With s runs, each with standard deviation d, the
  # mean has the standard error d / sqrt(s); an unbiased one is 5 of them off once in 1.7 million.
  def standard_errors(estimates, truth, variance)
    (estimates.sum.fdiv(estimates.size) - truth) / Math.sqrt(variance / estimates.size)
  end

  # Each of n allocations counts 1 / p with probability p.
  def variance(n, p) = n * (1 - p) / p

  def plain_in(data) = sum_in(data, "TruthProgram.plain", "TruthProgram::Plain")

  def scatter_of(values)
    mean = values.sum.fdiv(values.size)
    values.sum { |value| (value - mean)**2 } / (values.size - 1)
  end

  RUNS = 30
  BOUND = 5

  def estimates(rate, program, **options)
    (1..RUNS).map do |seed|
      collector = MemprofilerPprof::Collector.new(sample_rate: rate, seed: seed, **options)
      kept = nil
      data = collector.profile { kept = program.call }
      kept.clear
      yield(data)
    end
  end

  [0.01, 0.1, Rational(3, 10), 0.75].each do |rate|
    describe "at rate #{rate}" do
      it "has unbiased counts and sizes, of what is allocated and of what is kept" do
        program = lambda do
          TruthProgram.plain(5_000).clear
          [TruthProgram.plain(5_000), TruthProgram.strings(2_000)]
        end
        size = ObjectSpace.memsize_of("x" * 1_000)
        values = estimates(rate, program) do |data|
          profile = read(data)
          [plain_in(profile),
           sum_in(profile, "TruthProgram.strings", "String"),
           sum_in(profile, "TruthProgram.strings", "String", type: "allocation_size"),
           sum_in(profile, "TruthProgram.strings", "String", type: "retained_objects"),
           sum_in(profile, "TruthProgram.strings", "String", type: "retained_size")]
        end.transpose
        scatter = scatter_of(values.first) / variance(10_000, rate)
        few = variance(2_000, rate)
        truths = [[10_000, variance(10_000, rate)], [2_000, few], [2_000 * size, few * size**2], [2_000, few],
                  [2_000 * size, few * size**2]]
        errors = values.zip(truths).map { |estimates, (truth, variance)| standard_errors(estimates, truth, variance) }
        expect(errors).to all(be_between(-BOUND, BOUND))
        # They scatter as independent draws do. Chi-squared of 29 degrees: each is passed once in about 20,000 times.
        expect(scatter).to be_between(0.3, 2.3)
      end

      it "gives the same for the same seed" do
        counts = Array.new(3) do
          MemprofilerPprof::Collector.new(sample_rate: rate, seed: 99).tap(&:start!)
                                     .tap { TruthProgram.two_lines(5_000) }.tap(&:stop!).stats[:samples]
        end
        expect(counts[2]).to be_within(2).of(counts[1]) # what the VM itself allocates may differ
      end
    end
  end

  describe "these tests of bias" do
    it "fail an estimator that scales by a rounded period" do
      rate = Rational(3, 10)
      raw = estimates(rate, -> { TruthProgram.plain(10_000) }, raw_counts: true) { |data| plain_in(data) }
      biased = raw.map { |samples| samples * 3 } # 10 / 3, rounded
      right = raw.map { |samples| samples / rate }
      expect(standard_errors(right, 10_000, variance(10_000, rate)).abs).to be < BOUND
      expect(standard_errors(biased, 10_000, variance(10_000, rate)).abs).to be > BOUND
    end

    it "fail one that takes every tenth allocation of a program that repeats itself" do
      events = (0...10_000).map { |i| (i % 10).zero? ? :rare : :common }
      every_tenth = (1..RUNS).map do |seed|
        events.each_with_index.count { |event, i| event == :rare && (i + seed % 2) % 10 == 0 } * 10
      end
      draws = (1..RUNS).map do |seed|
        random = Random.new(seed)
        events.count { |event| event == :rare && random.rand < 0.1 } * 10
      end
      expect(standard_errors(draws, 1_000, variance(1_000, 0.1)).abs).to be < BOUND
      expect(standard_errors(every_tenth, 1_000, variance(1_000, 0.1)).abs).to be > BOUND
    end

    it "fail one that forgets to scale what it dropped" do
      values = estimates(0.5, -> { TruthProgram.plain(10_000) }) { |data| plain_in(data) * 0.95 }
      expect(standard_errors(values, 10_000, variance(10_000, 0.5)).abs).to be > BOUND
    end
  end

  it "has an effective rate that is near the one asked for" do
    collector = MemprofilerPprof::Collector.new(sample_rate: 0.25, seed: 3)
    collector.profile { TruthProgram.plain(20_000) }
    expect(collector.stats[:effective_rate]).to be_within(0.02).of(0.25)
    raw = MemprofilerPprof::Collector.new(sample_rate: 0.25, seed: 3, raw_counts: true)
    raw.profile { TruthProgram.plain(20_000) }
    expect(raw.stats[:effective_rate]).to be_within(0.02).of(0.25)
  end

  it "rounds sums, not samples: totals differ by at most 1" do
    collector = MemprofilerPprof::Collector.new(sample_rate: Rational(3, 7), seed: 1)
    collector.start!
    kept = 50.times.map { |i| eval("[#{"\n" * i} TruthProgram::Plain.new, [], {}, String.new]") }
    collector.stop!
    counted = collector.stats[:allocations].values_at(:counted, :dropped).sum
    expect(read(collector.snapshot).total("allocations")).to be_within(1).of(counted)
    expect(read(collector.snapshot(class_names: :off)).total("allocations")).to be_within(1).of(counted)
    expect(kept.size).to eq 50
  end

  it "counts samples as they are with raw_counts" do
    collector = MemprofilerPprof::Collector.new(sample_rate: 0.1, seed: 4, raw_counts: true)
    data = collector.profile { TruthProgram.plain(10_000) }
    profile = read(data)
    expect(profile.total("allocations")).to eq data.allocation_samples_count
    expect(sum_in(profile, "TruthProgram.plain", "TruthProgram::Plain")).to be_within(200).of(1_000)
    expect(profile.comments.join).to include("raw counts")
  end
end
