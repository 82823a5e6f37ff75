# frozen_string_literal: true

require "bundler"
require "rbconfig"
require "tempfile"
require "tmpdir"
require "yaml"
require_relative "../support/gem_folder"
require_relative "runners"

module Suites
  # What a run of a suite did: its exit status, the results by test, the lines that it printed to stderr (numbers and
  # addresses aside), how long it took, and what each of its processes recorded, that of the suite first.
  Outcome = Struct.new(:status, :tests, :messages, :seconds, :records, keyword_init: true)

  # The tests that a gem's package holds.
  class Suite
    FILE = File.expand_path("suites.yml", __dir__)
    FOLDER = GemFolder.new("suites")
    LIBRARY = File.expand_path("../../lib", __dir__)
    PRELOAD = File.expand_path("preload.rb", __dir__)
    SECONDS = 300 # then it is taken for hanging

    # @return [Array<Suite>]
    def self.all
      YAML.safe_load(File.read(FILE)).map { |name, declaration| new(name, declaration) }
    end

    # @return [String]
    attr_reader :name

    def initialize(name, declaration)
      @name = name
      @version = declaration.fetch("version")
      @runner = Runners.fetch(declaration.fetch("runner"))
      @needs = declaration.fetch("needs", {})
      @files = declaration.fetch("files")
      @options = declaration.fetch("options", [])
      @short = declaration.fetch("short", false)
      @ruby = Gem::Requirement.new(declaration.fetch("ruby", []))
    end

    def runs_here? = @ruby.satisfied_by?(Gem.ruby_version)

    def short? = @short

    # Brings its gems.
    # @return [String, nil] why it cannot run here
    def prepare
      gems = { **@runner::GEMS, **@needs, @name => @version }
      gems.each do |name, version|
        reason = FOLDER.install(name, version, dependencies: false)
        return reason if reason
      end
      nil
    end

    # @param mode [String, nil] a name in MODES, nil: unprofiled
    # @param compact [Boolean] whether the VM moves objects at its collections
    # @return [Outcome]
    def run(mode, compact: false)
      Dir.mktmpdir do |folder|
        report = File.join(folder, "report")
        messages = File.join(folder, "messages")
        start = clock
        pid = spawn_suite(environment(folder, report, mode, compact), report, messages)
        status = wait(pid)
        Outcome.new(status: status, tests: @runner.tests(report), messages: normal(File.binread(messages)),
                    seconds: clock - start, records: records(folder, pid))
      end
    end

    private

    def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def environment(folder, report, mode, compact)
      { "GEM_HOME" => FOLDER.path, "GEM_PATH" => FOLDER.path, "RUBYOPT" => "-r#{PRELOAD}", "SUITES_LIBRARY" => LIBRARY,
        "SUITES_OUTPUT" => folder, "SUITES_REPORT" => report, "SUITES_MODE" => mode,
        "SUITES_COMPACT" => (compact ? "1" : nil) }
    end

    def spawn_suite(environment, report, messages)
      source = FOLDER.specifications.fetch(@name).full_gem_path
      folders = %w[lib test spec].map { |folder| "-I#{File.join(source, folder)}" }
      files = Dir[File.join(source, @files)].sort
      Bundler.with_unbundled_env do
        Process.spawn(environment, RbConfig.ruby, *folders, *@runner.arguments(files, report), *@options,
                      chdir: source, in: File::NULL, out: File::NULL, err: messages, pgroup: true, rlimit_core: 0)
      end
    end

    def wait(pid)
      deadline = clock + SECONDS
      until (status = Process.wait2(pid, Process::WNOHANG)&.last)
        Process.kill(:KILL, -pid) if clock > deadline
        sleep 0.05
      end
      status.signaled? ? "signal #{Signal.signame(status.termsig)}" : status.exitstatus
    end

    def records(folder, pid)
      files = Dir[File.join(folder, "*.profiled")].sort_by { |file| File.basename(file).to_i == pid ? 0 : 1 }
      files.map { |file| Marshal.load(File.binread(file)) }
    end

    # What differs from run to run without meaning anything.
    def normal(messages)
      messages.force_encoding(Encoding::UTF_8).scrub.gsub(/0x\h+|\d+/, "N").lines.map(&:strip).reject(&:empty?).uniq
    end
  end
end
