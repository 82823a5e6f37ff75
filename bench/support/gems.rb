# frozen_string_literal: true

require "bundler"
require "fileutils"
require "open3"
require "rbconfig"

module Bench
  # Gems that the benchmarks alone need: the peers, and libraries to make realistic work of. They are no part of the
  # bundle, and are installed into a folder of their own when a benchmark first wants them. One that cannot be had is
  # named in the results with the reason.
  module Gems
    FOLDER = File.expand_path("../../vendor/bench/ruby-#{RUBY_VERSION}", __dir__)
    REQUIREMENTS = {
      "stackprof" => "~> 0.2",
      "memory_profiler" => "~> 1.0",
      "vernier" => "~> 1.0",
      "rack" => "~> 3.0",
      "rack-test" => "~> 2.0",
      "sequel" => "~> 5.0",
      "sqlite3" => RUBY_VERSION < "3.2" ? "~> 1.7" : "~> 2.0" # that come as binaries: compiling takes minutes
    }.freeze

    @reasons = {}

    class << self
      # Installs what is missing and makes `require` find it.
      # @return [String, nil] why one of them cannot be used, nil if all can
      def need(*names)
        names.each { |name| @reasons[name] = install(name) unless @reasons.key?(name) }
        activate
        names.filter_map { |name| @reasons[name] }.first
      end

      # @return [Hash{String=>Gem::Version}]
      def versions
        specifications.slice(*REQUIREMENTS.keys).transform_values(&:version)
      end

      private

      def install(name)
        requirement = REQUIREMENTS.fetch(name)
        specification = specifications[name]
        return if specification && Gem::Requirement.new(requirement.split(", ")) =~ specification.version

        warn "Installing the gem #{name} into vendor/bench"
        command = [RbConfig.ruby, "-S", "gem", "install", name, "--version", requirement, "--install-dir", FOLDER,
                   "--no-document"]
        output, status = Bundler.with_unbundled_env { Open3.capture2e(*command) }
        status.success? ? nil : reason(name, output)
      end

      def reason(name, output)
        line = output.lines.grep(/requires Ruby/).first || output.lines.last
        "#{name} could not be installed (#{line.to_s.strip.delete_suffix(".")})"
      end

      # Of each gem in the folder, the newest.
      def specifications
        Dir[File.join(FOLDER, "specifications", "*.gemspec")].filter_map { |file| Gem::Specification.load(file) }
          .sort_by(&:version).to_h { |specification| [specification.name, specification] }
      end

      # By the load path, for Bundler lets nothing else be activated.
      def activate
        $LOAD_PATH.concat(specifications.values.flat_map(&:full_require_paths) - $LOAD_PATH)
      end
    end
  end
end
