# frozen_string_literal: true

require "json"

module Suites
  # What runs tests: which gems it needs, the arguments for Ruby, and `tests`, which reads its report: by name the results
  # of each test (several may have one name), sorted. Each starts from the same seed in every run.
  module Runners
    # @return [Module] of that name
    def self.fetch(name) = const_get(name.capitalize)

    # With a reporter of ours.
    module Minitest
      GEMS = { "minitest" => "5.25.4" }.freeze
      SCRIPT = 'require "minitest/autorun"; ARGV.shift(ARGV.index("--")).each { |file| require file }; ARGV.shift'
      REPORTER = File.expand_path("minitest_report.rb", __dir__)

      module_function

      def arguments(files, _report) = ["-r", REPORTER, "-e", SCRIPT, "--", *files, "--", "--seed", "1"]

      def tests(report)
        results = File.exist?(report) ? Marshal.load(File.binread(report)) : []
        results.group_by(&:first).transform_values { |pairs| pairs.map(&:last).sort }
      end
    end

    # With its own report.
    module Rspec
      GEMS = { "diff-lcs" => "1.5.1", "rspec-support" => "3.13.2", "rspec-core" => "3.13.2",
               "rspec-expectations" => "3.13.3", "rspec-mocks" => "3.13.2" }.freeze

      module_function

      def arguments(files, report)
        ["-e", 'require "rspec/autorun"', "--", *files, "--seed", "1", "--format", "json", "--out", report]
      end

      def tests(report)
        examples = File.exist?(report) ? JSON.parse(File.read(report)).fetch("examples") : []
        examples.group_by { |example| example["full_description"] }
          .transform_values { |same| same.map { |example| example["status"] }.sort }
      end
    end
  end
end
