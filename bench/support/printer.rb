# frozen_string_literal: true

require "etc"

module Bench
  # Reports as text for the terminal and as Markdown for RESULTS.md.
  module Printer
    HEADINGS = ["", "median", "quartiles", "bar", ""].freeze

    module_function

    def text(definition, report)
      lines = [HEADINGS, *report.rows.map { |row| cells(row) }]
      widths = lines.transpose.map { |column| column.map(&:length).max }
      table = lines.map do |line|
        line.each_with_index.map { |cell, i| i.zero? ? cell.ljust(widths[i]) : cell.rjust(widths[i]) }.join("  ").rstrip
      end
      ["#{definition.name}: #{definition.title}", *[*table, *report.notes].map { |line| "  #{line}" }, ""]
    end

    def markdown(definition, report)
      rows = [HEADINGS, ["---", "--:", "--:", "--:", "---"], *report.rows.map { |row| cells(row) }]
      ["### #{definition.name}", "", "#{definition.title}.", "",
       *rows.map { |row| "| #{row.join(" | ")} |" }, "", *report.notes.flat_map { |note| [note, ""] }]
    end

    def machine
      model = File.foreach("/proc/cpuinfo").grep(/\Amodel name/).first&.split(":", 2)&.last&.strip
      load = File.read("/proc/loadavg").split.first(3).join(" ")
      "#{model || "unknown CPU"}, #{Etc.nprocessors} cores, load average #{load} when started"
    rescue SystemCallError
      "#{RUBY_PLATFORM}, #{Etc.nprocessors} cores"
    end

    def cells(row)
      spread = row.spread
      quartiles = spread.n > 1 ? "#{number(spread.low)} – #{number(spread.high)}" : ""
      [row.name, "#{number(spread.median)} #{row.unit}".rstrip, quartiles, row.bar ? "≤ #{row.bar}" : "", row.verdict]
    end

    def number(value)
      return value.to_s if value.is_a?(Integer)

      value >= 100 ? format("%.0f", value) : format("%.2f", value)
    end
  end
end
