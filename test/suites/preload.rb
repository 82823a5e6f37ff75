# frozen_string_literal: true

# Required by RUBYOPT in the process that runs a suite, before anything of the suite, and in all that it forks and spawns.
# Each of them profiles itself as SUITES_MODE names it, and leaves in the folder SUITES_OUTPUT a file <pid>.profiled.
#
# It flushes at the end, and before that in a finalizer: an object that nobody holds dies at every collection, wherever
# the suite happens to be, and needs no thread that a suite might count.

GC.auto_compact = true if ENV["SUITES_COMPACT"]

if ENV["SUITES_MODE"]
  # Seen by the suite only as long as it takes.
  library = ENV.values_at("MPP_NATIVE_DIR", "SUITES_LIBRARY").compact
  $LOAD_PATH.unshift(*library)
  require "ruby_memprofiler_pprof"
  library.each { |folder| $LOAD_PATH.delete(folder) }
  require_relative "modes"

  module Suites
    # The profile of this process.
    class Recording
      SECONDS = 2 # between flushes, at least

      def initialize(output, options)
        @output = output
        @collector = MemprofilerPprof::Collector.new(**options)
        begin_here
        @collector.start!
        watch
        at_exit { finish }
      end

      private

      def watch
        ObjectSpace.define_finalizer(Object.new, method(:tick))
      end

      # Flushes if it is time, and waits for the next collection; at the end of the process there is none to wait for.
      # Nothing may be raised out of a finalizer.
      def tick(_id)
        return if @finished

        flush if clock - @flushed_at >= SECONDS
        watch
      rescue Exception => e
        @errors << e.full_message(highlight: false)
      end

      # A forked child's collector goes on from zero, and so does what is kept of it here.
      def begin_here
        @pid = Process.pid
        @flushes = []
        @errors = []
        @flushed_at = clock
      end

      def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def flush
        begin_here unless @pid == Process.pid
        @flushed_at = clock
        @flushes << @collector.flush.pprof_data
      end

      # A flush before the end and one after it: together with those before they hold all.
      def finish
        @finished = true
        flush
        @collector.stop!
        flush
        write(flushes: @flushes, errors: @errors, stats: @collector.stats, live: @collector.live_heap_samples_count)
      end

      def write(record)
        file = File.join(@output, "#{@pid}.profiled")
        File.binwrite("#{file}.part", Marshal.dump(record))
        File.rename("#{file}.part", file)
      end
    end
  end

  Suites::Recording.new(ENV.fetch("SUITES_OUTPUT"), Suites::MODES.fetch(ENV.fetch("SUITES_MODE")))
end
