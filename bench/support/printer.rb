# frozen_string_literal: true

require "etc"

module Bench
  # Reports as text for the terminal and as Markdown for RESULTS.md.
  module Printer
    HEADINGS = ["", "median", "quartiles", "bar", ""].freeze

    module_function

    def text(definition, report)
      parts = grids(report).map { |grid| align(grid) }
      ["#{definition.name}: #{definition.title}", *[*parts.flatten, *report.notes].map { |line| "  #{line}".rstrip }, ""]
    end

    # @param remark [String, nil] below the title
    def markdown(definition, report, remark = nil)
      ["### #{definition.name}", "", "#{definition.title}.", "", *([remark, ""] if remark),
       *grids(report).flat_map { |heading, *lines| [*markdown_table(heading, lines), ""] },
       *report.notes.flat_map { |note| [note, ""] }]
    end

    def machine
      model = File.foreach("/proc/cpuinfo").grep(/\Amodel name/).first&.split(":", 2)&.last&.strip
      load = File.read("/proc/loadavg").split.first(3).join(" ")
      "#{model || "unknown CPU"}, #{Etc.nprocessors} cores, load average #{load} when started"
    rescue SystemCallError
      "#{RUBY_PLATFORM}, #{Etc.nprocessors} cores"
    end

    # Tables and rows alike as lines of cells, the headings first.
    def grids(report)
      tables = report.tables.map do |table|
        [["", *table.columns],
         *table.lines.map { |name, cells| [name, *cells.map { |cell| with_spread(cell) }] }]
      end
      report.rows.empty? ? tables : [*tables, [HEADINGS, *report.rows.map { |row| cells(row) }]]
    end

    def align(grid)
      widths = grid.transpose.map { |column| column.map(&:length).max }
      lines = grid.map do |line|
        cells = line.zip(widths, grid.first).map do |cell, width, heading|
          text?(heading) ? cell.ljust(width) : cell.rjust(width)
        end
        cells.join("  ").rstrip
      end
      [*lines, ""]
    end

    # Columns of words have no heading. Numbers stand right.
    def text?(heading)
      heading.empty?
    end

    def markdown_table(heading, lines)
      rule = heading.map { |cell| text?(cell) ? "---" : "--:" }
      [heading, rule, *lines].map { |line| "| #{line.join(" | ")} |" }
    end

    def cells(row)
      bar = row.bar ? "≤ #{row.bar}" : ""
      spread = row.spread or return [row.name, "–", "", bar, row.verdict]

      quartiles = spread.n > 1 ? "#{number(spread.low)} – #{number(spread.high)}" : ""
      [row.name, "#{number(spread.median)} #{row.unit}".rstrip, quartiles, bar, row.verdict]
    end

    def with_spread(cell)
      cell.is_a?(String) ? cell : "#{number(cell.median)} ± #{number((cell.high - cell.low) / 2)}"
    end

    def number(value)
      return value.to_s if value.is_a?(Integer)

      value >= 100 ? format("%.0f", value) : format("%.2f", value)
    end
  end
end
