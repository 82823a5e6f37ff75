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
end
