# frozen_string_literal: true

module Model
  # What collectors are asked.
  module Readings
    extend Defining

    OPTIONS = { gc: [true, false], min_gc_age: [0, 1, 3], class_names: [:label, :frame, :off, nil],
                sample_types: [:memprofiler, :go, nil] }.freeze
    options = ->(random) { { options: some(random, 0.3, OPTIONS) } }

    text = ->(options:) { "flush(#{in_words(options)})" }
    on_collector(:flush, 8, arguments: options, text: text) do |world, step, expected|
      world.read(expected, **step.arguments[:options])
    end

    text = ->(options:) { "snapshot(#{in_words(options)})" }
    on_collector(:snapshot, 4, arguments: options, text: text) do |world, step, expected|
      world.read(expected, delta: false, **step.arguments[:options])
    end

    on_collector(:stats, 2, text: -> { "stats; running?" }) { |world, _, expected| world.check_state(expected) }

    on_collector(:live_count, 1, text: -> { "live_heap_samples_count" }) do |world, _, expected|
      stats = expected.collector.stats
      count = expected.collector.live_heap_samples_count
      world.expect "live_heap_samples_count", count, 0..(stats[:samples] + 10_000)
      world.expect "live_heap_samples_count after the end", count, stats[:live_samples] unless expected.running?
    end

    # Without a frame of that name: nothing. Exact: what the samples say. Else an interval around it.
    what = ->(random) { { site: one_of(random, *Sites::NAMES), index: random.rand(5) } }
    text = ->(site:, index:) { "the last profile.estimate(/#{site}/, type: #{index})" }
    operation :estimate, 2, arguments: what, text: text do |world, step|
      data, observed, expected = world.last
      next unless data

      site, index = step.arguments.values_at(:site, :index)
      types = observed.types
      refusal = if expected.raw? then [MemprofilerPprof::StateError, "raw_counts"]
                elsif index == 4 then [ArgumentError, "type"]
                elsif index >= 2 && expected.liveness == :none then [ArgumentError, "liveness"]
                end
      if refusal
        world.refused(*refusal) { world.aside { data.estimate(/x/, type: types.fetch(index, "none")) } }
        next
      end

      estimate = world.aside { data.estimate(/\AModel::Sites\.#{site}\z/, type: types[index]) }
      told = observed.whole(site)[index]
      world.expect "interval of #{estimate.value}, #{[estimate.low, estimate.high]}", estimate.low <= estimate.value && estimate.value <= estimate.high
      world.expect "estimate", estimate.value.round, told if expected.run.nil? || expected.run.rate
    end

    operation :write, 2, arguments: ->(random) { { where: one_of(random, :file, :file, :folder, :nowhere) } },
                         text: ->(where:) { "the last profile.write(a #{where})" } do |world, step|
      data, = world.last
      next unless data

      file = File.join(world.folder, "p.pb.gz")
      case step.arguments[:where]
      when :folder then world.refused(Errno::EISDIR, "") { data.write(world.folder) }
      when :nowhere then world.refused(Errno::ENOENT, "") { data.write(File.join(world.folder, "none", "p")) }
      else
        world.expect "bytes written", data.write(file), data.pprof_data.bytesize
        world.expect "what was written", File.binread(file) == data.pprof_data
      end
      world.expect "files left over", Dir.children(world.folder) - ["p.pb.gz"], []
    end
  end
end
