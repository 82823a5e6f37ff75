# frozen_string_literal: true

module Model
  # Where the program's steps run, and what the VM does meanwhile.
  module Surroundings
    extend Defining

    collection = ->(random) { { full: random.rand(2).zero?, sweep: random.rand(3).positive? } }
    text = ->(full:, sweep:) { "GC.start(full_mark: #{full}, immediate_sweep: #{sweep})" }
    operation(:collect, 4, arguments: collection, text: text) do |_, step|
      GC.start(full_mark: step.arguments[:full], immediate_sweep: step.arguments[:sweep])
    end

    operation(:compact, 2, text: -> { "GC.compact" }) { |_, _| GC.compact if GC.respond_to?(:compact) }

    operation(:compacting, 1, text: -> { "with GC.auto_compact" }, holds: all_but) do |world, step|
      next world.perform(step.steps) unless GC.respond_to?(:auto_compact=)

      was = GC.auto_compact
      begin
        GC.auto_compact = true
        world.perform(step.steps)
      ensure
        GC.auto_compact = was
      end
    end

    operation(:disabled, 1, text: -> { "with GC.disable" }, holds: all_but) do |world, step|
      was = GC.disable
      world.perform(step.steps)
    ensure
      GC.enable unless was
    end

    operation(:stress, 1, arguments: ->(random) { { site: one_of(random, *Sites::NAMES), n: random.rand(1..5) } },
                          text: ->(site:, n:) { "kept << Sites.#{site}(#{n}) with GC.stress" }) do |world, step|
      world.allocate(step.arguments[:site], step.arguments[:n], keep: true, stress: true)
    end

    operation(:fiber, 2, text: -> { "in a fiber" }, holds: all_but) do |world, step|
      Fiber.new { world.perform(step.steps) }.resume
    end

    operation(:enumerator, 1, text: -> { "in an Enumerator" }, holds: all_but) do |world, step|
      enumerator = Enumerator.new { |yielder| world.perform(step.steps) && yielder << 1 }
      world.expect "what an Enumerator gives", enumerator.next, 1
    end

    operation(:thread, 3, text: -> { "in a thread" }, holds: all_but) do |world, step|
      Waiting.join(Thread.new { world.perform(step.steps) })
    end

    def self.descend(depth, &block) = depth.zero? ? yield : descend(depth - 1, &block)

    operation(:deep, 1, arguments: ->(random) { { depth: one_of(random, 20, 300) } }, holds: all_but,
                        text: ->(depth:) { "#{depth} frames deeper" }) do |world, step|
      descend(step.arguments[:depth]) { world.perform(step.steps) }
    end

    operation(:trace, 1, arguments: ->(random) { { events: one_of(random, %i[c_call], %i[call return], %i[line raise]) } },
                         text: ->(events:) { "with a TracePoint on #{events.join(", ")}" }, holds: all_but) do |world, step|
      calls = 0
      TracePoint.new(*step.arguments[:events]) { calls += 1 }.enable { world.perform(step.steps) }
    end

    # A collection within the tracer's own hook tells no hook of deaths, so what lives may be given up.
    operation(:tracing, 1, text: -> { "with ObjectSpace.trace_object_allocations" }, holds: all_but) do |world, step|
      world.deaths_may_be_missed!
      ObjectSpace.trace_object_allocations { world.perform(step.steps) }
    end

    operation(:handler, 1, text: -> { "in the handler of a signal" }, holds: all_but(:handler)) do |world, step|
      done = false
      was = trap(:USR1) do
        world.perform(step.steps)
      ensure
        done = true
      end
      Process.kill(:USR1, Process.pid)
      sleep 0.001 until done
      trap(:USR1, was || "DEFAULT")
    end

    # The VM swallows what a finalizer raises. One that comes later than it is waited for does nothing.
    operation(:finalizer, 1, text: -> { "in a finalizer" }, holds: all_but(:finalizer)) do |world, step|
      due = true
      raised = nil
      body = lambda do |_|
        next unless due

        due = false
        world.in_finalizer { world.perform(step.steps) }
      rescue StandardError => e
        raised = e
      end
      define = -> { 10.times { ObjectSpace.define_finalizer(Object.new, body) } && nil }
      descend(5, &define)
      GC.start
      due = false
      raise raised if raised
    end

    NOISE = {
      allocating: ->(_) { Array.new(20) { |i| [i.to_s, { i => "x" * i }] } },
      collecting: ->(_) { GC.start(full_mark: false) },
      reading: ->(world) { world.everyone.filter_map(&:found).each { |collector| collector.snapshot && collector.stats } },
      profiling: ->(_) { MemprofilerPprof::Collector.new(sample_rate: 0.5).profile { Array.new(10) { Object.new } } }
    }.freeze

    operation(:noise, 2, arguments: ->(random) { { kind: one_of(random, *NOISE.keys) } }, holds: all_but,
                         text: ->(kind:) { "beside a thread that is #{kind}" }) do |world, step|
      done = false
      noise = NOISE.fetch(step.arguments[:kind])
      thread = Thread.new { noise.call(world) && sleep(0.0005) until done }
      world.perform(step.steps)
    ensure
      done = true
      Waiting.join(thread)
    end

    # @return [Object] what the child gives, by way of Marshal
    def self.in_child(exit_at_once)
      reader, writer = IO.pipe(binmode: true)
      pid = Process.fork do
        reader.close
        writer.write(Marshal.dump(yield))
        writer.close
        Process.exit!(0) if exit_at_once # else the VM ends with collectors that run
      end
      writer.close
      bytes = reader.read
      reader.close
      status = Waiting.wait(pid)
      raise Mismatch, "the child of a fork ended with #{status.inspect[/(SIG|exit).*/]}" unless status.success?

      Marshal.load(bytes)
    end

    # ASan's allocator may be locked for good in the child where another thread was in it.
    def self.forkable? = !Child.sanitized? || Thread.list.size == 1

    operation(:fork, 2, arguments: ->(random) { { at_once: random.rand(2).zero? } }, holds: all_but,
                        text: ->(at_once:) { "in a child, which ends by exit#{"!" if at_once}" }) do |world, step|
      next unless forkable?

      # The VM may end in a bug report of its own in a child that was forked in a finalizer.
      failure, findings, profiles = in_child(step.arguments[:at_once] || world.in_finalizer?) do
        world.findings.clear
        world.profiles.clear
        world.forked
        world.perform(step.steps)
        world.finish
        [nil, world.findings, world.profiles]
      rescue StandardError => e
        ["#{e.class}: #{e.message}\n#{e.backtrace.first(12).join("\n")}", [], []]
      end
      raise Mismatch, "in the child: #{failure}" if failure

      world.findings.concat(findings)
      world.profiles.concat(profiles)
    end
  end
end
