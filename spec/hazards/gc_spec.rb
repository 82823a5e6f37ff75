# frozen_string_literal: true

# What a program does to its garbage collector.
RSpec.describe "the GC" do
  it "collects for gc: true where it is disabled, and stays disabled" do
    output = Child.run(<<~'RUBY')
      GC.disable
      collector = exact
      collector.start!
      make = -> { Fiber.new { Array.new(1_000) { Object.new } && nil }.resume } # on a machine stack of its own
      make.call
      retained = [collector.flush(gc: true).heap_samples_count]
      disabled = [GC.disable]
      make.call
      collector.stop!(gc: true)
      retained << collector.flush.heap_samples_count
      print [retained.max < 100, disabled << GC.disable].inspect
    RUBY
    expect(output).to eq "[true, [true, true]]"
  end

  # What has moved before the start is counted as freed after it, without an event.
  it "may compact in the sweep that a start comes into" do
    skip "no compaction here" unless GC.respond_to?(:auto_compact=)
    output = Child.run(<<~'RUBY')
      retained = Array.new(60) do |i|
        GC.auto_compact = true
        Thread.new { GC.start(full_mark: true, immediate_sweep: false) }.join
        GC.auto_compact = i.even?
        collector = exact(liveness: :free_hook)
        collector.start!
        kept = Array.new(500) { Object.new }
        GC.start
        data = collector.flush
        collector.stop!
        [data.heap_samples_count >= kept.size, collector.stats[:dropped_samples][:untracked]]
      end
      print retained.uniq.inspect
    RUBY
    expect(output).to eq "[[true, 0]]"
  end

  it "may compact in a sweep that a flush and a fork come into" do
    skip "no compaction here" unless GC.respond_to?(:auto_compact=)
    output = Child.run(<<~'RUBY')
      lost = Array.new(6) do
        collector = exact(liveness: :free_hook)
        collector.start!
        kept = Array.new(500) { Object.new }
        GC.auto_compact = true
        Thread.new { GC.start(full_mark: true, immediate_sweep: false) }.join
        GC.auto_compact = false
        child = fork { collector.flush && kept.concat(Array.new(9) { Object.new }) && GC.start; exit!(collector.flush.heap_samples_count >= 9) }
        Process.wait(child)
        [$?.success?, collector.flush.heap_samples_count >= 500, collector.stop!]
      end
      print lost.uniq.inspect
    RUBY
    expect(output).to eq "[[true, true, true]]"
  end
end
