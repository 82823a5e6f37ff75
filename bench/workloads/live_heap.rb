# frozen_string_literal: true

# A steady heap of a million objects, of which each step replaces one and drops some more: most of the time goes to
# garbage collection.

Bench::Workloads.define("live heap", slice: 0.5) do
  size = 250_000
  node = ->(i) { [Object.new, "node #{i}", { i => nil }] } # four objects with the array
  heap = Array.new(size, &node)
  at = 0
  lambda do
    2_000.times do
      at = (at + 7_919) % size
      heap[at] = node.(at)
      Array.new(4) { Object.new }
    end
  end
end
