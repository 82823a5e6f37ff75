# frozen_string_literal: true

module Model
  # Thread#raise and Thread#kill in the middle of a call.
  module Strikes
    extend Defining

    Struck = Class.new(Exception)
    SECONDS = 30

    CALLS = {
      start: ->(collector, _) { collector.start! },
      stop: ->(collector, _) { collector.stop! },
      stop_gc: ->(collector, _) { collector.stop!(gc: true) },
      flush: ->(collector, _) { collector.flush },
      flush_gc: ->(collector, _) { collector.flush(gc: true) },
      snapshot: ->(collector, _) { collector.snapshot },
      stats: ->(collector, _) { collector.stats },
      profile: ->(collector, _) { collector.profile { Array.new(50) { Object.new } } },
      write: ->(collector, folder) { collector.flush.write(File.join(folder, "p.pb.gz")) }
    }.freeze

    # @return [Thread] one that makes the call, and can be struck in nothing else
    def self.attempt(world, expected, call, timing)
      ready = false
      thread = Thread.new do
        Thread.current.report_on_exception = false
        Thread.handle_interrupt(Struck => :never) do
          ready = true
          Thread.handle_interrupt(Struck => timing) do
            result = CALLS.fetch(call).call(expected.collector, world.folder)
            Thread.current.thread_variable_set(:result, result)
          end
        end
      rescue Struck
        nil
      rescue MemprofilerPprof::StateError
        raise unless call == :profile && expected.running?
      end
      Thread.pass until ready
      thread
    end

    def self.ended?(thread)
      Waiting.join(thread, SECONDS)
    rescue Struck
      true
    end

    # Where only what blocks is struck, a call that has done its work comes back: it is known what became of it.
    def self.outcome(thread, how)
      return :unknown unless how == :raise_on_blocking

      thread.thread_variable_get(:result) ? :done : :undone
    end

    strikes = lambda do |random|
      { call: one_of(random, *CALLS.keys), how: one_of(random, :raise, :raise_on_blocking, :kill), after: random.rand(12) * 0.0003 }
    end
    text = lambda do |call:, how:, after:|
      "#{call}, in a thread struck by #{how} after #{(after * 1000).round(1)} ms"
    end
    on_collector(:strike, 5, arguments: strikes, text: text) do |world, step, expected|
      call, how, after = step.arguments.values_at(:call, :how, :after)
      thread = attempt(world, expected, call, how == :raise_on_blocking ? :on_blocking : :immediate)
      sleep(after)
      how == :kill ? thread.kill : thread.raise(Struck)
      world.expect "the thread's end", ended?(thread)
      world.settle(expected, call, thread, outcome(thread, how))
      world.expect "files left over", Dir.children(world.folder) - ["p.pb.gz"], []
    end
  end
end
