# frozen_string_literal: true

require "rdoc"
require "tmpdir"

# What the demo profiles: RDoc, as Ruby ships it, writing HTML for a part of Ruby's standard library.
module Workload
  LIBRARIES = %w[cgi erb irb json net optparse racc rexml set uri].freeze
  MOST_FILES = 60

  # @return [Array<String>]
  def self.files
    Dir[File.join(RbConfig::CONFIG["rubylibdir"], "{#{LIBRARIES.join(",")}}", "**", "*.rb")].sort.first(MOST_FILES)
  end

  # @return [RDoc::RDoc] with all that it has read: its store stays alive for as long as this does
  def self.run
    Dir.mktmpdir do |folder|
      RDoc::RDoc.new.tap { |rdoc| rdoc.document(["--quiet", "--op", File.join(folder, "html"), *files]) }
    end
  end

  # @return [Array] what the block gives, and the CPU seconds that it took
  def self.timed
    start = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    result = yield
    [result, Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - start]
  end
end

# On its own it tells the CPU seconds of a run without a profiler.
if $PROGRAM_NAME == __FILE__
  _, seconds = Workload.timed { Workload.run }
  puts seconds
end
