# frozen_string_literal: true

module Model
  # The VM does not notice within a finalizer that what it waits for has come, if that came before it fell asleep. So
  # every wait is a short one, again and again.
  module Waiting
    SECONDS = 0.01

    module_function

    # @param most [Numeric] seconds
    # @return [Boolean] whether it has ended by then
    # @raise what the thread has raised
    def join(thread, most = Float::INFINITY)
      deadline = now + most
      until thread.join(SECONDS)
        return false if now > deadline
      end
      true
    end

    # @return [Process::Status]
    def wait(pid)
      until (_, status = Process.wait2(pid, Process::WNOHANG)) && status
        sleep SECONDS / 10
      end
      status
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
