# frozen_string_literal: true

unless Ractor.current == Ractor.main # which the extension takes the Ractor for that loads it
  raise LoadError, "ruby_memprofiler_pprof is to be required in the main Ractor first"
end

require_relative "ruby_memprofiler_pprof/version"
require_relative "ruby_memprofiler_pprof/errors"
require_relative "ruby_memprofiler_pprof/profile_data"
require "ruby_memprofiler_pprof_native"

# A sampling memory-allocation profiler: which code paths allocate, what of it is still alive, how big it is and of what
# class, in the pprof format.
#
# @example
#   require "ruby_memprofiler_pprof"
#
#   collector = MemprofilerPprof::Collector.new(sample_rate: 0.1)
#   collector.profile { work }.write("work.pb.gz") # then: go tool pprof -http : work.pb.gz
module MemprofilerPprof
  autoload :ProfileReader, File.expand_path("ruby_memprofiler_pprof/profile_reader", __dir__) # loads google-protobuf

  # The extension was built with another version of these files, and the two agree on nothing.
  unless NATIVE_VERSION == VERSION
    raise LoadError, "ruby_memprofiler_pprof #{VERSION} found a native extension of version #{NATIVE_VERSION}: build it again"
  end
end

require_relative "ruby_memprofiler_pprof/collector"
