# frozen_string_literal: true

module Model
  # What chance may do. Bounds hold for every n, without an approximation; each check is wrong with a probability of at
  # most 2 e^-LIMIT, so that a hundred thousand of them are wrong once in ten million times.
  module Statistics
    LIMIT = 28.0

    # n independent draws of probability p, of which k are samples (Chernoff's bound).
    def self.likely?(k, n, p)
      return false if k > n || k.negative?
      return k == n if p >= 1
      return true if n.zero?

      share = k.fdiv(n)
      divergence = term(share, p) + term(1 - share, 1 - p)
      n * divergence <= LIMIT
    end

    # A sum whose parts are each off by `largest` at most, with that variance in all (Bernstein's bound).
    def self.within?(error, variance, largest)
      error.abs <= Math.sqrt(2 * variance * LIMIT) + (largest * LIMIT / 3)
    end

    def self.term(share, p) = share.zero? ? 0.0 : share * Math.log(share / p)
    private_class_method :term
  end

  # Sums over many programs, where a small bias shows that no single one can show.
  class Sums
    def initialize
      @draws = Hash.new { |hash, key| hash[key] = [0, 0] }
      @thinned = [0, 0, 0, 0.0, 1]
      @bursts = []
    end

    # @param findings [Array<Array>] what worlds have noted
    def add(findings)
      findings.each do |kind, *numbers|
        case kind
        when :draws then add_draws(*numbers)
        when :thinned then add_thinned(*numbers)
        when :burst then @bursts << numbers
        end
      end
    end

    # @return [Array<String>] what is too far from what was true
    def violations
      unlikely = @draws.reject { |(_, rate), (k, n)| Statistics.likely?(k, n, rate) }
                       .map { |(what, rate), (k, n)| "#{what} at rate #{rate}: #{k} samples of #{n}" }
      unlikely << "retained after thinning: #{thinned}" unless thinned_likely?
      unlikely << "bursts: #{bursts}" unless bursts_likely?
      unlikely
    end

    def to_s
      draws = @draws.sort_by(&:to_s).map { |(what, rate), (k, n)| "#{what} at #{rate}: #{k} of #{n}" }
      [*draws, "retained after thinning: #{thinned}", "bursts: #{bursts}"].join("; ")
    end

    private

    def add_draws(what, rate, k, n)
      sums = @draws[[what, rate]]
      sums[0] += k
      sums[1] += n
    end

    def add_thinned(estimated, kept, weight)
      @thinned[0] += 1
      @thinned[1] += estimated
      @thinned[2] += kept
      @thinned[3] += kept * (weight - 1.0)
      @thinned[4] = [@thinned[4], weight].max
    end

    def thinned = "#{@thinned[1]} estimated, #{@thinned[2]} kept in #{@thinned[0]} runs"

    def thinned_likely?
      _, estimated, kept, variance, largest = @thinned
      Statistics.within?(estimated - kept, variance, largest)
    end

    def bursts
      "#{@bursts.sum(&:first)} estimated at sites, #{@bursts.sum(&:last)} allocated in #{@bursts.size} runs"
    end

    # Few windows say little, and what is seen too late is missed: a tenth of all is let pass beside six standard errors.
    def bursts_likely?
      errors = @bursts.map { |estimated, allocated| estimated - allocated }
      return true if errors.size < 30

      errors.sum.abs <= (6 * Math.sqrt(errors.sum { |error| error * error })) + (0.1 * @bursts.sum(&:last))
    end
  end
end
