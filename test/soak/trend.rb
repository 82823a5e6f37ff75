# frozen_string_literal: true

# Whether a series of readings grows, whatever its noise: the median of the slopes between all pairs of them (Theil and
# Sen), over the whole length.
class Trend
  # @return [Float] median of the readings
  attr_reader :level

  # @return [Float] by how much it has grown from the first reading to the last, in the unit of the readings
  attr_reader :growth

  # @param readings [Array<Numeric>] at equal distances
  def initialize(readings)
    @level = median(readings)
    slopes = (0...readings.size).to_a.combination(2).map { |i, j| (readings[j] - readings[i]).fdiv(j - i) }
    @growth = median(slopes) * (readings.size - 1)
  end

  # @param share [Float] of the level
  # @param amount [Numeric] and so much in any case
  # @return [Boolean]
  def flat?(share, amount) = growth <= level * share + amount

  private

  def median(values) = values.sort.then { |sorted| (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0 }
end
