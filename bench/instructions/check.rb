# frozen_string_literal: true

# Counts the instructions of the core's hot paths (phases.c) under callgrind and compares them with those recorded:
# a guard against what makes them slower that no other load on the machine disturbs.
#
#   bundle exec rake bench:instructions          fails where a count is more than a tenth above the recorded one
#   bundle exec rake bench:instructions:record   counts anew, and writes that into recorded.yml
#
# Two counts a phase: the core's own instructions, which the compiler decides, and all, which depend on the libraries and
# the processor too. So each is compared only with one of the same compiler, the second of the same libraries as well.

require "fileutils"
require "open3"
require "yaml"

# One run of phases.c, built as the core's Makefile builds for a release.
class InstructionCount
  ROOT = File.expand_path("../..", __dir__)
  CORE = File.join(ROOT, "ext/ruby_memprofiler_pprof/core")
  BUILD = File.join(ROOT, "build/instructions")
  PROGRAM = File.join(BUILD, "phases")

  # @return [Hash{String=>Hash}] for each phase "core" and "all"
  attr_reader :phases

  def initialize
    build
    @phases = count
  end

  # @return [String]
  def compiler
    "#{run("gcc", "--version").lines.first.strip}, #{run("gcc", "-dumpmachine").strip}"
  end

  # @return [String]
  def libraries
    wide = " with AVX2" if File.read("/proc/cpuinfo").match?(/^flags.* avx2\b/) # libc chooses by it
    protobuf = Gem::Specification.find_by_name("google-protobuf").version
    "#{run(PROGRAM, "--versions").strip}#{wide}, google-protobuf #{protobuf}"
  end

  private

  def build
    environment = { "EXTRA_CFLAGS" => nil, "SANITIZE" => nil } # flags of another build must not get in
    run(environment, "make", "-C", CORE, "CC=gcc", "OPTIMIZE=-O2", "BUILD=#{BUILD}/core")
    run("gcc", "-std=c11", "-g", "-O2", "-DNDEBUG", "-Wall", "-Wextra", "-Werror", "-I#{CORE}",
        File.join(__dir__, "phases.c"), "#{BUILD}/core/libmpp_core.a", "-lz", "-lm", "-o", PROGRAM)
  end

  def count
    FileUtils.rm_f(Dir["#{BUILD}/phase.*"])
    run("valgrind", "--tool=callgrind", "--collect-atstart=no", "--compress-strings=no", "--compress-pos=no",
        "--callgrind-out-file=#{BUILD}/phase", PROGRAM)
    dumps = Dir["#{BUILD}/phase.*"].sort_by { |file| file[/\d+\z/].to_i }
    dumps.to_h { |file| read(file) }
  end

  # A dump has lines "line cost" below the file and function they belong to; after "calls=" stands one that is the cost
  # of the function called.
  def read(file)
    counts = { "core" => 0, "all" => 0 }
    in_core = of_call = false
    name = nil
    File.foreach(file) do |line|
      case line
      when /\Adesc: Trigger: Client Request: (\w+)/ then name = Regexp.last_match(1)
      when /\Af[lie]=(.*)/ then in_core = Regexp.last_match(1).start_with?("#{CORE}/")
      when /\Acalls=/ then of_call = true
      when /\A\d+ (\d+)/
        cost = of_call ? 0 : Regexp.last_match(1).to_i
        counts["all"] += cost
        counts["core"] += cost if in_core
        of_call = false
      end
    end
    [name, counts]
  end

  def run(*command)
    output, status = Open3.capture2e(*command)
    status.success? or abort "#{command.grep(String).join(" ")} failed:\n#{output}"
    output
  end
end

# What was counted with each compiler.
module RecordedInstructions
  FILE = File.join(__dir__, "recorded.yml")
  INTRODUCTION = "# Written by rake bench:instructions:record: instructions of phases.c, for each compiler.\n"
  ALLOWED = 1.1

  module_function

  def all
    File.exist?(FILE) ? YAML.safe_load(File.read(FILE)) : {}
  end

  def record(count)
    entry = { "libraries" => count.libraries, "phases" => count.phases }
    File.write(FILE, INTRODUCTION + all.merge(count.compiler => entry).to_yaml.delete_prefix("---\n"))
    puts "Recorded for #{count.compiler}"
  end

  # Prints a line a phase.
  # @return [Array<String>] what is too much
  def compare(count)
    recorded = all[count.compiler]
    puts "NOTHING IS COMPARED: nothing was recorded with #{count.compiler}" unless recorded
    compared = recorded ? ["core"] : []
    if recorded && recorded["libraries"] == count.libraries
      compared << "all"
    elsif recorded
      puts "Only the core's own are compared: recorded with #{recorded["libraries"]}, now #{count.libraries}"
    end
    count.phases.flat_map do |phase, counts|
      ratios = compared.to_h { |kind| [kind, counts[kind].fdiv(recorded.dig("phases", phase, kind) || 0)] }
      cells = counts.map { |kind, n| format("%s %11d %-9s", kind, n, ratios[kind] && format("(× %.3f)", ratios[kind])) }
      puts "  #{phase.ljust(20)} #{cells.join("  ")}".rstrip
      ratios.select { |_, ratio| ratio > ALLOWED }.keys.map { |kind| "#{phase} (#{kind})" }
    end
  end
end

count = InstructionCount.new
if ARGV == ["--record"]
  RecordedInstructions.record(count)
else
  grown = RecordedInstructions.compare(count)
  abort <<~TEXT unless grown.empty?
    More than #{RecordedInstructions::ALLOWED} × the recorded instructions: #{grown.join(", ")}.
    Where they go: callgrind_annotate #{InstructionCount::BUILD}/phase.N
    If it is to be so: bundle exec rake bench:instructions:record
  TEXT
end
