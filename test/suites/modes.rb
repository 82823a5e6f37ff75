# frozen_string_literal: true

module Suites
  # How a suite is profiled: options of the collector.
  MODES = {
    "free_hook" => { sample_rate: 1, liveness: :free_hook },
    "weak_map" => { sample_rate: 1, liveness: :weak_map },
    "burst" => { mode: :burst, overhead: 0.05 }
  }.freeze
end
