# frozen_string_literal: true

module Model
  # What a step may do. `holds`: the operations that it may hold in turn, nil if none; `arguments`: drawn from a Random;
  # `text`: how it reads in a report; `run`: does it in a World, with the model's own account of it.
  Operation = Struct.new(:name, :weight, :holds, :arguments, :text, :run)

  OPERATIONS = {} # filled by the files in operations/

  # The few words that define them.
  module Defining
    NO_ARGUMENTS = ->(_) { {} }

    # @param weight [Integer] how often it is drawn, beside the others
    # @yieldparam world [World]
    # @yieldparam step [Step]
    def operation(name, weight, text:, arguments: NO_ARGUMENTS, holds: nil, &run)
      OPERATIONS[name] = Operation.new(name, weight, holds, arguments, text, run)
    end

    # One on a collector: nothing is done where the slot has none.
    # @yieldparam expected [Expected]
    def on_collector(name, weight, text:, arguments: NO_ARGUMENTS, holds: nil)
      with_slot = ->(random) { { slot: slot(random), **arguments.call(random) } }
      named = ->(slot:, **others) { "c#{slot}.#{text.call(**others)}" }
      operation(name, weight, text: named, arguments: with_slot, holds: holds) do |world, step|
        expected = world.slots[step.arguments.fetch(:slot)]
        yield world, step, expected if expected
      end
    end

    # Mostly the first: what happens to one collector is more than what happens to three.
    def slot(random) = [0, 0, 0, 0, 1, 1, 2][random.rand(7)]

    def one_of(random, *choices) = choices[random.rand(choices.size)]

    # @return [Hash] each option with that probability, if at all
    def some(random, probability, choices)
      choices.each_with_object({}) do |(name, values), drawn|
        yes = random.rand < probability
        value = one_of(random, *values)
        drawn[name] = value if yes
      end
    end

    def in_words(options) = options.map { |name, value| "#{name}: #{value.inspect}" }.join(", ")

    # Every operation but these.
    def all_but(*names) = -> { OPERATIONS.keys - names }
  end
end

%w[life readings objects surroundings strikes bad_input].each { |name| require_relative "operations/#{name}" }
