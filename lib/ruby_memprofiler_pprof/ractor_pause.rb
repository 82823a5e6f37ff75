# frozen_string_literal: true

require "objspace"

module MemprofilerPprof
  # Before Ruby 3.3 the VM crashes when an allocation hook is in while a Ractor's thread begins, before that thread has a
  # frame. So the hooks of all running collectors are taken out around Ractor.new, until the thread is past that point;
  # only the main Ractor has any.
  # @api private
  module RactorPause
    # The longest wait for a thread whose beginning cannot be seen from here, in seconds: it has replaced its streams.
    LONGEST = 1.0

    def new(...)
      return super unless Ractor.current == Ractor.main

      # No exception of another thread may put the hooks in too early.
      Thread.handle_interrupt(Object => :never) do
        MemprofilerPprof.__send__(:pause_native)
        super.tap { |ractor| RactorPause.await(ractor) } # with no collector running too: one may start right after
      ensure
        MemprofilerPprof.__send__(:resume_native)
      end
    end

    def self.await(ractor)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + LONGEST
      sleep(0.0001) until begun?(ractor) || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
    end

    # What the thread allocates too early are the Ractor's three standard streams.
    def self.begun?(ractor)
      ObjectSpace.reachable_objects_from(ractor).count { |object| IO === object } >= 3
    end
  end
  private_constant :RactorPause

  Ractor.singleton_class.prepend(RactorPause)
end
