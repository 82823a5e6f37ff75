# frozen_string_literal: true

module Bench
  # RESULTS.md: a section for each Ruby, of which a run replaces its own, or the parts that it ran.
  module Results
    FILE = File.expand_path("../RESULTS.md", __dir__)
    INTRODUCTION = <<~TEXT
      # Speed and memory, measured

      Written by `bench/run.rb --write`. Ratios are taken in one run, between parts that take turns in short rounds,
      so they hold where the figures in nanoseconds do not. A bar is the most that is allowed; where there is
      none, the figure is for information. What is missed, and why: [MISSED.md](MISSED.md).

    TEXT
    HEADING = /^(?=## Ruby )/.freeze

    module_function

    def write(reports, machine)
      sections = File.exist?(FILE) ? File.read(FILE).split(HEADING).drop(1) : []
      own = "## Ruby #{RUBY_VERSION}\n"
      sections.reject! { |section| section.start_with?(own) }
      sections << "#{own}\n#{section(reports, machine)}\n"
      File.write(FILE, INTRODUCTION + sections.sort.map(&:rstrip).join("\n\n") + "\n")
    end

    # A part that was run by itself says when and on what.
    def write_parts(reports, machine)
      text = File.read(FILE)
      own = text[/^## Ruby #{Regexp.escape(RUBY_VERSION)}\n.*?(?=^## |\z)/m] or
        raise "RESULTS.md has no section for Ruby #{RUBY_VERSION}: write all of them first"
      mended = reports.inject(own) do |section, (definition, report)|
        part = Printer.markdown(definition, report, "By itself: #{circumstances(machine)}").join("\n")
        place = /^### #{definition.name}\n.*?(?=^##|\z)/m
        section.match?(place) or
          raise "RESULTS.md has no #{definition.name} for Ruby #{RUBY_VERSION}: write all of them first"
        section.sub(place) { "#{part}\n" }
      end
      File.write(FILE, text.sub(own) { mended }.rstrip + "\n")
    end

    def circumstances(machine) = "#{Time.now.utc.strftime("%Y-%m-%d")}, #{machine}."

    def section(reports, machine)
      protobuf = Gem::Specification.select { |gem| gem.name == "google-protobuf" }.map(&:version).max
      lines = [circumstances(machine),
               "ruby_memprofiler_pprof #{MemprofilerPprof::VERSION}, google-protobuf #{protobuf}, #{RUBY_PLATFORM}.", ""]
      reports.each { |definition, report| lines.concat(Printer.markdown(definition, report)) }
      lines.join("\n")
    end
  end
end
