# frozen_string_literal: true

require_relative "../../rakelib/small_extension"

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
  # The program's own view of its signals: what trap gave for each, alone and beside a collector.
  trap_all = <<~'RUBY'
    RESERVED = %w[EXIT SEGV BUS ILL FPE VTALRM KILL STOP]
    NAMED = Signal.list.except(*RESERVED).keys
    def described(handler) = handler.is_a?(Proc) ? "a block" : handler.inspect
    def trap_all(signals, counts)
      signals.map { |signal| described(trap(signal) { counts[signal] += 1 }) }
    end
    def send_all(signals, counts)
      signals.each do |signal|
        Process.kill(signal, $$)
        Timeout.timeout(20) { sleep(0.001) while counts[signal].zero? }
      end
      signals.map { |signal| counts[signal] }
    end
  RUBY

  Collecting::KINDS.each do |kind|
    it "that can be trapped may all be, before, after and while it runs, and come to their handlers (#{kind.name})" do
      program = <<~RUBY
        require "timeout"
        #{trap_all}
        NAMED.delete("CLD") # CHLD by another name
        NAMED.delete("IOT")
        NAMED.delete("POLL")
        moments = %i[before running thread stopped].map do |moment|
          counts = Hash.new(0)
          list = Signal.list
          COLLECTOR&.start! unless moment == :before || moment == :stopped
          previous = moment == :thread ? Thread.new { trap_all(NAMED, counts) }.value : trap_all(NAMED, counts)
          COLLECTOR&.start! if moment == :before
          burn(0.01) while COLLECTOR && moment != :stopped && windows(COLLECTOR) < 2
          got = send_all(NAMED, counts)
          COLLECTOR&.flush
          COLLECTOR&.stop!
          counts.clear
          [previous, got.uniq, send_all(NAMED, counts).uniq, Signal.list == list]
        end
        print moments.inspect
      RUBY
      alone = Child.run("COLLECTOR = nil; #{program}")
      expect(alone).to include("[1], [1], true]")
      expect(Child.run("COLLECTOR = #{kind.code}; #{program}")).to eq alone
    end

    it "are for programs that it makes what they were (#{kind.name})", if: File.exist?("/proc/self/status") do
      program = <<~'RUBY'
        trap(45, "IGNORE")
        trap(50) {}
        trap("USR2", "IGNORE")
        look = "grep -E 'Sig(Pnd|Blk|Ign|Cgt)|ShdPnd' /proc/self/status; cat /proc/self/timers 2>/dev/null"
        seen = [`#{look}`, IO.popen(["sh", "-c", look], &:read), IO.popen("-") { |io| io ? io.read : exec("sh", "-c", look) }]
        reader, writer = IO.pipe
        Process.wait(spawn("sh", "-c", look, out: writer))
        system("sh", "-c", look, out: writer)
        Process.wait(fork { $stdout.reopen(writer); exec("sh", "-c", look) })
        writer.close
        SEEN = seen << reader.read
      RUBY
      output = Child.run(<<~RUBY)
        collector = #{kind.code}
        alone = eval(#{program.dump})
        collector.start!
        burn(0.01) while windows(collector) < 2
        SEEN_ALONE = Object.send(:remove_const, :SEEN)
        beside = eval(#{program.dump})
        # While others start and stop: not for a moment does anybody ignore our signal.
        switching = Thread.new { loop { collector.stop!; collector.start! } }
        texts = Array.new(20) { `grep SigIgn /proc/self/status` }
        switching.kill.join
        print [alone == beside, beside.all? { |text| text.include?("SigCgt") }, texts.uniq.size].inspect
      RUBY
      expect(output).to eq "[true, true, 1]"
    end

    it "do not show in slow system calls (#{kind.name})" do
      output = Child.run(<<~RUBY)
        require "io/wait"
        require "socket"
        require "tempfile"
        require "timeout"
        collector = #{kind.code}
        collector.start!
        stop = false
        noise = Thread.new { burn(0.005) && sleep(0.005) until stop }
        clock = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
        later = ->(&work) { Thread.new { sleep(0.1); work.call } }
        server = TCPServer.new("127.0.0.1", 0)
        port = server.addr[1]
        udp = UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) }
        locked = Tempfile.create("lock").tap { |file| file.flock(File::LOCK_EX) }
        reader, writer = IO.pipe
        mutex, condition = Mutex.new, ConditionVariable.new
        calls = {
          accept: -> { later.() { TCPSocket.new("127.0.0.1", port).close }; server.accept.close },
          recvfrom: -> { later.() { UDPSocket.new.send("x", 0, "127.0.0.1", udp.addr[1]) }; udp.recvfrom(1) },
          flock: -> { later.() { locked.flock(File::LOCK_UN) }; File.open(locked.path) { |file| file.flock(File::LOCK_EX) } },
          sysread: -> { later.() { writer.write("x") }; reader.sysread(1) },
          readpartial: -> { later.() { writer.write("x") }; reader.readpartial(1) },
          wait_readable: -> { later.() { writer.write("x") }; reader.wait_readable(5) or raise "nothing"; reader.getc },
          select: -> { later.() { writer.write("x") }; IO.select([reader, server, udp], nil, nil, 5) or raise "nothing"; reader.getc },
          wait: -> { Process.wait(spawn("sleep 0.1")) },
          popen: -> { IO.popen("sleep 0.1; echo x", &:read) == "x\n" or raise "wrong" },
          nothing_to_select: -> { IO.select([reader], nil, nil, 0.1) and raise "something" },
          nothing_to_wait_for: -> { reader.wait_readable(0.1) and raise "something" },
          sleep: -> { sleep(0.1) }, join: -> { Thread.new { sleep }.join(0.1) and raise "ended" },
          condition: -> { mutex.synchronize { condition.wait(mutex, 0.1) } },
          timeout: -> { begin; Timeout.timeout(0.1) { sleep }; raise "no timeout"; rescue Timeout::Error; nil; end }
        }
        wrong = calls.filter_map do |name, call|
          start = clock.()
          call.call
          raise "after \#{clock.() - start} s" unless (clock.() - start) >= (name == :popen ? 0.05 : 0.09)
          nil
        rescue StandardError => error
          [name, error.full_message(highlight: false)]
        end
        stop = true
        noise.join
        opened = windows(collector)
        collector.stop!
        print [wrong, opened > 2].inspect
      RUBY
      expect(output).to eq "[[], true]"
    end

    it "may come by the thousand, and time out by the dozen (#{kind.name})" do
      output = Child.run(<<~RUBY)
        require "timeout"
        collector = #{kind.code}
        collector.start!
        handled = 0
        kept = []
        trap(:USR1) { handled += 1; kept[handled % 100] = ["in a handler", handled] }
        10_000.times { Process.kill(:USR1, $$) }
        trap(:USR1, "IGNORE")
        outcomes = Array.new(24) do |i| # each takes Ruby 3.1 its 200 ms
          Timeout.timeout(0.0002 * (i % 20 + 1)) { loop { kept[i % 100] = "x" * i } }
        rescue Timeout::Error
          :timeout
        end
        burn(0.01) while windows(collector) < 2
        data = collector.flush
        allocations = collector.stats[:allocations]
        collector.stop!
        print [handled.between?(9_900, 10_000), outcomes.tally == { timeout: 24 }, data.pprof_data.size > 100,
               (allocations.except(:vm).values.sum - allocations[:vm]).abs <= 1].inspect
      RUBY
      expect(output).to eq "[true, true, true, true]"
    end
  end

  describe "of which the timer has one", if: RUBY_PLATFORM.include?("linux") do
    bursts = Collecting::KINDS.last.code

    # Each step is taken at once; a number of the last says how often the program's handler ran.
    {
      "start, take, stop" => [%w[start take stop], "a block"], "start, ignore, stop" => [%w[start ignore stop], "IGNORE"],
      "start, reset, stop" => [%w[start reset stop], "SYSTEM_DEFAULT"],
      "start, take, start another, stop" => [%w[start take other stop], "a block"],
      "start, take, ignore, work, stop" => [%w[start take ignore work stop], "IGNORE"],
      "start, take, work, reset, stop, start" => [%w[start take work reset stop start stop], "SYSTEM_DEFAULT"],
      "start, take, fork, stop" => [%w[start take fork stop], "a block"],
      "start, stop, take, start" => [%w[start stop take start work stop], "a block"],
      "start, stop" => [%w[start work stop], "SYSTEM_DEFAULT"]
    }.each do |order, (steps, last)|
      it "is the program's after #{order}" do
        output = Child.run(<<~RUBY)
          collector, another = #{bursts}, #{bursts}
          signal = nil
          taken = 0
          actions = {
            "start" => -> { collector.start!; signal ||= collector.stats[:burst][:signal] },
            "other" => -> { another.start! }, "stop" => -> { collector.stop!; another.stop! },
            "take" => -> { trap(signal) { taken += 1 } }, "ignore" => -> { trap(signal, "IGNORE") },
            "reset" => -> { trap(signal, "SYSTEM_DEFAULT") }, "work" => -> { 5.times { burn(0.03) && collector.stats } },
            "fork" => lambda do
              pid = fork { (burn(0.03) while windows(collector) < 2) || exit!(taken <= 1) }
              Process.wait2(pid)[1].success? or abort "in a child"
            end
          }
          #{steps}.each { |step| actions.fetch(step).call }
          taken > 1 and abort "\#{taken} ticks of ours came to the program"
          handler = trap(signal, "IGNORE")
          print handler.is_a?(Proc) ? "a block" : handler
        RUBY
        expect(output).to eq last
      end
    end

    it "may come to threads that are not Ruby's, while Ruby runs, sleeps and forks" do
      output = Child.run(<<~RUBY)
        require #{SmallExtension.build(File.expand_path("../support/native_threads", __dir__)).dump}
        def hot = Object.new
        collector = #{bursts}
        collector.start!
        NativeThreads.start(2)
        before = windows(collector)
        burn(0.05) { 200.times { hot } } until windows(collector) > before + 20
        10.times { sleep 0.01 }
        children = Array.new(4) { fork { 200.times { hot } && exit!(imbalance(collector).zero? ? 0 : 9) } }
        statuses = children.map { |child| Process.wait2(child).last.exitstatus }
        rounds = NativeThreads.join
        data = collector.flush
        stats = collector.stats
        collector.stop!
        print [windows(collector) > before + 20, stats[:mode], stats[:burst_fallback], imbalance(collector), statuses,
               allocations_in(data, :hot).positive?, rounds.all?(&:positive?)].inspect
      RUBY
      expect(output).to eq "[true, :burst, nil, 0, [0, 0, 0, 0], true, true]"
    end

    it "is another one soon after the program has taken it, and windows open" do
      output = Child.run(<<~RUBY)
        collector = #{bursts}
        collector.start!
        signals = Array.new(3) do
          collector.stats[:burst][:signal].tap do |signal|
            trap(signal) {}
            collector.flush
            before = windows(collector)
            burn(0.02) while windows(collector) < before + 2
          end
        end
        print [signals.uniq.size, collector.stats.values_at(:mode, :burst_fallback), collector.stop!].inspect
      RUBY
      expect(output).to eq "[3, [:burst, nil], true]"
    end

    it "is none once the program has taken all, which is told, and one again when there is one" do
      output = Child.run(<<~RUBY)
        collector = #{bursts}
        collector.start!
        burn(0.01) while windows(collector) < 2
        (34..64).each { |signal| trap(signal) {} }
        told = collector.stats.values_at(:mode, :burst_fallback)
        burn(0.1)
        allocations = collector.stats[:allocations]
        profile = MemprofilerPprof::ProfileReader.read(collector.flush.pprof_data)
        trap(50, "SYSTEM_DEFAULT")
        before = windows(collector)
        burn(0.02) while windows(collector) < before + 2
        stats = collector.stats
        collector.stop!
        print [told, allocations.except(:vm).values.sum - allocations[:vm], profile.samples.any?,
               stats[:burst_fallback], stats[:burst][:signal]].inspect
      RUBY
      expect(output).to eq '[[:burst, "every real-time signal is in use"], 0, true, nil, 50]'
    end
  end
end
