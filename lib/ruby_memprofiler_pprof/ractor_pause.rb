# frozen_string_literal: true

require "objspace"

module MemprofilerPprof
  # Before Ruby 3.3 the VM crashes when an allocation hook is in while a Ractor's thread begins, before that thread has a
  # frame. So the hooks of all running collectors are taken out around Ractor.new, until the thread is past that point;
  # only the main Ractor has any.
  # @api private
  module RactorPause
    def new(...)
      return super unless Ractor.current == Ractor.main

      begin
        MemprofilerPprof.__send__(:pause_native)
        super.tap { |ractor| sleep(0.0001) until RactorPause.begun?(ractor) }
      ensure
        MemprofilerPprof.__send__(:resume_native)
      end
    end

    # What the thread allocates too early are the Ractor's standard streams, of which STDERR is the last.
    def self.begun?(ractor)
      ObjectSpace.reachable_objects_from(ractor).count { |object| IO === object } == 3
    end
  end
  private_constant :RactorPause

  Ractor.singleton_class.prepend(RactorPause)
end
