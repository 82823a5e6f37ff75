# frozen_string_literal: true

module MemprofilerPprof
  # Raised where a call does not fit what the collector is doing, such as {Collector#profile} on one that runs already.
  class StateError < StandardError; end
end
