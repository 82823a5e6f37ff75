# frozen_string_literal: true

# What `require "ruby_memprofiler_pprof"` adds to a process, in fresh processes.

Bench.define("require_cost", "The cost of require") do |report|
  require "rbconfig"

  rounds = Bench.rounds(15)
  script = <<~'RUBY'
    require "etc"
    def resident = File.read("/proc/self/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE) / 1024
    def seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    resident; seconds; GC.start
    memory, start = resident, seconds
    require ARGV.fetch(0)
    finish = seconds
    puts finish - start, resident - memory
  RUBY
  measure = lambda do |feature|
    lib = File.expand_path("../lib", __dir__)
    command = [{ "RUBYOPT" => nil, "RUBYLIB" => nil }, RbConfig.ruby, "-I", lib, "-e", script, feature]
    IO.popen(command, &:read).split.map(&:to_f)
  end
  ours = "ruby_memprofiler_pprof"
  figures = { ours => [], "json" => [] }
  rounds.times { figures.each { |feature, list| list << measure.(feature) } }
  times, kibibytes = figures[ours].transpose
  report.add("time", times.map { |time| time * 1e3 }, unit: "ms")
  report.add("time / that of require \"json\"", Bench.ratios(times, figures["json"].map(&:first)), unit: "×")
  report.add("resident memory", kibibytes, unit: "KiB")
end
