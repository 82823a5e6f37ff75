# frozen_string_literal: true

# Another build of the extension than the one in lib/: see the Rakefile.
native = ENV["MPP_NATIVE_DIR"]
$LOAD_PATH.unshift(native) if native

require "ruby_memprofiler_pprof"

loaded = $LOADED_FEATURES.grep(%r{/ruby_memprofiler_pprof_native\.}).fetch(0)
abort "the extension came from #{loaded}, not from #{native}" if native && File.dirname(loaded) != File.realpath(native)

Dir[File.join(__dir__, "support", "*.rb")].sort.each { |file| require file }

RSpec.configure do |config|
  config.disable_monkey_patching!
  config.expect_with(:rspec) { |expectations| expectations.max_formatted_output_length = 2_000 }
  config.filter_run_when_matching :focus
  config.raise_errors_for_deprecations!

  # A collector that a failed test left running would be seen by the tests after it.
  config.after do |example|
    ObjectSpace.each_object(MemprofilerPprof::Collector, &:stop!) if example.exception
  end
end
