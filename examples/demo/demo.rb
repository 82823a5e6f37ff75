# frozen_string_literal: true

# Profiles RDoc and prints what it allocates and keeps: bin/demo runs this.

require "fileutils"
require "ruby_memprofiler_pprof"
require_relative "report"
require_relative "workload"

SAMPLE_RATE = 0.05
OUTPUT = "tmp/demo/rdoc.pb.gz"

# The same run in a process of its own, without the profiler.
def seconds_without
  IO.popen([RbConfig.ruby, File.join(__dir__, "workload.rb")], &:read).to_f
end

files = Workload.files
puts "RDoc #{RDoc::VERSION} writes HTML for #{files.size} files (#{files.sum { |file| File.size(file) } / 1000} kB) of " \
     "the standard library of Ruby #{RUBY_VERSION}.", "A run without the profiler ..."
before = seconds_without

puts "A run with it, one allocation in #{(1 / SAMPLE_RATE).round} is sampled ..."
collector = MemprofilerPprof::Collector.new(sample_rate: SAMPLE_RATE)
vm_before = GC.stat(:total_allocated_objects)
collector.start!
rdoc, seconds = Workload.timed { Workload.run }
vm_after = GC.stat(:total_allocated_objects)
data = collector.flush(gc: true)
stats = collector.stats
collector.stop!
puts "And one without it again ..."
after = seconds_without

FileUtils.mkdir_p(File.dirname(OUTPUT))
data.write(OUTPUT)
Report.new(MemprofilerPprof::ProfileReader.read(File.binread(OUTPUT)), stats,
           vm_allocated: vm_after - vm_before, seconds: seconds, seconds_without: [before, after]).print

puts "", "The #{rdoc.store.all_classes_and_modules.size} classes and modules that RDoc found are still alive in its store.",
     "The profile is #{OUTPUT} (#{data.pprof_data.bytesize / 1000} kB). To look into it:",
     "  go tool pprof -http=localhost:8080 #{OUTPUT}",
     "  go tool pprof -top -cum -sample_index=allocation_size #{OUTPUT}"
