# frozen_string_literal: true

# What the specs of the collector share.
module Collecting
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

RSpec.configure { |config| config.include Collecting }
