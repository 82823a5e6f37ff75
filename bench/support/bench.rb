# frozen_string_literal: true

require_relative "child"
require_relative "statistics"

# A benchmark is a file in bench/ that calls Bench.define. It runs in a process of its own and hands back a report.
module Bench
  # One line of the result. `bar` is the highest value allowed, nil where the figure is for information; `spread` is nil
  # where there is no figure, and `reason` says why.
  Row = Struct.new(:name, :unit, :spread, :bar, :reason, keyword_init: true) do
    def met?
      bar.nil? || (!spread.nil? && spread.median <= bar)
    end

    def verdict
      return reason.to_s if spread.nil? || bar.nil?

      met? ? "met" : "NOT met"
    end
  end

  # Figures of several things under several headings: a Spread in each cell, or a String that says why there is none.
  Table = Struct.new(:columns, :lines, keyword_init: true)

  # What a benchmark writes its figures into.
  class Report
    attr_reader :rows, :tables, :notes

    def initialize
      @rows = []
      @tables = []
      @notes = []
    end

    # @param values [Numeric, Array<Numeric>] one figure, or one a round
    # @param unit [String] ×, B, KiB, MiB, ms, ns
    def add(name, values, unit:, bar: nil)
      @rows << Row.new(name: name, unit: unit, spread: Spread.of(values), bar: bar)
    end

    # A figure that there is none of here. A bar on it counts as not met.
    def lack(name, reason, bar: nil)
      @rows << Row.new(name: name, reason: reason, bar: bar)
    end

    # @param columns [Array<String>]
    # @param lines [Hash{String=>Array<Array<Numeric>, String>}] for each name a cell a column: values, or why none
    def tabulate(columns, lines)
      lines = lines.transform_values { |cells| cells.map { |cell| cell.is_a?(String) ? cell : Spread.of(cell) } }
      @tables << Table.new(columns: columns, lines: lines)
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

    # @return [Report]
    def run(definition)
      in_child { Report.new.tap { |report| definition.body.call(report) } }
    end

    # How often a measurement is repeated: BENCH_ROUNDS for all, where it is set.
    def rounds(default)
      Integer(ENV.fetch("BENCH_ROUNDS", default))
    end
  end
end
