# frozen_string_literal: true

require_relative "../../test/support/gem_folder"

module Bench
  # Gems that the benchmarks alone need: the peers, and libraries to make realistic work of. One that cannot be had is
  # named in the results with the reason.
  module Gems
    REQUIREMENTS = {
      "stackprof" => "~> 0.2",
      "memory_profiler" => "~> 1.0",
      "vernier" => "~> 1.0",
      "rack" => "~> 3.0",
      "rack-test" => "~> 2.0",
      "sequel" => "~> 5.0",
      "sqlite3" => RUBY_VERSION < "3.2" ? "~> 1.7" : "~> 2.0" # that come as binaries: compiling takes minutes
    }.freeze

    @folder = GemFolder.new("bench")
    @reasons = {}

    class << self
      # Installs what is missing and makes `require` find it.
      # @return [String, nil] why one of them cannot be used, nil if all can
      def need(*names)
        names.each do |name|
          @reasons[name] = @folder.install(name, REQUIREMENTS.fetch(name)) unless @reasons.key?(name)
        end
        activate
        names.filter_map { |name| @reasons[name] }.first
      end

      # @return [Hash{String=>Gem::Version}]
      def versions
        @folder.specifications.slice(*REQUIREMENTS.keys).transform_values(&:version)
      end

      private

      # By the load path, for Bundler lets nothing else be activated.
      def activate
        $LOAD_PATH.concat(@folder.specifications.values.flat_map(&:full_require_paths) - $LOAD_PATH)
      end
    end
  end
end
