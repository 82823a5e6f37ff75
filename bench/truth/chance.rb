# frozen_string_literal: true

# How far chance alone may go.
module Chance
  STEPS = 1_000

  class << self
    # @return [Float] what Student's t of so many degrees of freedom exceeds with that probability
    def student_quantile(probability, degrees) = (0.0..1e9).bsearch { |t| student_tail(t, degrees) <= probability }

    # @return [Integer] the least number of n for which as few or fewer are likelier than `probability`, each of them being
    #   so with `share`
    def binomial_least(probability, n, share)
      below = 0.0
      (0..n).find { |count| (below += binomial(n, count, share)) > probability }
    end

    private

    # With t as a tangent the density is a power of the cosine.
    def student_tail(t, degrees)
      integral = lambda do |from|
        step = ((Math::PI / 2) - from) / STEPS
        step * (0...STEPS).sum { |i| Math.cos(from + ((i + 0.5) * step))**(degrees - 1) }
      end
      integral.call(Math.atan(t / Math.sqrt(degrees))) / (2 * integral.call(0))
    end

    def binomial(n, count, share)
      (1..count).inject(1) { |product, i| product * (n - count + i) / i } * (share**count) * ((1 - share)**(n - count))
    end
  end
end
