# frozen_string_literal: true

require "etc"
require "fileutils"
require "json"
require "open3"
require "rbconfig"

# RSpec over many files, each in a process of its own: what crashes is one file's failure, and files cannot lean on each
# other. One more at a time than there are processors, for a third of the time they wait for something. What takes longest
# begins first, as of the last run here; without one the largest file does.
class SpecRun
  SECONDS = "tmp/spec_seconds.json"
  COUNTS = /^(\d+) examples?, (\d+) failures?(?:, (\d+) pending)?(?:, (\d+) errors? occurred outside of examples)?$/

  # @param files [Array<String>]
  # @param environment [Hash{String => String}] for these processes
  def initialize(files, environment = {})
    @environment = environment
    @seconds = File.exist?(SECONDS) ? JSON.parse(File.read(SECONDS)) : {}
    @files = files.sort_by { |file| [-@seconds.fetch(file, Float::INFINITY), -File.size(file)] }
    @counts = [0, 0, 0, 0]
    @failed = {} # their outputs
  end

  # @return [Boolean] whether all of them passed, and said so
  def passed?
    queue = @files.each_with_object(Queue.new) { |file, waiting| waiting << file }.close
    printing = Mutex.new
    Array.new(Etc.nprocessors + 1) do
      Thread.new do
        while (file = queue.pop)
          result = run(file)
          printing.synchronize { note(file, *result) }
        end
      end
    end.each(&:join)
    FileUtils.mkdir_p(File.dirname(SECONDS))
    File.write(SECONDS, JSON.pretty_generate(@seconds))
    puts summary
    @failed.empty?
  end

  private

  def run(file)
    started = now
    output, status = Open3.capture2e(@environment, RbConfig.ruby, Gem.bin_path("rspec-core", "rspec"), "--no-color", file)
    [output, status, now - started]
  end

  def note(file, output, status, seconds)
    @seconds[file] = seconds.round(1)
    counts = output.scrub.scan(COUNTS).last
    counts&.each_with_index { |count, i| @counts[i] += count.to_i }
    passed = status.success? && counts
    @failed[file] = output unless passed
    puts format("%-36s %6.1f s  %s", file, seconds, counts ? "#{counts[0]} examples, #{counts[1]} failures" : status)
    puts output if passed && (counts[2] || output.match?(/warn/i))
    $stdout.flush
  end

  def summary
    examples, failures, pending, errors = @counts
    text = @failed.map { |file, output| "\n#{file}\n#{output}" }.join
    text += "\n#{examples} examples, #{failures} failures, #{pending} pending, #{errors} errors outside of examples\n"
    text += "FAILED: #{@failed.keys.sort.join(" ")}\n" unless @failed.empty?
    text
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
