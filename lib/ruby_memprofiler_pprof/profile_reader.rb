# frozen_string_literal: true

require "google/protobuf"
require "google/protobuf/descriptor_pb"
require "zlib"

module MemprofilerPprof
  # Reads a pprof profile with google-protobuf, which the gem depends on anyway.
  #
  #   profile = MemprofilerPprof::ProfileReader.read(data.pprof_data)
  #   profile.samples.max_by { |sample| sample.values["retained_size"] }.stack.each { |frame| puts frame.name }
  module ProfileReader
    # A profile's samples with names instead of ids; `message` is the whole of it as it was decoded.
    Profile = Struct.new(:samples, :sample_types, :period_type, :period, :default_sample_type, :started_at, :duration,
                         :comments, :message, keyword_init: true) do
      # @return [Integer] sum of the values of a type, such as "retained_size"
      def total(type)
        samples.sum { |sample| sample.values.fetch(type) }
      end
    end
    Sample = Struct.new(:stack, :values, :labels) # Array of Frame, leaf first; Hash by type; Hash by key
    Frame = Struct.new(:name, :file, :line, :start_line)

    # The message class Profile, of the schema that the extension encodes with.
    MESSAGE = begin
      schema = MemprofilerPprof.__send__(:schema_native)
      pool = Google::Protobuf::DescriptorPool.new
      pool.add_serialized_file(schema)
      file = Google::Protobuf::FileDescriptorProto.decode(schema)
      file.message_type.map { |type| pool.lookup("#{file.package}.#{type.name}").msgclass }.first
    end

    # @param gzipped [String] a profile as {ProfileData#pprof_data} has it
    # @return [Profile]
    # @raise [Zlib::Error, Google::Protobuf::ParseError] if it is none
    def self.read(gzipped)
      message = MESSAGE.decode(Zlib.gunzip(gzipped))
      strings = message.string_table.to_a
      types = message.sample_type.map { |type| strings[type.type] }
      frames = frames_by_location(message, strings)
      samples = message.sample.map do |sample|
        stack = sample.location_id.flat_map { |id| frames.fetch(id) }
        labels = sample.label.to_h { |label| [strings[label.key], label.str.zero? ? label.num : strings[label.str]] }
        Sample.new(stack, types.zip(sample.value.to_a).to_h, labels)
      end
      Profile.new(
        samples: samples, sample_types: message.sample_type.map { |type| [strings[type.type], strings[type.unit]] },
        period_type: message.period_type && [strings[message.period_type.type], strings[message.period_type.unit]],
        period: message.period, default_sample_type: strings[message.default_sample_type],
        started_at: Time.at(0, message.time_nanos, :nsec), duration: message.duration_nanos / 1e9,
        comments: message.comment.map { |index| strings[index] }, message: message
      )
    end

    def self.frames_by_location(message, strings)
      functions = message.function.to_h { |function| [function.id, function] }
      message.location.to_h do |location|
        frames = location.line.map do |line|
          function = functions.fetch(line.function_id)
          Frame.new(strings[function.name], strings[function.filename], line.line, function.start_line)
        end
        [location.id, frames]
      end
    end
    private_class_method :frames_by_location
  end
end
