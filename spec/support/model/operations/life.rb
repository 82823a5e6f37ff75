# frozen_string_literal: true

module Model
  # How collectors come, run and go.
  module Life
    extend Defining

    RATES = [0.5, 0.1, 0.05, 0.01].freeze
    LIMITS = { max_heap_samples: [1, 400, 2_000], max_allocation_samples: [16, 100], memory_limit: [2**20] }.freeze
    COMMON = { liveness: %i[auto free_hook weak_map none], class_names: [:label, :frame, :off, nil],
               sample_types: %i[memprofiler go] }.freeze
    RARE = { threads: %i[all current], max_stack_depth: [1, 3, 16, 10_000], **LIMITS }.freeze
    BURST = { mode: :burst, overhead: 0.5 }.freeze
    PRELUDES = [0, 0.01, 0.1, 60].freeze

    def self.options(random)
      kind = random.rand(10)
      chosen = if kind < 6 then { sample_rate: one_of(random, 1, 1.0, 1r) }
               elsif kind < 8 then { sample_rate: one_of(random, *RATES) }
               else BURST.dup
               end
      chosen.update(some(random, 0.4, COMMON), some(random, 0.12, RARE), { seed: random.rand(2**32) })
      chosen[:prelude] = PRELUDES[chosen[:seed] % 4] if chosen.key?(:mode)
      raw = random.rand < 0.1
      chosen[:raw_counts] = true if raw && !chosen.key?(:mode)
      chosen
    end

    operation :create, 4, arguments: ->(random) { { slot: slot(random), options: options(random) } },
                          text: ->(slot:, options:) { "c#{slot} = Collector.new(#{in_words(options)})" } do |world, step|
      slot, options = step.arguments.values_at(:slot, :options)
      world.abandon(slot)
      expected = Expected.new(MemprofilerPprof::Collector.new(**options), options)
      options.each { |name, value| world.expect(name.to_s, expected.collector.public_send(name), value) }
      world.slots[slot] = expected
      world.check_state(expected)
    end

    operation :abandon, 1, arguments: ->(random) { { slot: slot(random) } },
                           text: ->(slot:) { "c#{slot} = nil" } do |world, step|
      world.abandon(step.arguments[:slot])
    end

    on_collector(:start, 9, text: -> { "start!" }) { |world, _, expected| world.start(expected) }

    on_collector(:stop, 4, arguments: ->(random) { { gc: random.rand(2).zero? } },
                           text: ->(gc:) { "stop!(gc: #{gc})" }) do |world, step, expected|
      world.stop(expected, gc: step.arguments[:gc])
    end

    Left = Class.new(StandardError)

    # @yield the block of the profile
    # @return [ProfileData, nil] nil where the block is left
    def self.profile(collector, way, threads, &block)
      case way
      when :value then collector.profile(threads: threads, &block)
      when :next then collector.profile(threads: threads) { next block.call }
      when :raise
        begin
          collector.profile(threads: threads) { block.call && raise(Left) }
        rescue Left
          nil
        end
      when :throw then catch(:left) { collector.profile(threads: threads) { block.call && throw(:left) } }
      when :break then collector.profile(threads: threads) { block.call && break }
      end
    end

    ways = lambda do |random|
      { way: one_of(random, :value, :value, :next, :raise, :throw, :break),
        threads: one_of(random, nil, nil, :all, :current) }
    end
    text = ->(way:, threads:) { "profile(threads: #{threads.inspect}) { # left by #{way}" }
    on_collector(:profile, 4, arguments: ways, holds: all_but, text: text) do |world, step, expected|
      way, threads = step.arguments.values_at(:way, :threads)
      if expected.running?
        world.refused(MemprofilerPprof::StateError, "running") do
          profile(expected.collector, way, threads) { raise "the block ran" }
        end
        world.check_state(expected)
        next
      end

      before = nil
      collector = expected.collector # the steps may forget it
      data = profile(collector, way, threads) do
        expected.began(expected.collector.stats, Thread.current, threads: threads)
        world.perform(step.steps)
        before = expected.collector.stats
        true
      end
      expected.ended(world.kept_of(expected.run)) if expected.running?
      world.check_profile(expected, data, before, delta: true) if data
      expected.run.settled = nil # it was read before the stop, and a collection may have come between
      world.check_state(expected)
      world.expect "running? after profile", collector.running?, false
    end
  end
end
