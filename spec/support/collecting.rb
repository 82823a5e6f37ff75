# frozen_string_literal: true

# What the specs of the collector share.
module Collecting
  # The back ends that follow objects.
  BACK_ENDS = %i[free_hook weak_map].freeze

  # Whether :weak_map is one here, or the mark hook stands in for it.
  WEAK_MAP = RUBY_VERSION >= "3.4"

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

  define_method(:run_child) do |code, *options|
    Child.run("def exact(**o) = MemprofilerPprof::Collector.new(sample_rate: 1, liveness: :#{liveness}, **o); #{code}",
              *options)
  end
end

RSpec.configure { |config| config.include Collecting }
