# encoding: UTF-8
# frozen_string_literal: true

module MemprofilerPprof
  # A value of a profile with what sampling leaves open: see {ProfileData#estimate}.
  class Estimate
    # @return [Float] the best guess, objects or bytes
    attr_reader :value

    # @return [Float] its standard error, in the same unit; Infinity where less than two windows say anything
    attr_reader :standard_error

    # @return [Float] lower end of the 95 % interval
    attr_reader :low

    # @return [Float] upper end of the 95 % interval, Infinity where nothing is known
    attr_reader :high

    # @return [String] "count" or "bytes"
    attr_reader :unit

    # @api private
    def initialize(value:, standard_error:, low:, high:, unit:)
      @value = value
      @standard_error = standard_error
      @low = low
      @high = high
      @unit = unit
      freeze
    end

    # @return [String] such as "3.1 MB (2.7 – 3.5)"
    def to_s
      scale, suffix = scale_of(high.finite? ? [value, high].max : value)
      number = ->(amount) { amount.finite? ? (amount / scale).round(amount.zero? ? 0 : 1) : "∞" }
      "#{number.(value)}#{suffix} (#{number.(low)} – #{number.(high)})"
    end

    # @return [String]
    def inspect = "#<#{self.class} #{self}>"

    private

    def scale_of(amount)
      power = amount < 1_000 ? 0 : [Math.log10(amount).floor / 3, 4].min
      suffix = ["", "k", "M", "G", "T"][power]
      [1_000.0**power, unit == "bytes" ? " #{suffix}B" : suffix]
    end
  end
end
