# frozen_string_literal: true

require "bundler"
require "fileutils"
require "open3"
require "rbconfig"

# Gems that are no part of the bundle, in a folder of their own below vendor/, one for each Ruby. They are installed when
# they are first wanted.
class GemFolder
  # @return [String]
  attr_reader :path

  # @param name [String] of the folder
  def initialize(name)
    @name = name
    @path = File.expand_path("../../vendor/#{name}/ruby-#{RUBY_VERSION}", __dir__)
  end

  # Installs a gem unless one that meets the requirement is there.
  #
  # @param requirement [String] such as "~> 1.0"
  # @param dependencies [Boolean] whether with those that it names
  # @return [String, nil] why it cannot be had, nil if it is there
  def install(name, requirement, dependencies: true)
    specification = specifications[name]
    return if specification && Gem::Requirement.new(requirement.split(", ")) =~ specification.version

    warn "Installing the gem #{name} into vendor/#{@name}"
    command = [RbConfig.ruby, "-S", "gem", "install", name, "--version", requirement, "--install-dir", path, "--no-document"]
    command << "--ignore-dependencies" unless dependencies
    output, status = Bundler.with_unbundled_env { Open3.capture2e(*command) }
    status.success? ? nil : reason(name, output)
  end

  # @return [Hash{String=>Gem::Specification}] of each gem in the folder, the newest
  def specifications
    Dir[File.join(path, "specifications", "*.gemspec")].filter_map { |file| Gem::Specification.load(file) }
      .sort_by(&:version).to_h { |specification| [specification.name, specification] }
  end

  private

  def reason(name, output)
    line = output.lines.grep(/requires Ruby/).first || output.lines.last
    "#{name} could not be installed (#{line.to_s.strip.delete_suffix(".")})"
  end
end
