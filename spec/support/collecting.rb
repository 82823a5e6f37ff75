# frozen_string_literal: true

# What the specs of the collector share.
module Collecting
  # The back ends that follow objects.
  BACK_ENDS = %i[free_hook weak_map].freeze

  # Whether :weak_map is one here, or the mark hook stands in for it.
  WEAK_MAP = RUBY_VERSION >= "3.4"

  # A way to collect. What is exact in the one way is estimated in bursts: there a profile is valid and what became of
  # every allocation adds up, and that is all that can be expected of a short run.
  Kind = Struct.new(:name, :options) do
    # @return [MemprofilerPprof::Collector]
    def make = MemprofilerPprof::Collector.new(**options)

    # @return [String] the same for a child process
    def code = "MemprofilerPprof::Collector.new(**#{options})"

    def exact? = options[:sample_rate] == 1
  end

  # Both modes, and in the exact one each back end.
  KINDS = [
    *BACK_ENDS.map { |liveness| Kind.new("exact, #{liveness}", { sample_rate: 1, liveness: liveness }) },
    Kind.new("bursts", { mode: :burst, overhead: 0.5, prelude: 0.02 })
  ].freeze

  # Runs the block while a collector does: once, in bursts until windows have opened.
  # @return [MemprofilerPprof::ProfileData] valid, with every allocation accounted for
  def collect(kind, **options)
    collector = kind.make
    collector.start!
    yield
    yield until kind.exact? || windows(collector) > 1
    data = collector.flush(**options)
    collector.stop!
    expect(ProfileRules.violations(data.pprof_data)).to eq []
    expect(balance(collector).reduce(:-)).to be_between(-1, 1)
    expect(balance(collector).reduce(:-)).to eq 0 if kind.exact?
    data
  end

  # @return [Numeric] that have opened; without end where no timer can be had
  def windows(collector) = collector.stats[:burst]&.fetch(:windows) || Float::INFINITY

  # @return [MemprofilerPprof::Collector] an exact one unless told otherwise
  def exact(**options) = MemprofilerPprof::Collector.new(sample_rate: 1, **options)

  # @param data [MemprofilerPprof::ProfileData]
  # @return [ProfileReader::Profile]
  def read(data) = ProfileReader.read(data.pprof_data)

  # @return [Array<ProfileReader::Sample>] those that have a frame of that name and, if one is given, are of that class
  def samples_in(data, name, class_name = nil)
    profile = data.is_a?(MemprofilerPprof::ProfileData) ? read(data) : data
    profile.samples.select do |sample|
      sample.stack.any? { |frame| frame.name == name } && (class_name.nil? || sample.labels["class"] == class_name)
    end
  end

  # @return [Integer] what these samples have of a value
  def sum_in(data, name, class_name = nil, type: "allocations")
    total(samples_in(data, name, class_name), type)
  end

  # @return [Integer] what the samples have of a value
  def total(samples, type = "allocations") = samples.sum { |sample| sample.values.fetch(type) }

  # @return [Array<ProfileReader::Sample>]
  def samples_of(data, class_name) = read(data).samples.select { |sample| sample.labels["class"] == class_name }

  # What became of every allocation since the start, beside the VM's own count: equal if none was lost or counted twice.
  # @return [Array(Integer, Integer)]
  def balance(collector)
    allocations = collector.stats.fetch(:allocations)
    [allocations.except(:vm).values.sum, allocations.fetch(:vm)]
  end

  # Runs the block in a fork of this process.
  # @return [Object] what it gives, by way of Marshal
  # @raise [Child::Failed] if it raises or dies
  def in_fork(&block) = Child.fork(&block)
end

# For examples that hold whatever tells of deaths: in a group that includes this context, `exact` and the `exact` of
# child processes make collectors with that back end.
RSpec.shared_context "with liveness" do |liveness|
  define_method(:liveness) { liveness }

  define_method(:exact) { |**options| super(liveness: liveness, **options) }

  define_method(:run_child) do |code, *options, **how|
    Child.run("def exact(**o) = MemprofilerPprof::Collector.new(sample_rate: 1, liveness: :#{liveness}, **o); #{code}",
              *options, **how)
  end
end

RSpec.configure { |config| config.include Collecting }
