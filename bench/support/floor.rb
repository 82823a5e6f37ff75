# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"

# Builds bench/floor for the running Ruby, and loads it:
#   MemprofilerFloor.install(walk_every, job, deaths)  walk_every 0: no walk; job, deaths: whether with them
#   MemprofilerFloor.remove
#   MemprofilerFloor.last_depth                        frames of the last walk
module Bench
  folder = File.expand_path("../../build/bench-floor-#{RUBY_VERSION}-#{RUBY_PLATFORM}", __dir__)
  FileUtils.mkdir_p(folder)
  commands = [["make", "--silent"]]
  extconf = File.expand_path("../floor/extconf.rb", __dir__)
  makefile = File.join(folder, "Makefile")
  commands.unshift([RbConfig.ruby, extconf]) unless File.exist?(makefile) && File.mtime(makefile) > File.mtime(extconf)
  commands.each do |command|
    output, status = Open3.capture2e(*command, chdir: folder)
    abort "#{command.join(" ")} failed:\n#{output}" unless status.success?
  end
  require File.join(folder, "memprofiler_floor")
end
