# frozen_string_literal: true

module Bench
  # A piece of work to profile. Defined in bench/workloads.
  #
  #   name     as the tables head their columns
  #   depth    frames of the stack at an Object.new right in the unit
  #   slice    CPU seconds to measure it for, at least
  #   prepare  gives the unit: work of some milliseconds, to be called again and again, in a forked process
  #   gems     what it needs of Gems
  Workload = Struct.new(:name, :depth, :slice, :gems, :prepare, keyword_init: true)

  # The list of them.
  module Workloads
    FILES = %w[objects strings json rack orm live_heap threads].freeze
    ORDINARY_DEPTH = 50
    SLICE = 0.1

    @all = {}

    class << self
      def define(name, depth: ORDINARY_DEPTH, slice: SLICE, gems: [], &prepare)
        @all[name] = Workload.new(name: name, depth: depth, slice: slice, gems: gems, prepare: prepare)
      end

      # @return [Array<Workload>]
      def all
        FILES.each { |file| require_relative "../workloads/#{file}" }
        @all.values
      end
    end
  end
end
