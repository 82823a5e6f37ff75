# frozen_string_literal: true

module MemprofilerPprof
  # The lowest sampling rate: one allocation in a million.
  MIN_SAMPLE_RATE = 1.0e-6

  # What each option may be. Values come from anywhere, so nothing here calls a method that they define.
  # @api private
  module Options
    # One option: the types it takes, a test for values of these types, and both in words.
    Rule = Struct.new(:types, :test, :allowed, keyword_init: true)

    integer = lambda do |range|
      Rule.new(types: [Integer], test: range.method(:cover?), allowed: "an Integer from #{range.min} to #{range.max}")
    end
    one_of = lambda do |*symbols|
      *others, last = symbols.map(&:inspect)
      Rule.new(types: [Symbol], test: symbols.method(:include?), allowed: "#{others.join(", ")} or #{last}")
    end
    boolean = Rule.new(types: [TrueClass, FalseClass], test: ->(_) { true }, allowed: "true or false")
    rate = Rule.new(types: [Float, Integer, Rational], test: (MIN_SAMPLE_RATE..1).method(:cover?),
                    allowed: "a Float, Integer or Rational from #{MIN_SAMPLE_RATE} to 1")
    share = Rule.new(types: [Float, Integer, Rational], test: ->(value) { value > 0 && value <= 0.5 },
                     allowed: "a Float or Rational above 0, up to 0.5")
    seconds = Rule.new(types: [Float, Integer, Rational], test: (0..60).method(:cover?),
                       allowed: "a Float, Integer or Rational from 0 to 60")
    optional = lambda do |rule, meaning|
      Rule.new(types: [*rule.types, NilClass], test: ->(value) { value.nil? || rule.test.call(value) },
               allowed: "#{rule.allowed}, or nil (#{meaning})")
    end

    RULES = {
      mode: one_of.(:fixed, :burst),
      overhead: optional.(share, "0.01 with mode: :burst"),
      prelude: optional.(seconds, "0.25 with mode: :burst"),
      timer_signal: optional.(integer.(34..64), "a real-time signal that nobody handles"),
      sample_rate: optional.(rate, "0.01"),
      max_heap_samples: integer.(1..16_777_216),
      max_allocation_samples: integer.(16..16_777_216),
      memory_limit: integer.(1024**2..1024**4),
      max_stack_depth: integer.(1..10_000),
      class_names: optional.(one_of.(:label, :frame, :off), "as the sample types have it"),
      sample_types: one_of.(:memprofiler, :go),
      raw_counts: boolean,
      liveness: one_of.(:auto, :free_hook, :weak_map, :none),
      threads: one_of.(:all, :current),
      seed: optional.(integer.(0..(2**64 - 1)), "a random one"),
      gc: boolean,
      min_gc_age: integer.(0..(2**31 - 1))
    }.each_value(&:freeze).freeze

    class << self
      # @return [Object] the value, which is allowed
      # @raise [TypeError, ArgumentError] naming the option, the value and what is allowed
      def check(option, value)
        unless Ractor.current == Ractor.main
          raise Ractor::UnsafeError, "a collector is to be used from the main Ractor alone"
        end

        rule = RULES.fetch(option)
        if rule.types.none? { |type| type === value }
          raise TypeError, "#{option} must be #{rule.allowed}, not #{describe(value)}"
        end
        return value if rule.test.call(value)

        raise ArgumentError, "#{option} must be #{rule.allowed}, not #{describe(value)}"
      end

      # What belongs to one mode alone.
      # @return [void]
      # @raise [ArgumentError] naming both of what does not go together
      def check_mode(mode, overhead:, prelude:, timer_signal:, sample_rate:, raw_counts:)
        if mode == :fixed
          refuse("overhead", overhead, "mode: :fixed, which follows sample_rate (pass mode: :burst)") if overhead
          refuse("prelude", prelude, "mode: :fixed (pass mode: :burst)") if prelude
          refuse("timer_signal", timer_signal, "mode: :fixed (pass mode: :burst)") if timer_signal
          return
        end
        refuse("sample_rate", sample_rate, "mode: :burst, which follows overhead") if sample_rate
        refuse("raw_counts", raw_counts, "mode: :burst, where samples alone say nothing") if raw_counts
      end

      # @return [Object] the value, or the default for nil
      # @raise (see .check)
      def override(option, value, default)
        nil.equal?(value) ? default : check(option, value)
      end

      # The formats that a flush is to give.
      # @return [Symbol, Array<Symbol>, nil] as given, in an Array of its own
      # @raise (see .check)
      def check_formats(value)
        return override(:sample_types, value, nil) unless Array === value

        formats = [].replace(value).each { |format| check(:sample_types, format) }
        return formats if formats.any? && formats.uniq.size == formats.size

        raise ArgumentError, "sample_types must be some of :memprofiler and :go, each once, not #{formats.inspect}"
      end

      private

      def refuse(option, value, with)
        raise ArgumentError, "#{option}: #{describe(value)} does not go with #{with}"
      end

      INSPECTED = [NilClass, TrueClass, FalseClass, Integer, Float, Rational, Symbol, String].freeze
      LONGEST = 80
      private_constant :INSPECTED, :LONGEST

      def describe(value)
        type = INSPECTED.find { |candidate| candidate === value } or return "an object of #{class_name(value)}"
        return "an Integer of #{value.bit_length} bits" if type == Integer && value.bit_length > 256

        text = type.instance_method(:inspect).bind_call(value)
        text.length > LONGEST ? "#{text[0, LONGEST]}..." : text
      end

      def class_name(value)
        type = Kernel.instance_method(:class).bind_call(value)
        Module.instance_method(:name).bind_call(type) || "an anonymous class"
      end
    end
  end
  private_constant :Options
end
