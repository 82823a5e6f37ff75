# frozen_string_literal: true

# Nothing but allocation, at several depths of the stack: the worst case of an allocation profiler.

[5, 50, 200].each do |depth|
  Bench::Workloads.define("Object.new, #{depth} deep", depth: depth) do
    lambda do
      left = 10_000
      while left > 0
        Object.new
        left -= 1
      end
    end
  end
end
