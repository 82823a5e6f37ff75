# frozen_string_literal: true

require "json"

module Suites
  # What runs tests: which gems it needs, the command, and what can be read of its results. Each starts from the same seed
  # in every run.
  module Runners
    # @return [Module] of that name
    def self.fetch(name) = const_get(name.capitalize)

    # Verbose output names each test with its result.
    module Minitest
      GEMS = { "minitest" => "5.25.4" }.freeze
      SCRIPT = 'require "minitest/autorun"; ARGV.shift(ARGV.index("--")).each { |file| require file }; ARGV.shift'
      TEST = /([A-Z][\w:]*#.+) = \d+\.\d+ s = (.)$/.freeze
      TOTALS = /^\d+ runs, \d+ assertions, .+ skips$/.freeze

      module_function

      def arguments(files, _report) = ["-e", SCRIPT, "--", *files, "--", "--seed", "1", "--verbose"]

      # @return [Hash{String=>Array<String>}] results of each test
      def tests(output, _report)
        output.scan(TEST).group_by(&:first).transform_values { |pairs| pairs.map(&:last).sort }
      end

      # @return [String] assertions included
      def totals(output, _report) = output.scan(TOTALS).last.to_s
    end

    # It writes a report.
    module Rspec
      GEMS = { "diff-lcs" => "1.5.1", "rspec-support" => "3.13.2", "rspec-core" => "3.13.2",
               "rspec-expectations" => "3.13.3", "rspec-mocks" => "3.13.2" }.freeze

      module_function

      def arguments(files, report)
        ["-e", 'require "rspec/autorun"', "--", *files, "--seed", "1", "--format", "json", "--out", report]
      end

      def tests(_output, report)
        read(report).fetch("examples", []).group_by { |example| example["full_description"] }
          .transform_values { |examples| examples.map { |example| example["status"] }.sort }
      end

      def totals(_output, report) = read(report).fetch("summary_line", "")

      def read(report) = File.exist?(report) ? JSON.parse(File.read(report)) : {}
    end
  end
end
