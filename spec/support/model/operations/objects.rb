# frozen_string_literal: true

module Model
  # What the program makes and lets go.
  module Objects
    extend Defining

    sizes = lambda do |random|
      { site: one_of(random, *Sites::NAMES), n: one_of(random, 1, 2, 7, 50, 300), keep: random.rand < 0.6 }
    end
    text = ->(site:, n:, keep:) { "#{"kept << " if keep}Sites.#{site}(#{n})" }
    operation(:allocate, 18, arguments: sizes, text: text) do |world, step|
      world.allocate(step.arguments[:site], step.arguments[:n], keep: step.arguments[:keep])
    end

    # Long enough for some windows of burst mode, or more samples than there is room for.
    work = ->(random) { { site: one_of(random, :objects, :strings, :arrays), n: one_of(random, 4_000, 4_000, 20_000) } }
    operation(:work, 3, arguments: work, text: ->(site:, n:) { "Sites.#{site}(#{n})" }) do |world, step|
      world.allocate(step.arguments[:site], step.arguments[:n], keep: false)
    end

    which = ->(random) { { index: random.rand(100), share: one_of(random, 1.0, 1.0, 0.5, 0.1) } }
    text = ->(index:, share:) { "lets go of #{share} of kept[#{index} % kept.size]" }
    operation(:release, 6, arguments: which, text: text) do |world, step|
      next if world.batches.empty?

      index = step.arguments[:index] % world.batches.size
      world.batches[index].release(step.arguments[:share])
      world.batches.delete_at(index) if step.arguments[:share] == 1.0
    end

    growth = ->(random) { { index: random.rand(100), bytes: one_of(random, 1, 30, 5_000) } }
    text = ->(index:, bytes:) { "appends #{bytes} bytes to the strings of kept[#{index} % kept.size]" }
    operation(:grow, 3, arguments: growth, text: text) do |world, step|
      next if world.batches.empty?

      world.batches[step.arguments[:index] % world.batches.size].grow(step.arguments[:bytes])
    end

    operation(:redefine, 2, arguments: ->(random) { { site: one_of(random, *Sites::NAMES) } },
                            text: ->(site:) { "defines Sites.#{site} anew" }) do |_, step|
      Sites.define(step.arguments[:site])
    end

    # Classes, methods and frames that are gone when a profile would name them.
    operation(:classes, 2, arguments: ->(random) { { n: one_of(random, 1, 20) } },
                           text: ->(n:) { "makes #{n} classes with methods, and removes them" }) do |_, step|
      step.arguments[:n].times do |i|
        klass = Class.new(Array) { class_eval("def made#{i} = [Object.new, 'x' * #{i}]", "gone #{i}", i) }
        const_set(:Passing, klass)
        klass.new.public_send("made#{i}")
        klass.remove_method("made#{i}")
        remove_const(:Passing)
      end
    end

    operation(:exceptions, 1, text: -> { "raises and rescues, through 30 frames" }) do |_, _|
      descend = ->(depth) { depth.zero? ? raise("deep") : descend.call(depth - 1) }
      begin
        descend.call(30)
      rescue RuntimeError => e
        e.backtrace_locations.size
      end
    end
  end
end
