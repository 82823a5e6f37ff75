# frozen_string_literal: true

require "rbconfig"

module Model
  # How the run of a program ended: :passed, :failed (the product did not do what the model says), :crashed or :hung.
  Outcome = Struct.new(:kind, :message, :at, :findings, keyword_init: true) do
    def passed? = kind == :passed
  end

  # A process of its own with the gem loaded, that runs each program in a fork of itself. So programs know nothing of each
  # other, and one that takes its process down takes no other.
  class Nursery
    SCRIPT = File.join(__dir__, "nursery_main.rb")

    # @yieldparam nursery [Nursery]
    def self.open
      nursery = new
      yield nursery
    ensure
      nursery&.close
    end

    def initialize
      folders = $LOAD_PATH.map { |folder| "-I#{folder}" }
      @pipe = IO.popen([{ "RUBYOPT" => nil }, RbConfig.ruby, "--disable=gems", *folders, SCRIPT], "r+b")
    end

    # @param program [Program]
    # @return [Outcome]
    def run(program)
      Marshal.dump(program, @pipe)
      @pipe.flush
      Marshal.load(@pipe)
    end

    def close = @pipe.close
  end
end
