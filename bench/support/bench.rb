# frozen_string_literal: true

require_relative "statistics"

# A benchmark is a file in bench/ that calls Bench.define. It runs in a process of its own and hands back rows.
module Bench
  # One line of the result. `bar` is the highest value allowed, nil where the figure is for information.
  Row = Struct.new(:name, :unit, :spread, :bar, keyword_init: true) do
    def met?
      bar.nil? || spread.median <= bar
    end

    def verdict
      return "" if bar.nil?

      met? ? "met" : "NOT met"
    end
  end

  # What a benchmark writes its figures into.
  class Report
    attr_reader :rows, :notes

    def initialize
      @rows = []
      @notes = []
    end

    # @param values [Numeric, Array<Numeric>] one figure, or one a round
    # @param unit [String] ×, B, KiB, MiB, ms, ns
    def add(name, values, unit:, bar: nil)
      @rows << Row.new(name: name, unit: unit, spread: Spread.of(values), bar: bar)
    end

    # A sentence that is needed to read the figures.
    def note(text)
      @notes << text
    end
  end

  Definition = Struct.new(:name, :title, :body, keyword_init: true)

  @definitions = {}

  class << self
    # @return [Hash{String=>Definition}]
    attr_reader :definitions

    def define(name, title, &body)
      @definitions[name] = Definition.new(name: name, title: title, body: body)
    end

    # Runs one in a child process, which inherits nothing of what other benchmarks loaded or allocated.
    # @return [Report]
    def run(definition)
      reader, writer = IO.pipe(binmode: true)
      child = fork do
        reader.close
        report = Report.new
        definition.body.call(report)
        writer.write(Marshal.dump(report))
        writer.close
        exit!(0)
      end
      writer.close
      answer = reader.read
      Process.wait(child)
      $?.success? ? Marshal.load(answer) : abort("#{definition.name} failed")
    end
  end
end
