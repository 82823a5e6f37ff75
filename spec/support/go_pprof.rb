# frozen_string_literal: true

require "open3"
require "tempfile"

# The tool that the profiles are for.
module GoPprof
  Failed = Class.new(StandardError)

  # @example GoPprof.run(data.pprof_data, "-top", "-sample_index=retained_size")
  # @return [String] what it prints
  # @raise [Failed] with its messages, if it refuses the profile or warns
  def self.run(gzipped, *arguments)
    Tempfile.create(["profile", ".pb.gz"], binmode: true) do |file|
      file.write(gzipped)
      file.close
      # A preloaded sanitizer is not for this program.
      output, messages, status = Open3.capture3({ "LD_PRELOAD" => nil }, "go", "tool", "pprof", *arguments, file.path)
      raise Failed, "go tool pprof #{arguments.join(" ")}: #{messages}" unless status.success? && messages.empty?

      output
    end
  end
end
