# frozen_string_literal: true

require "ruby_memprofiler_pprof"

ProfileReader = MemprofilerPprof::ProfileReader

# What pprof and its kin require of a profile, beyond that it can be decoded. Each rule adds a line for each violation,
# so a test reads: expect(ProfileRules.violations(data.pprof_data)).to eq []
class ProfileRules
  # Of fields that occur once, more than one makes pprof refuse the file: number => name.
  SINGULAR = { 7 => "drop_frames", 8 => "keep_frames", 9 => "time_nanos", 10 => "duration_nanos", 11 => "period_type",
               12 => "period", 14 => "default_sample_type" }.freeze

  def self.violations(gzipped) = new(gzipped).violations

  def initialize(gzipped)
    @gzipped = gzipped
    @bytes = Zlib.gunzip(gzipped)
    @message = ProfileReader::MESSAGE.decode(@bytes)
    @strings = @message.string_table.to_a
    @violations = []
  end

  def violations
    check_container
    check_strings
    check_header
    check_ids
    check_mapping
    check_functions
    check_locations
    check_samples
    @violations
  end

  private

  def rule(text, holds)
    @violations << text unless holds
  end

  def string(index) = @strings[index]

  def check_container
    rule "one gzip member", @gzipped.b.start_with?("\x1F\x8B\x08".b) && unzips_to_its_end?
    counts = top_level_fields.tally
    SINGULAR.each { |number, name| rule "#{name} is written at most once", counts.fetch(number, 0) <= 1 }
    rule "time_nanos is written", counts[9] == 1
  end

  def unzips_to_its_end?
    inflate = Zlib::Inflate.new(Zlib::MAX_WBITS + 16)
    inflate.inflate(@gzipped)
    inflate.finished? && inflate.total_in == @gzipped.bytesize
  ensure
    inflate.close
  end

  # The numbers of the fields on the wire, each as often as it stands there.
  def top_level_fields
    position = 0
    varint = lambda do
      value = shift = 0
      loop do
        byte = @bytes.getbyte(position)
        position += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        return value if byte < 0x80
      end
    end
    numbers = []
    while position < @bytes.bytesize
      tag = varint.call
      numbers << (tag >> 3)
      case tag & 7
      when 0 then varint.call
      when 2 then length = varint.call
                  position += length
      else raise "wire type #{tag & 7}"
      end
    end
    numbers
  end

  def check_strings
    rule "string_table begins with the empty string", string(0) == ""
    rule "no string twice", @strings.uniq.size == @strings.size
    @strings.each { |text| rule "valid UTF-8: #{text.inspect}", text.encoding == Encoding::UTF_8 && text.valid_encoding? }
  end

  def check_header
    types = @message.sample_type.map { |type| string(type.type) }
    rule "sample types", types.any? && types.none? { |type| type.to_s.empty? } && types.uniq.size == types.size
    rule "units", @message.sample_type.none? { |type| string(type.unit).to_s.empty? }
    rule "default_sample_type is one of them or unset", ["", *types].include?(string(@message.default_sample_type))
    rule "period_type", @message.period_type && !string(@message.period_type.type).to_s.empty?
    rule "period", @message.period.positive?
    rule "time", @message.time_nanos.positive?
    rule "duration", !@message.duration_nanos.negative?
    comments = @message.comment.map { |index| string(index).to_s }
    rule "comments name the version", comments.any? { |comment| comment.include?(MemprofilerPprof::VERSION) }
    rule "no frames dropped by pattern", @message.drop_frames.zero? && @message.keep_frames.zero?
  end

  def check_ids
    { mapping: @message.mapping, location: @message.location, function: @message.function }.each do |name, list|
      rule "#{name} ids are 1 to N in order", list.map(&:id) == (1..list.size).to_a
    end
  end

  def check_mapping
    rule "one mapping", @message.mapping.size == 1
    mapping = @message.mapping.first or return
    rule "the mapping has a file", !string(mapping.filename).to_s.empty?
    rule "the mapping has functions, files and lines",
         mapping.has_functions && mapping.has_filenames && mapping.has_line_numbers
  end

  def check_functions
    @message.function.each do |function|
      rule "function #{function.id} has a name", !string(function.name).to_s.empty?
      rule "function #{function.id} has no system_name", function.system_name.zero?
      rule "function #{function.id} has a file or none", !string(function.filename).nil?
      rule "function #{function.id} starts at a line", !function.start_line.negative?
    end
    used = @message.location.flat_map { |location| location.line.map(&:function_id) }
    rule "every function is used", used.uniq.size == @message.function.size
  end

  def check_locations
    functions = @message.function.size
    @message.location.each do |location|
      rule "location #{location.id} is in the mapping", location.mapping_id == 1
      rule "location #{location.id} has a 63-bit address", (1...2**63).cover?(location.address)
      rule "location #{location.id} has one line", location.line.size == 1
      location.line.each do |line|
        rule "location #{location.id} has a function", (1..functions).cover?(line.function_id)
        rule "location #{location.id} has a line number", !line.line.negative?
      end
    end
    rule "no address twice", @message.location.map(&:address).uniq.size == @message.location.size
    used = @message.sample.flat_map { |sample| sample.location_id.to_a }
    rule "every location is used", used.uniq.size == @message.location.size
  end

  def check_samples
    locations = 1..@message.location.size
    keys = @message.sample.each_with_index.map do |sample, index|
      values = sample.value.to_a
      rule "sample #{index} has a value of each type", values.size == @message.sample_type.size
      rule "sample #{index} has values", values.none?(&:negative?) && values.any?(&:positive?)
      rule "sample #{index} has a stack", sample.location_id.size.positive?
      rule "sample #{index} has locations", sample.location_id.all? { |id| locations.cover?(id) }
      check_labels(index, sample.label)
      [sample.location_id.to_a, sample.label.map(&:to_h)]
    end
    rule "no stack with the same labels twice", keys.uniq.size == keys.size
  end

  def check_labels(index, labels)
    keys = labels.map { |label| string(label.key).to_s }
    rule "sample #{index} has no label twice", keys.uniq.size == keys.size
    keys.each { |key| rule "label #{key} is a name", key.match?(/\A[A-Za-z_][A-Za-z0-9_.]*\z/) }
    rule "sample #{index} has string labels", labels.all? { |label| label.num.zero? && !string(label.str).to_s.empty? }
  end
end
