# frozen_string_literal: true

require "objspace"

# What is particular to the back end that fills a WeakMap, and before Ruby 3.4 to the mark hook that stands in for it;
# what all have in common is in the other specs.
RSpec.describe "liveness: :weak_map" do
  include_context "with liveness", :weak_map

  before { stub_const("Followed", Class.new) }

  def retained(collector, class_name = "Followed")
    total(samples_of(collector.flush(gc: true), class_name), "retained_objects")
  end

  def untracked(collector) = collector.stats[:dropped_samples][:untracked]

  it "is what :auto takes below a rate of 1/10" do
    used = ->(**options) { MemprofilerPprof::Collector.new(**options).stats[:liveness] }
    low = Collecting::WEAK_MAP ? :weak_map : :mark_hook
    expect([0.0999, 0.01, 1.0e-6].map { |rate| used.(sample_rate: rate) }).to all(eq low)
    expect([0.1, 1].map { |rate| used.(sample_rate: rate) }).to all(eq :free_hook)
    expect(used.()).to eq low
    expect(used.(sample_rate: 0.001, liveness: :free_hook)).to eq :free_hook
    expect(used.(sample_rate: 1, liveness: :weak_map)).to eq low
  end

  it "follows objects of every kind" do
    kinds = {
      "String" => -> { ["frozen", rand.to_s].join.freeze }, "Symbol" => -> { "dynamic#{rand}".to_sym },
      "Float" => -> { (1 + rand) * 1.0e-320 }, "Integer" => -> { 2**70 + rand(1000) },
      "Rational" => -> { Rational(rand(9), 7) },
      "Array" => -> { [1, 2].freeze }, "Hash" => -> { { a: 1 } }, "Proc" => -> { proc {} }, "Class" => -> { Class.new },
      "Enumerator" => -> { [].each }, "Regexp" => -> { /a#{rand}/ }, "Thread::Mutex" => -> { Mutex.new },
      "Followed" => -> { Followed.new.freeze }, "Module" => -> { Module.new }, "Range" => -> { (1..rand(9)) }
    }
    collector = exact
    collector.start!
    kept = kinds.transform_values { |make| Array.new(300) { make.call } }
    profile = read(collector.flush(gc: true))
    collector.stop!
    kept.each do |class_name, objects|
      found = profile.samples.select { |sample| sample.labels["class"] == class_name }
      expect([class_name, total(found, "retained_objects")]).to satisfy { |_, n| n >= objects.size }
    end
    expect(untracked(collector)).to eq 0
  end

  it "follows copies by themselves" do
    collector = exact
    collector.start!
    kept = Array.new(500) { Followed.new }
    copies = kept.map(&:dup) + kept.map(&:clone)
    expect(retained(collector)).to eq 1_500
    kept.clear
    expect(retained(collector)).to eq ObjectSpace.each_object(Followed).count
    collector.stop!
    expect(copies.size).to eq 1_000
  end

  it "notices deaths without any flush" do
    collector = exact
    collector.start!
    most = 0
    200.times do
      Array.new(1_000) { Followed.new }
      most = [most, collector.live_heap_samples_count].max
      GC.start(full_mark: false) if most > 5_000
    end
    collector.stop!
    expect(most).to be_between(1_000, 8_000)
    expect(collector.stats[:live_thinning]).to eq 1.0
  end

  it "notices them while many others live on" do
    collector = exact
    collector.start!
    kept = Array.new(20_000) { Followed.new }
    counts = Array.new(60) do
      Array.new(1_000) { "x" }
      GC.start(full_mark: false)
      collector.live_heap_samples_count
    end
    collector.stop!
    expect(counts.max).to be < 40_000
    expect(kept.size).to eq 20_000
  end

  it "gives what is raised amid a flush, such as by a signal's handler, to the program" do
    raised = run_child(<<~'RUBY')
      Struck = Class.new(StandardError)
      collector = exact
      collector.start!
      kept = Array.new(20_000) { Object.new }
      collector.stats
      armed = false
      target = Process.pid
      trap(:USR1) { armed ? raise(Struck) : Process.kill(:USR1, target) } # again, once it is in a flush
      reader, writer = IO.pipe
      fork do
        writer.close
        20.times do |i|
          sleep(0.002 + i * 0.0007)
          Process.kill(:USR1, target)
          reader.getc || exit!(1) # until it has been taken, or the target is gone
        end
        exit!(0)
      end
      raised = 0
      begin
        armed = true
        collector.flush while raised < 20
      rescue Struck
        armed = false
        raised += 1
        writer.write("x")
        retry
      end
      trap(:USR1, "IGNORE")
      collector.stop!
      puts raised
    RUBY
    expect(raised.to_i).to eq 20
  end

  it "takes what a program makes of ObjectSpace::WeakMap for nothing" do
    Child.run(<<~'RUBY')
      class ObjectSpace::WeakMap
        %i[[] []= initialize].each { |name| define_method(name) { |*| raise "user code was run" } }
      end
      collector = exact(liveness: :weak_map)
      collector.start!
      kept = Array.new(100) { Object.new }
      abort "not followed" unless collector.flush(gc: true).heap_samples_count >= 100
    RUBY
  end

  it "gives a record up, and counts its allocation, where the fill raises", if: Collecting::WEAK_MAP do
    collector = exact
    collector.start!
    fills = 0
    trace = TracePoint.new(:c_call) { |point| raise NoMemoryError if point.callee_id == :put && (fills += 1).odd? }
    text = "a " * 1_000
    kept = trace.enable { text.split.tap { collector.stats } } # events within an event are not told
    lost = untracked(collector)
    data = collector.flush(gc: true)
    collector.stop!
    expect(fills).to be >= 1_000
    expect(lost).to be_between(fills / 2, fills / 2 + 1)
    strings = samples_in(data, "String#split", "String")
    expect(total(strings)).to be_between(1_000, 1_010)
    expect(total(strings, "retained_objects")).to be_between(300, 700)
    expect(balance(collector).reduce(:-)).to eq 0
    expect(kept.size).to eq 1_000
  end

  it "bears a TracePoint that flushes, stops and starts amid its calls", if: Collecting::WEAK_MAP do
    run_child(<<~'RUBY')
      collector = exact
      collector.start!
      calls = 0
      trace = TracePoint.new(:c_call, :c_return) do |point|
        next unless %i[put get].include?(point.callee_id)
        case calls += 1
        when ->(n) { n % 501 == 0 } then collector.stop! && collector.start!
        when ->(n) { n % 97 == 0 } then collector.flush(gc: true)
        end
      end
      kept = trace.enable { Array.new(3_000) { |i| [Object.new, "x" * i] } }
      collector.flush(gc: true)
      collector.stop!
      allocations = collector.stats[:allocations]
      abort "not balanced: #{allocations}" unless allocations.except(:vm).values.sum == allocations[:vm]
      abort "never called" if calls < 5_000
    RUBY
  end

  it "leaves what strikes in a finalizer to the thread that it is for, as without it" do
    arrived = run_child(<<~'RUBY')
      Struck = Class.new(StandardError)
      collectors = [exact, exact(liveness: :free_hook)].each(&:start!)
      strike = lambda do
        began = nil # the thread in which finalizers run: another one may have come first
        raised = false
        thread = Thread.new do
          Thread.current.report_on_exception = false
          note = proc do
            began = Thread.current
            ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.05
            Object.new until (raised || Thread.main.equal?(began)) && Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends
          end
          make = -> { 3.times { ObjectSpace.define_finalizer(Object.new, note) } }
          Fiber.new(&make).resume
          10.times { [].dup }
          2.times { GC.start }
          :ended
        end
        sleep(0.002) until began || !thread.alive?
        thread.raise(Struck)
        raised = true
        outcome = begin
          thread.value
        rescue Struck
          :struck
        end
        outcome if began.equal?(thread)
      end
      arrived = []
      20.times { arrived.size < 3 && arrived.push(*strike.call) }
      collectors.each(&:stop!)
      print arrived.inspect
    RUBY
    expect(arrived).to eq "[:struck, :struck, :struck]"
  end

  it "ends a profile whose end is interrupted", if: Collecting::WEAK_MAP do
    collector = MemprofilerPprof::Collector.new(sample_rate: 0.09, seed: 1)
    calls = 0
    GC.start
    trace = TracePoint.new(:c_call) { |point| raise "struck" if point.callee_id == :get && (calls += 1) > 100 }
    kept = nil
    expect { trace.enable { collector.profile { kept = Array.new(20_000) { Object.new } } } }.to raise_error("struck")
    expect(collector.running?).to be false
    expect(kept.size).to eq 20_000
  end

  it "does not stop the run that another thread has begun meanwhile", if: Collecting::WEAK_MAP do
    collector = exact
    collector.start!
    kept = Array.new(1_000) { Object.new }
    collector.stats
    once = false
    trace = TracePoint.new(:c_call) do |point|
      next if point.callee_id != :get || once

      once = true
      collector.stop!
      collector.start!
    end
    expect(trace.enable { collector.stop! }).to be false
    expect(collector.running?).to be true
    collector.stop!
    expect(kept.size).to eq 1_000
  end

  it "is not kept busy by a TracePoint that allocates at its calls" do
    output = run_child(<<~'RUBY')
      collector = exact
      collector.start!
      calls = 0
      trace = TracePoint.new(:c_call, :c_return) { calls += 1; 3.times { Object.new } }
      trace.enable { 2_000.times { "x" * 50 } }
      collector.flush
      collector.stop!
      print calls < 100_000
    RUBY
    expect(output).to eq "true"
  end

  it "shows no object that the VM has hidden to a program that looks at its map" do
    output = run_child(<<~'RUBY')
      collector = exact
      collector.start!
      kept = Array.new(10) { "x" }
      collector.stats
      maps = ObjectSpace.each_object(ObjectSpace::WeakMap).to_a
      trace = TracePoint.new(:c_return) { |point| point.return_value.class if point.callee_id == :get }
      look = ->(map) { [map.inspect, map.values.each(&:class)] rescue NoMethodError }
      [3, 1, 2].sort_by { |i| collector.stats; maps.each(&look); i }
      [3, 1, 2].sort_by { |i| trace.enable { collector.flush }; i }
      collector.stop!
      print kept.size
    RUBY
    expect(output).to eq "10"
  end

  describe "memory", if: Collecting::WEAK_MAP do
    it "that it takes in Ruby's heap is told, and comes on top of the collector's own" do
      collector = exact
      expect(collector.stats[:memory][:weak_map]).to eq 0
      collector.start!
      kept = Array.new(10_000) { Followed.new }
      memory = collector.stats[:memory]
      expect(memory[:weak_map]).to be_between(10_000 * 16, 10_000 * 500)
      tables = memory.slice(:strings, :functions, :locations, :stacks, :rows, :live, :pending, :caches)
      expect(memory[:total]).to be_between(tables.values.sum, tables.values.sum * 1.05 + 4096)
      collector.stop!
      expect(collector.stats[:memory][:weak_map]).to eq 0
      expect(kept.size).to eq 10_000
    end

    it "is given back after the run, once what it followed is dead" do
      maps = run_child(<<~'RUBY')
        def run
          collector = exact
          collector.start!
          Array.new(1_000) { Object.new }
          collector.stop!
        end
        10.times { run }
        5.times { GC.start }
        puts ObjectSpace.each_object(ObjectSpace::WeakMap).count
      RUBY
      expect(maps.to_i).to be <= 2
    end
  end

  it "begins with an empty map in a forked child" do
    collector = exact
    collector.start!
    kept = Array.new(5_000) { Followed.new }
    bytes, child, live = in_fork do
      mine = Array.new(100) { Followed.new }
      [collector.stats[:memory][:weak_map], retained(collector), mine.size]
    end
    expect(bytes).to be <= collector.stats[:memory][:weak_map] / 10
    expect([child, live]).to eq [100, 100]
    expect(retained(collector)).to eq kept.size
    collector.stop!
  end

  it "has a map for each collector and each run" do
    one, other = exact, exact
    one.start!
    kept = Array.new(100) { Followed.new }
    other.start!
    kept.concat(Array.new(50) { Followed.new })
    expect([retained(one), retained(other)]).to eq [150, 50]
    one.stop!
    one.start!
    kept.concat(Array.new(7) { Followed.new })
    expect([retained(one), retained(other)]).to eq [7, 57]
    other.stop!
    expect(retained(one)).to eq 7
    one.stop!
    expect(kept.size).to eq 157
  end

  # The WeakMaps of Ruby before 3.3 work by finalizers, and answer with whatever comes next at the address.
  describe "where a program takes the finalizers off its objects" do
    def make(n) = Array.new(n) { Followed.new }

    it "does not take another object for one that died" do
      collector = exact
      collector.start!
      kept = []
      5.times do
        gone = make(2_000).each { |object| ObjectSpace.undefine_finalizer(object) }
        collector.live_heap_samples_count
        gone.clear
        GC.start
        kept.concat(Array.new(4_000) { |i| i.odd? ? Followed.new : "other" })
      end
      counted = retained(collector)
      expect(counted).to eq ObjectSpace.each_object(Followed).count
      collector.stop!
      expect(kept.size).to eq 20_000
    end

    it "does not take one with a finalizer for one that died" do
      collector = exact
      collector.start!
      make(3_000).each { |object| ObjectSpace.undefine_finalizer(object) }.clear
      3.times { GC.start }
      kept = make(3_000).each { |object| ObjectSpace.define_finalizer(object, proc {}) }
      expect(retained(collector)).to eq ObjectSpace.each_object(Followed).count
      collector.stop!
      expect(kept.size).to eq 3_000
    end

    it "follows those that live" do
      collector = exact
      collector.start!
      kept = make(1_000).each { |object| ObjectSpace.undefine_finalizer(object) }
      expect(retained(collector)).to eq 1_000
      collector.stop!
      expect(untracked(collector)).to eq 0
      expect(kept.size).to eq 1_000
    end

    it "runs the finalizers that the program defines" do
      ran = run_child(<<~'RUBY').to_i
        collector = exact
        collector.start!
        ran = 0
        count = proc { ran += 1 }
        Array.new(1_000) { Object.new.tap { |object| ObjectSpace.define_finalizer(object, count) } }.clear
        5.times { GC.start || collector.flush }
        collector.stop!
        puts ran
      RUBY
      expect(ran).to be_between(990, 1_000)
    end
  end

  describe "beside other Ractors" do
    program = <<~'RUBY'
      collector = exact
      collector.start!
      kept = Array.new(1_000) { Object.new }
      collector.stats
      ractors = Array.new(2) { Ractor.new { 20.times { Array.new(2_000) { "y" } && GC.start } } }
      50.times { Array.new(1_000) { "z" * 50 } && collector.flush }
      ractors.each { |ractor| take(ractor) }
      kept.concat(Array.new(500) { Object.new })
      data = collector.flush(gc: true)
      collector.stop!
      $stdout.binmode.write([collector.stats[:dropped_samples][:untracked]].pack("Q"), data.pprof_data)
    RUBY

    it "goes on, or gives up what it followed when it cannot see the deaths" do
      output = run_child(program, "-W:no-experimental")
      untracked = output.b.unpack1("Q")
      samples = ProfileReader.read(output.b.byteslice(8..)).samples
      retained = total(samples.select { |sample| sample.labels["class"] == "Object" }, "retained_objects")
      expect(retained).to be <= 1_520
      expect(retained + untracked).to be >= 1_500
      expect(untracked).to eq 0 if Collecting::WEAK_MAP
    end
  end
end
