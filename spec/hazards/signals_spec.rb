# frozen_string_literal: true

# Signals come at any instruction, and what their handlers raise comes with them.
RSpec.describe "signals" do
  it "stop a profile whose start or end they interrupt" do
    output = Child.run(<<~'RUBY')
      require "rbconfig"
      Boom = Class.new(StandardError)
      armed = false
      trap(:USR1) { (armed = false) || raise(Boom) if armed }
      killer = spawn(RbConfig.ruby, "--disable=gems", "-e", "loop { sleep 0.0003; Process.kill(:USR1, #{Process.pid}) }")
      collector = exact
      left_running = 0
      400.times do
        begin
          armed = true
          loop { collector.profile { 1 } }
        rescue Boom
          left_running += 1 if collector.stop!
        end
      end
      trap(:USR1, "IGNORE")
      Process.kill(:KILL, killer)
      print left_running
    RUBY
    expect(output).to eq "0"
  end
end
