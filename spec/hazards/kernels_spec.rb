# frozen_string_literal: true

require_relative "../../rakelib/small_extension"

# Kernels that a program may meet elsewhere, as far as bursts depend on them.
RSpec.describe "a kernel", if: RUBY_PLATFORM.include?("linux") do
  define_method(:run) do |kernel, code|
    preloaded = [ENV.fetch("LD_PRELOAD", nil), "#{SmallExtension.build(File.expand_path("../support/other_kernel", __dir__))}.so"]
    Child.run(code, environment: { "LD_PRELOAD" => preloaded.compact.join(" "), "OTHER_KERNEL" => kernel })
  end

  it "whose ticks do not arrive gives a fixed rate, told once a start, at a bounded price" do
    output = run("deaf", <<~'RUBY')
      $stderr = $stdout
      collector = MemprofilerPprof::Collector.new(mode: :burst)
      2.times do
        before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
        collector.start!
        price = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - before
        kept = Array.new(20_000) { Object.new }
        data = collector.flush
        stats = collector.stats
        collector.stop!
        puts [stats[:mode], stats[:burst_fallback], stats[:burst], stats[:samples].between?(100, 300), price < 0.3,
              kept.size, stats[:allocations][:unseen]].inspect
      end
      puts Signal.list.values.select { |signal| signal > 33 }.map { |signal| trap(signal, "DEFAULT") }.uniq.inspect
    RUBY
    told = "MemprofilerPprof::Collector: a fixed rate of 0.01 instead of in bursts, for the timer's signal does not arrive\n" \
           "[:fixed, \"the timer's signal does not arrive\", nil, true, true, 20000, 0]\n"
    expect(output).to match(/\A(#{Regexp.escape(told)}){2}\[("DEFAULT"|nil|, )*\]\n\z/)
  end

  # The main one, which gets all signals, allocates least.
  it "that signals the main thread, whichever ran, gives every thread its share", unless: Child.sanitized? do
    output = run("6.1", <<~'RUBY')
      collector = MemprofilerPprof::Collector.new(mode: :burst, overhead: 0.5, prelude: 0)
      counts = Hash.new(0)
      def fast = Array.new(50) { Object.new }
      def slow = 500.times { Math.sqrt(2.0) } && Array.new(50) { Object.new }
      def least = Array.new(50) { Object.new }
      collector.start!
      going_on = true
      threads = %i[fast slow].map do |site|
        Thread.new { (send(site) && counts[site] += 51) while going_on }
      end
      (least && counts[:least] += 51) while sleep(0.002) && windows(collector) < 120
      going_on = false
      threads.each(&:join)
      data = collector.flush
      stats = collector.stats
      collector.stop!
      whole = counts.values.sum.to_f
      counts.each do |site, n|
        estimate = data.estimate(/#{site}\z/, type: :allocations)
        off = (estimate.value - n).abs
        slack = 0.06 * whole # threads take turns of a tenth of a second, of which there are few
        next if off <= (6 * estimate.standard_error) + slack && n.between?(estimate.low - slack, estimate.high + slack)

        print "#{site}: #{n} of #{whole}, estimated #{estimate}, #{stats[:burst]}\n"
      end
      print [stats[:mode], stats[:burst_fallback], stats[:burst][:windows] >= 120, imbalance(collector)].inspect
    RUBY
    expect(output).to eq "[:burst, nil, true, 0]"
  end

  it "that signals the main thread interrupts none of its waits" do
    output = run("6.1", <<~'RUBY')
      collector = MemprofilerPprof::Collector.new(mode: :burst, overhead: 0.5, prelude: 0.02)
      collector.start!
      reader, writer = IO.pipe
      worker = Thread.new { writer.write((burn(0.5) || "done")) && writer.close }
      read = reader.read
      second = Thread.new { burn(0.2) }
      pid = spawn("sleep 0.1")
      status = Process.wait2(pid).last.exitstatus
      silent, open = IO.pipe
      selected = IO.select([silent], nil, nil, 0.05)
      open.close
      waited = [worker, second].map { |thread| thread.join.status }
      forked = fork { burn(0.1) || exit!(imbalance(collector).zero? ? 0 : 3) }
      print [read, status, selected, waited, Process.wait2(forked).last.exitstatus, imbalance(collector)].inspect
    RUBY
    expect(output).to eq '["done", 0, nil, [false, false], 0, 0]'
  end

  it "that signals the main thread ends no program by a tick that comes when bursts are over" do
    output = run("6.1", <<~'RUBY')
      going_on = true
      busy = Thread.new { Array.new(50) { Object.new } while going_on }
      worker = Thread.new do
        collector = MemprofilerPprof::Collector.new(mode: :burst, overhead: 0.5, prelude: 0)
        300.times { (collector.start! && burn(0.004)) || collector.stop! }
        collector.start!
        20.times.count { Process.wait2(fork { burn(0.02) || exit!(0) })[1].success? }
      end
      print worker.value
      going_on = false
      busy.join
    RUBY
    expect(output).to eq "20"
  end

  it "that signals the main thread ends bursts also where no signal can be sent", if: RUBY_VERSION >= "3.3" do
    output = run("6.1", <<~'RUBY')
      $stderr = $stdout
      limit = Process.getrlimit(:SIGPENDING)
      collector = MemprofilerPprof::Collector.new(mode: :burst, prelude: 0)
      collector.start!
      Process.setrlimit(:SIGPENDING, 0, limit[1])
      burn(0.1)
      ended = fork { burn(0.05) || exit!(collector.stop! ? 0 : 1) }.then { |pid| Process.wait2(pid)[1].success? }
      stopped = collector.stop!
      print [ended, stopped].inspect
    RUBY
    expect(output).to end_with "[true, true]"
  end

  # Before 3.3 the VM may leave a job to the thread in whose handler it was triggered, though that waits.
  it "that signals the main thread, which waits, has as many windows all the same", if: RUBY_VERSION >= "3.3" do
    output = run("6.1", <<~'RUBY')
      collector = MemprofilerPprof::Collector.new(mode: :burst, overhead: 0.5, prelude: 0)
      collector.start!
      reader, writer = IO.pipe
      results = [-> { reader.read }, -> { sleep }, -> { Process.wait(spawn("sleep 1")) }].map do |wait|
        main = Thread.current
        before = windows(collector)
        worker = Thread.new do
          ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 20
          burn(0.02) until windows(collector) > before + 20 || Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends
          writer.close
          main.wakeup
        end
        wait.call
        worker.join
        windows(collector) - before > 20
      end
      stats = collector.stats[:burst]
      print results.inspect, " ", stats[:missed] < stats[:observed] / 4, " ", imbalance(collector)
    RUBY
    expect(output).to eq "[true, true, true] true 0"
  end
end
