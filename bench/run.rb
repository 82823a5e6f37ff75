# frozen_string_literal: true

# Speed and memory, each figure beside its bar. A bar that is missed is printed and fails nothing.
#
#   bundle exec rake bench               all of them, in about 25 minutes; BENCH_ROUNDS=1 shortens that
#   ruby -Ilib bench/run.rb [NAME…]      these, with the extension that is built
#   bundle exec rake bench:write         the same (--write), and into RESULTS.md, where each Ruby has a section
#   ruby -Ilib bench/run.rb --write NAME…   these parts of the Ruby's section alone
#   ruby -Ilib bench/run.rb --list
#
# Peers, and what the workloads are made of, are gems that go to vendor/bench at the first run.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require_relative "support/bench"
require_relative "support/printer"
require_relative "support/results"
require "ruby_memprofiler_pprof/version"

Dir[File.join(__dir__, "*.rb")].sort.each { |file| require file unless File.identical?(file, __FILE__) }

write = ARGV.delete("--write")
list = ARGV.delete("--list")
unknown = ARGV - Bench.definitions.keys
abort "No benchmark #{unknown.join(", ")}. There are: #{Bench.definitions.keys.join(", ")}" unless unknown.empty?
definitions = ARGV.empty? ? Bench.definitions.values : Bench.definitions.values_at(*ARGV)
if list
  definitions.each { |definition| puts "#{definition.name.ljust(16)} #{definition.title}" }
  exit
end

machine = Bench::Printer.machine
puts "Ruby #{RUBY_VERSION}, ruby_memprofiler_pprof #{MemprofilerPprof::VERSION}, #{machine}", ""
reports = definitions.to_h do |definition|
  report = Bench.run(definition)
  puts Bench::Printer.text(definition, report)
  $stdout.flush
  [definition, report]
end
rows = reports.values.flat_map(&:rows).select(&:bar)
puts "#{rows.count(&:met?)} of #{rows.size} bars met"
Bench::Results.public_send(ARGV.empty? ? :write : :write_parts, reports, machine) if write
