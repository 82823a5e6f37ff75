# frozen_string_literal: true

require "timeout"

# A flush that something interrupts loses nothing and leaves nothing half done.
Interruption = Class.new(StandardError)

RSpec.shared_examples "an interrupted flush" do |liveness|
  include_context "with liveness", liveness

  def make(n) = Array.new(n) { Object.new }

  # Many rows, so that a flush takes a while.
  def many_rows(collector, n)
    source = (1..n).map { |i| "def self.row#{i} = Object.new\n" }.join
    holder = Module.new { module_eval(source) }
    (1..n).each { |i| holder.public_send("row#{i}") }
    collector.stats[:rows]
  end

  it "gives its allocations to the next one, whenever an exception comes" do
    collector = exact
    collector.start!
    many_rows(collector, 3_000)
    flushed = []
    interrupted = 0
    40.times do |i|
      make(50)
      main = Thread.current
      ready = Queue.new
      thread = Thread.new do
        ready.pop
        sleep(i * 0.0001)
        main.raise(Interruption)
      end
      begin
        ready << true
        flushed << collector.flush
        thread.join
      rescue Interruption
        interrupted += 1
      end
      begin
        thread.join
      rescue Interruption
        interrupted += 1
      end
    end
    collector.stop!
    flushed << collector.flush
    totals = flushed.map { |data| read(data).total("allocations") }
    expect(totals.sum).to eq read(collector.snapshot).total("allocations")
    expect(flushed.sum(&:allocation_samples_count)).to eq collector.stats[:allocations][:counted]
    expect(interrupted).to eq 40
    expect(flushed.size).to be < 41
    expect(flushed.sum(&:duration)).to be_within(1e-6).of(collector.snapshot.duration)
    expect(balance(collector).reduce(:-)).to eq 0
  end

  it "gives its interval back too" do
    collector = exact
    collector.start!
    many_rows(collector, 3_000)
    started = collector.snapshot.started_at
    begin
      Timeout.timeout(0.0005, Interruption) do
        1_000.times { collector.flush.then { |data| started = data.started_at + data.duration } }
      end
    rescue Interruption
      data = collector.flush
      expect(data.started_at).to be_within(0.001).of(started)
    ensure
      collector.stop!
    end
  end

  it "leaves no own work behind: what follows is sampled" do
    collector = exact
    collector.start!
    20.times do |i|
      Timeout.timeout(0.0002 * (i + 1), Interruption) { collector.flush(gc: true) while true }
    rescue Interruption
      before = collector.stats[:allocations]
      make(100)
      after = collector.stats[:allocations]
      expect(after[:counted] - before[:counted]).to be >= 100
      expect(after[:own] - before[:own]).to be < 200
    end
    collector.stop!
  end

  it "may run in a trap handler, a finalizer, another flush, at exit" do
    output = run_child(<<~'RUBY')
      collector = exact
      collector.start!
      sizes = []
      trap(:USR1) { sizes << collector.flush.allocation_samples_count }
      finalizer = proc { sizes << collector.flush.allocation_samples_count }
      objects = Array.new(200) { Object.new.tap { |object| ObjectSpace.define_finalizer(object, finalizer) } }
      100.times do
        Process.kill(:USR1, Process.pid)
        sizes << collector.flush.allocation_samples_count
        Array.new(20) { Object.new }
      end
      objects = nil
      GC.start
      10.times { sizes << collector.flush(gc: true).allocation_samples_count }
      flush = -> { sizes << collector.flush.allocation_samples_count && Array.new(50) { "x" } }
      threads = Array.new(4) { Thread.new { 20.times { flush.call } } }
      threads.each(&:join)
      at_exit do
        sizes << collector.flush.allocation_samples_count
        collector.stop!
        sizes << collector.flush.allocation_samples_count
        $stdout.write [sizes.size >= 280, sizes.sum == collector.stats[:allocations][:counted]].inspect
      end
    RUBY
    expect(output).to eq "[true, true]"
  end

  it "swallows no exception that another thread raises, whatever it strikes" do
    lost = run_child(<<~'RUBY').to_i
      Struck = Class.new(Exception)
      collector = exact
      collector.start!
      raised = rescued = 0
      ready = done = false
      target = Thread.new do
        Thread.handle_interrupt(Struck => :never) do
          ready = true
          until done && !Thread.pending_interrupt?
            begin
              Thread.handle_interrupt(Struck => :immediate) { 20.times { |i| [i.to_s, Object.new] } }
            rescue Struck
              rescued += 1
            end
          end
        end
      end
      Thread.pass until ready
      40.times { target.raise(Struck) || (raised += 1) && sleep(0.001) }
      done = true
      target.join
      collector.stop!
      puts raised - rescued
    RUBY
    expect(lost).to eq 0
  end

  it "lets a thread that allocates be killed at any time" do
    run_child(<<~'RUBY')
      collector = exact
      collector.start!
      threads = Array.new(40) do |i|
        thread = Thread.new { Array.new(10) { |j| [j.to_s, "x" * j] } while true }
        sleep(0.0001 * (i % 20))
        thread.kill
      end
      abort "unkilled: #{threads.count(&:alive?)}" unless threads.all? { |thread| thread.join(20) }
      collector.stop!
    RUBY
  end

  it "does not hold up the thread that is killed meanwhile" do
    collector = exact
    collector.start!
    many_rows(collector, 2_000)
    10.times do
      thread = Thread.new { loop { collector.flush } }
      sleep 0.005
      thread.kill
      expect(thread.join(10)).to be thread
    end
    collector.stop!
    expect(balance(collector).reduce(:-)).to eq 0
  end

  it "gives nothing back into another run" do
    Thread.report_on_exception = false # it may be raised before the thread has begun
    collector = exact
    15.times do
      collector.start!
      many_rows(collector, 200)
      thread = Thread.new { collector.flush }
      Thread.pass
      collector.stop!
      collector.start!
      thread.raise(Interruption)
      begin
        thread.join
      rescue Interruption
        nil
      end
      data = collector.snapshot # before any of RSpec's own
      counted = collector.stats[:allocations][:counted]
      collector.stop!
      expect(counted).to be < 200
      expect(read(data).total("allocations")).to be <= counted
      expect(balance(collector).reduce(:-)).to eq 0
    end
  ensure
    Thread.report_on_exception = true
  end

  it "holds no lock: start, stop, stats and other flushes go on" do
    collector = exact
    collector.start!
    many_rows(collector, 1_000)
    busy = Array.new(3) { Thread.new { 10.times { collector.flush && collector.snapshot && collector.stats } } }
    busy << Thread.new { 20.times { collector.stop! && collector.start! } }
    Timeout.timeout(60) { busy.each(&:join) }
    expect(collector.stop!).to be true
    expect(balance(collector).reduce(:-)).to eq 0
  end

  it "may be one in a trap handler while samples are drained" do
    run_child(<<~'RUBY')
      collector = exact
      collector.start!
      trap(:USR1) { collector.stats && collector.flush && collector.flush(gc: true) && exact.profile { Object.new } }
      ticker = Thread.new { 150.times { Process.kill(:USR1, Process.pid) && sleep(0.0005) } }
      Array.new(200) { |i| eval("[Object.new, 'x' * #{i}]", nil, "file #{i}") } while ticker.alive?
      trap(:USR1, "IGNORE")
      collector.stop!
      allocations = collector.stats[:allocations]
      abort "not balanced: #{allocations}" unless allocations.except(:vm).values.sum == allocations[:vm]
    RUBY
  end

  it "may be one in a finalizer that stops and starts" do
    run_child(<<~'RUBY')
      collector = exact
      collector.start!
      finalizer = proc { collector.stop! && collector.start! && collector.flush }
      def make(finalizer) = 200.times { ObjectSpace.define_finalizer(Object.new, finalizer) }
      20.times { make(finalizer) && collector.flush(gc: true) && collector.stop!(gc: true) && collector.start! }
      collector.stop!
    RUBY
  end

  it "may be one in a TracePoint" do
    run_child(<<~'RUBY')
      collector = exact
      collector.start!
      inside = false
      calls = 0
      trace = TracePoint.new(:c_return, :return) do
        next if inside || (calls += 1) % 97 != 0
        inside = true
        collector.flush
        inside = false
      end
      trace.enable { 2_000.times { |i| [i.to_s, Object.new] } }
      collector.stop!
      allocations = collector.stats[:allocations]
      abort "not balanced: #{allocations}" unless allocations.except(:vm).values.sum == allocations[:vm]
    RUBY
  end

  it "may come while it measures objects of C extensions" do
    run_child(<<~'RUBY')
      require "timeout"
      collector = exact
      collector.start!
      kept = Array.new(3_000) { |i| i.even? ? Enumerator.new { } : Mutex.new }
      50.times do
        Timeout.timeout(0.001) { collector.flush }
      rescue Timeout::Error
        nil
      end
      abort "lost" if collector.flush.heap_samples_count < kept.size
      collector.stop!
    RUBY
  end
end

Collecting::BACK_ENDS.each do |liveness|
  RSpec.describe "an interrupted flush (liveness: #{liveness})" do
    include_examples "an interrupted flush", liveness
  end
end
