# frozen_string_literal: true

# What no profiler that keeps its hooks in can be cheaper than.

{ "empty NEWOBJ hook" => false, "both empty hooks" => true }.each do |name, deaths|
  Bench::Variants.define(name, load: -> { require_relative "../support/floor" },
                               start: -> { MemprofilerFloor.install(0, false, deaths) })
end
