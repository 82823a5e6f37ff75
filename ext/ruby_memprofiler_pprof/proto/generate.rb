# frozen_string_literal: true

# Makes profile_descriptor.h out of profile.proto. Needs protoc; only those who change profile.proto run this.
#
#   ruby generate.rb           writes the header
#   ruby generate.rb --check   fails if the header is not what would be written

require "open3"
require "tmpdir"

HERE = __dir__
HEADER = File.join(HERE, "profile_descriptor.h")

# protoc writes a FileDescriptorSet: field 1, a length, and in it the one FileDescriptorProto that we want.
def file_descriptor
  set = Dir.mktmpdir do |folder|
    path = File.join(folder, "set")
    output, status = Open3.capture2e("protoc", "--proto_path=#{HERE}", "--descriptor_set_out=#{path}", "profile.proto")
    abort "protoc failed: #{output}" unless status.success?
    File.binread(path)
  end

  bytes = set.bytes
  abort "not a FileDescriptorSet" unless bytes.shift == 0x0a
  length = shift = 0
  loop do
    byte = bytes.shift
    length |= (byte & 0x7f) << shift
    shift += 7
    break if byte < 0x80
  end
  abort "not exactly one file in the FileDescriptorSet" unless bytes.size == length
  bytes
end

def header(bytes)
  lines = bytes.each_slice(16).map { |slice| "    #{slice.map { |byte| format("0x%02x,", byte) }.join(" ")}" }
  <<~C
    /* Made from profile.proto by generate.rb: its FileDescriptorProto. */

    #ifndef MPP_PROFILE_DESCRIPTOR_H
    #define MPP_PROFILE_DESCRIPTOR_H

    static const unsigned char mpp_profile_descriptor[] = {
    #{lines.join("\n")}
    };

    #endif
  C
end

text = header(file_descriptor)
if ARGV == ["--check"]
  abort "profile_descriptor.h does not match profile.proto: run generate.rb" unless File.read(HEADER) == text
else
  File.write(HEADER, text)
end
