# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"

# An extension that only tests or benchmarks load, built under build/ for the running Ruby.
module SmallExtension
  # @param source [String] folder with its extconf.rb, whose name is the extension's
  # @return [String] what to require
  # @raise [RuntimeError] with what the compiler said
  def self.build(source)
    name = File.basename(source)
    folder = File.expand_path("../build/#{name}-#{RUBY_VERSION}-#{RUBY_PLATFORM}", __dir__)
    extconf = File.join(source, "extconf.rb")
    makefile = File.join(folder, "Makefile")
    FileUtils.mkdir_p(folder)
    commands = [["make", "--silent"]]
    commands.unshift([RbConfig.ruby, extconf]) unless File.exist?(makefile) && File.mtime(makefile) > File.mtime(extconf)
    commands.each do |command|
      output, status = Open3.capture2e(*command, chdir: folder)
      raise "#{command.join(" ")} failed:\n#{output}" unless status.success?
    end
    File.join(folder, name)
  end
end
