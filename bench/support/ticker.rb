# frozen_string_literal: true

module Bench
  # A thread that wants to run each millisecond: how long it is kept from it tells how long others hold the GVL.
  module Ticker
    INTERVAL = 0.001

    module_function

    # @return [Float] longest time between two ticks, in seconds, while the block ran
    def longest_gap
      longest = 0.0
      done = false
      started = Queue.new
      ticker = Thread.new do
        last = Bench.wall_clock
        started << true
        until done
          sleep INTERVAL
          now = Bench.wall_clock
          longest = [longest, now - last].max
          last = now
        end
      end
      started.pop
      yield
      done = true
      ticker.join
      longest
    end
  end
end
