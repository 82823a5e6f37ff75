# frozen_string_literal: true

module Bench
  # What is measured against no profiler: a way to profile, or a part of one. Defined in bench/variants.
  #
  #   name       as the tables show it
  #   rate       probability that an allocation is recorded, nil where that is not constant
  #   tells      what it tells of an allocation: any of :stack (whole), :retained
  #   peer       somebody else's
  #   settle     CPU seconds that it needs before it runs as it will go on
  #   slice      CPU seconds to measure it for, at least
  #   lacks      gives why it cannot be used here, or nil
  #   load       requires what it needs
  #   start      begins
  #   stop       ends without a result, so that it can start again; ours alone
  #   result     ends, and gives the profile as it would be written to a file; nil where there is none
  Variant = Struct.new(:name, :rate, :tells, :peer, :settle, :slice, :lacks, :load, :start, :stop, :result,
                       keyword_init: true) do
    def initialize(tells: [], peer: false, settle: 0, slice: 0, lacks: -> {}, load: -> {}, **rest)
      super
    end

    def exact?
      rate == 1
    end
  end

  # The list of them.
  module Variants
    FILES = %w[hooks ours peers].freeze

    @all = {}

    class << self
      def define(name, **attributes)
        @all[name] = Variant.new(name: name, **attributes)
      end

      # @return [Array<Variant>] in the order of their definition
      def all
        FILES.each { |file| require_relative "../variants/#{file}" }
        @all.values
      end
    end
  end
end
