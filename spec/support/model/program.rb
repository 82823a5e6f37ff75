# frozen_string_literal: true

module Model
  # One call of an operation. The number is its place in the program that a seed gives, and stays what it is when other
  # steps are left out.
  Step = Struct.new(:number, :name, :arguments, :steps)

  # A sequence of steps, of which some hold others: what runs in their block, thread, child …
  class Program
    # @return [Array<Step>]
    attr_reader :steps

    # @return [Integer]
    attr_reader :seed

    # @return [Program] the same for the same seed and length, on every Ruby
    def self.generate(seed, length) = new(seed, Generator.new(seed).program(length))

    def initialize(seed, steps)
      @seed = seed
      @steps = steps
    end

    # @return [Array<Integer>] numbers of all its steps, in order
    def numbers = flat(@steps).map(&:number)

    # @return [Program] without the other steps, nor what they hold
    def only(numbers) = Program.new(@seed, filter(@steps, numbers))

    # @return [Step, nil]
    def step(number) = flat(@steps).find { |step| step.number == number }

    # @return [String] a line for each step
    def to_s = lines(@steps, 0).join("\n")

    private

    def flat(steps) = steps.flat_map { |step| [step, *flat(step.steps)] }

    def filter(steps, numbers)
      steps.select { |step| numbers.include?(step.number) }
           .map { |step| Step.new(step.number, step.name, step.arguments, filter(step.steps, numbers)) }
    end

    def lines(steps, depth)
      steps.flat_map do |step|
        text = OPERATIONS.fetch(step.name).text.call(**step.arguments)
        ["#{step.number.to_s.rjust(4)}  #{"  " * depth}#{text}", *lines(step.steps, depth + 1)]
      end
    end
  end

  # Draws programs. What is drawn depends on nothing that happens when one runs.
  class Generator
    DEEPEST = 2

    def initialize(seed)
      @random = Random.new(seed)
      @number = 0
    end

    def program(length)
      beginning = @random.rand < 0.7 ? %i[create start] : %i[create]
      beginning.map { |name| step(name, slot: 0) } + steps(length, 0, OPERATIONS.keys)
    end

    private

    def step(name, depth = 0, **given)
      operation = OPERATIONS.fetch(name)
      number = @number += 1
      arguments = { **operation.arguments.call(@random), **given }
      held = operation.holds ? steps(@random.rand(1..4), depth + 1, operation.holds.call) : []
      Step.new(number, name, arguments, held)
    end

    def steps(count, depth, names)
      names = names.reject { |name| OPERATIONS.fetch(name).holds } if depth >= DEEPEST
      weights = names.map { |name| OPERATIONS.fetch(name).weight }
      Array.new(count) { step(draw(names, weights), depth) }
    end

    def draw(names, weights)
      point = @random.rand(weights.sum)
      names.zip(weights).find { |_, weight| (point -= weight) < 0 }.first
    end
  end
end
