# frozen_string_literal: true

# Required before a suite for Minitest: leaves each test's result and number of assertions in the file SUITES_REPORT, as a
# marshalled Array of [name, result]. What Minitest prints cannot be read when tests run in threads or print themselves.

require "minitest"

module Minitest
  # Is told of every result.
  class SuitesReport < AbstractReporter
    def initialize(file)
      super()
      @file = file
      @pid = Process.pid
      @results = []
    end

    def record(result)
      synchronize { @results << ["#{result.klass}##{result.name}", "#{result.result_code} #{result.assertions}"] }
    end

    def report
      File.binwrite(@file, Marshal.dump(@results)) if @pid == Process.pid
    end
  end

  def self.plugin_suites_init(_options)
    reporter << SuitesReport.new(ENV.fetch("SUITES_REPORT"))
  end

  extensions << "suites"
end
