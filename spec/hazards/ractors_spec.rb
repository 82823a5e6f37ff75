# frozen_string_literal: true

# Ractors other than the main one are not profiled: they must not disturb what is.
RSpec.shared_examples "Ractors" do |liveness|
  include_context "with liveness", liveness

  def child(code) = run_child(code, "-W0")

  it "that collect garbage and run the VM's jobs do no harm" do
    output = child(<<~'RUBY')
      Array.new(2) { Ractor.new { loop { 100.times { IO.pipe.each(&:close) } && GC.start } } }
      collector = exact
      collector.start!
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 4
      flushes = 0
      until Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        20.times { ("a," * 5_000).split(",").map { |text| text + "b" } }
        flushes += 1 if collector.flush.pprof_data.bytesize > 100
      end
      allocations = collector.stats[:allocations]
      collector.stop!
      $stdout.write [flushes.positive?, allocations[:counted] > 10_000, allocations.except(:vm).values.sum == allocations[:vm]].inspect
      $stdout.flush
      exit!(0)
    RUBY
    expect(output).to eq "[true, true, true]"
  end

  it "begin whatever becomes of their standard streams, with a collector and without" do
    output = child(<<~'RUBY')
      collector = exact
      2.times do
        Ractor.new { File.open(File::NULL) }
        Ractor.new { $stderr = $stdout; sleep }
        Ractor.new { 1 }
        collector.start!
      end
      $stdout.write "begun"
      $stdout.flush
      exit!(0)
    RUBY
    expect(output).to eq "begun"
  end

  it "leave the hooks in for a child of two forks in a row, made amid their beginning" do
    output = child(<<~'RUBY')
      require "fiddle"
      c_fork = Fiddle::Function.new(Fiddle::Handle::DEFAULT["fork"], [], Fiddle::TYPE_INT)
      collector = exact
      collector.start!
      MemprofilerPprof.__send__(:pause_native)
      2.times do
        pid = c_fork.call
        next if pid.zero?

        Process.wait(pid)
        exit!(0)
      end
      MemprofilerPprof.__send__(:mend_native)
      before = collector.stats[:samples]
      1000.times { Object.new }
      $stdout.write(collector.stats[:samples] - before >= 1000)
      $stdout.flush
      exit!(0)
    RUBY
    expect(output).to eq "true"
  end

  it "leave a collector running that nobody else refers to" do
    output = child(<<~'RUBY')
      def start = exact.start!
      def deep(n) = n.zero? ? start : deep(n - 1)
      Thread.new { deep(50) }.join
      done = false
      thread = Thread.new { GC.start until done }
      10.times { Ractor.new { 1 } }
      done = true
      thread.join
      other = exact
      other.start!
      Array.new(1_000) { Object.new }
      GC.start
      other.stop!
      $stdout.write "alive"
      $stdout.flush
      exit!(0)
    RUBY
    expect(output).to eq "alive"
  end

  it "that begin in one thread while another one forks leave the child counting" do
    output = child(<<~'RUBY')
      collector = exact
      collector.start!
      done = false
      counts = []
      thread = Thread.new do
        until done
          reader, writer = IO.pipe
          pid = fork do
            1_000.times { Object.new }
            writer.write(collector.stats[:allocations][:counted])
            writer.close
            exit!(0)
          end
          writer.close
          count = reader.read
          Process.wait(pid)
          counts << ($?.success? ? count.to_i : $?.inspect)
        end
      end
      20.times { Ractor.new { 1 } }
      done = true
      thread.join
      $stdout.write counts.reject { |count| Integer === count && count >= 1_000 }
      $stdout.flush
      exit!(0)
    RUBY
    expect(output).to eq "[]"
  end

  it "survive a collector that is started right after them" do
    output = child(<<~'RUBY')
      10.times do
        ractor = Ractor.new { Array.new(100) { Object.new }.size }
        collector = exact
        collector.start!
        Array.new(100) { Object.new }
        collector.stop!
      end
      $stdout.write "survived"
      $stdout.flush
      exit!(0)
    RUBY
    expect(output).to eq "survived"
  end
end

Collecting::BACK_ENDS.each do |liveness|
  RSpec.describe "Ractors (liveness: #{liveness})" do
    include_examples "Ractors", liveness
  end
end
