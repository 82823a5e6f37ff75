# frozen_string_literal: true

require "objspace"
require "timeout"

RSpec.describe MemprofilerPprof::Collector do
  def self.allocate_here(n) = Array.new(n) { Object.new }
  def allocate_here(n) = self.class.allocate_here(n)

  def objects(data, type: "allocations")
    sum_in(data, "RSpec::ExampleGroups::MemprofilerPprofCollector.allocate_here", "Object", type: type)
  end

  describe "its states" do
    it "are new, running and stopped, and start and stop tell whether they changed something" do
      collector = exact
      expect(collector.stats[:state]).to eq :new
      expect(collector.running?).to be false
      expect(collector.stop!).to be false
      expect(collector.start!).to be true
      expect(collector.start!).to be false
      expect(collector.running?).to be true
      expect(collector.stats[:state]).to eq :running
      expect(collector.stop!).to be true
      expect(collector.stop!).to be false
      expect(collector.running?).to be false
      expect(collector.stats[:state]).to eq :stopped
      expect(collector.start).to be true
      expect(collector.stop).to be true
    end

    it "give a valid empty profile before the first start" do
      collector = exact
      [collector.flush, collector.snapshot, collector.flush(gc: true, min_gc_age: 1)].each do |data|
        expect(ProfileRules.violations(data.pprof_data)).to eq []
        expect(read(data).samples).to eq []
        expect([data.allocation_samples_count, data.heap_samples_count, data.duration]).to eq [0, 0, 0.0]
        expect(data.dropped_samples).to eq({})
        expect(data.started_at).to be_within(60).of(Time.now)
      end
    end

    it "begin a run at each start, with everything at zero" do
      collector = exact
      collector.start!
      first = allocate_here(100)
      run = collector.stats[:run]
      collector.stop!
      collector.start!
      expect(collector.stats[:run]).to eq run + 1
      expect(collector.stats[:samples]).to be < 100
      allocate_here(30)
      data = collector.flush
      collector.stop!
      expect(objects(data)).to eq 30
      expect(objects(data, type: "retained_objects")).to be <= 30
      expect(first.size).to eq 100
    end

    it "refuse to be copied, written out, or made without new" do
      collector = exact
      expect { collector.dup }.to raise_error(TypeError, /cannot be copied/)
      expect { collector.clone }.to raise_error(TypeError, /cannot be copied/)
      expect { Marshal.dump(collector) }.to raise_error(TypeError)
      bare = described_class.allocate
      %i[start! stop! flush snapshot stats running? live_heap_samples_count].each do |method|
        expect { bare.public_send(method) }.to raise_error(StandardError), method.to_s
      end
      expect { collector.send(:initialize) }.to raise_error(ArgumentError, /already/)
    end

    it "have no other door" do
      expect(described_class.public_instance_methods(false).grep(/native/)).to eq []
    end
  end

  describe "flush and snapshot" do
    it "have each allocation in one flush, and all of them in a snapshot that takes nothing" do
      collector = exact
      collector.start!
      kept = allocate_here(10)
      expect(objects(collector.snapshot)).to eq 10
      expect(objects(collector.flush)).to eq 10
      kept += allocate_here(7)
      expect(objects(collector.snapshot)).to eq 17
      data = collector.flush
      expect(objects(data)).to eq 7
      expect(objects(data, type: "retained_objects")).to eq 17
      expect(objects(collector.flush)).to eq 0
      expect(objects(collector.snapshot)).to eq 17
      collector.stop!
      expect(objects(collector.snapshot)).to eq 17
      expect(kept.size).to eq 17
    end

    it "after stop give what was retained then, and allocations once" do
      collector = exact
      collector.start!
      kept = allocate_here(20)
      collector.stop!(gc: true)
      kept.clear
      GC.start
      first = collector.flush(gc: true)
      second = collector.flush
      expect([objects(first), objects(first, type: "retained_objects")]).to eq [20, 20]
      expect([objects(second), objects(second, type: "retained_objects")]).to eq [0, 20]
      expect(second.allocation_samples_count).to eq 0
      expect(second.heap_samples_count).to eq collector.live_heap_samples_count
    end

    it "cover intervals that join, a snapshot all of them" do
      before = Time.now
      collector = exact
      collector.start!
      sleep 0.01
      first = collector.flush
      sleep 0.01
      second = collector.flush
      whole = collector.snapshot
      collector.stop!
      after = Time.now
      third = collector.flush
      sleep 0.01
      fourth = collector.flush
      expect(first.started_at).to be_between(before, after)
      expect(first.duration).to be_a(Float).and be_between(0.01, after - before)
      expect(second.started_at - first.started_at).to be_within(1e-6).of(first.duration)
      expect(third.started_at - second.started_at).to be_within(1e-6).of(second.duration)
      expect(whole.started_at).to eq first.started_at
      expect(whole.duration).to be_between(first.duration + second.duration, after - before)
      expect(fourth.duration).to eq 0.0
      expect(first.duration + second.duration + third.duration).to be <= after - before
    end

    it "may come in several formats, of the same moment" do
      collector = exact
      collector.start!
      kept = allocate_here(50)
      go, own = datas = collector.flush(sample_types: %i[go memprofiler])
      kept.concat(allocate_here(7))
      collector.stop!
      expect(datas.map { |data| read(data).sample_types.map(&:first).last }).to eq %w[inuse_space retained_size]
      totals = datas.map { |data| read(data).then { |profile| profile.sample_types.map { |type, _| profile.total(type) } } }
      expect(totals.uniq.size).to eq 1
      expect(totals.first.first).to be_between(50, 500)
      expect(datas.map { |data| [data.started_at, data.duration, data.dropped_samples] }.uniq.size).to eq 1
      expect(go.estimate(/allocate_here/).value).to eq own.estimate(/allocate_here/).value
      expect(read(collector.flush).total("allocations")).to be_between(7, 200) # the others were flushed once
      expect(collector.snapshot(sample_types: [:go])).to be_an(Array)
      labels = collector.snapshot(sample_types: %i[go memprofiler], class_names: :frame)
      expect(labels.flat_map { |data| read(data).samples.flat_map { |sample| sample.labels.keys } }).to eq []
      expect(collector.profile(sample_types: %i[memprofiler go]) { Object.new }.size).to eq 2
      expect(kept.size).to eq 57
    end

    it "may name values and classes otherwise for once" do
      collector = exact
      collector.start!
      kept = allocate_here(5)
      go = read(collector.snapshot(sample_types: :go))
      expect(go.sample_types.map(&:first)).to eq %w[alloc_objects alloc_space inuse_objects inuse_space]
      expect(go.samples.flat_map { |sample| sample.labels.keys }).to eq []
      both = read(collector.snapshot(sample_types: :go, class_names: :label))
      expect(both.samples.flat_map { |sample| sample.labels.keys }.uniq).to eq ["class"]
      usual = read(collector.flush)
      expect(usual.sample_types.map(&:first)).to eq %w[allocations allocation_size retained_objects retained_size]
      collector.stop!
      expect(kept.size).to eq 5
    end
  end

  describe "#profile" do
    it "starts, yields, flushes and stops" do
      collector = exact
      seen = nil
      data = collector.profile do
        seen = collector.running?
        allocate_here(12)
      end
      expect(seen).to be true
      expect(collector.running?).to be false
      expect(objects(data)).to eq 12
    end

    it "may be of a new collector each time: all of it goes with the collector", unless: Child.sanitized? do
      megabytes = Child.run(<<~'RUBY')
        1_500.times { exact.profile { Object.new } }
        print File.read("/proc/self/statm").split[1].to_i * 4096 / 1024**2
      RUBY
      expect(megabytes.to_i).to be < 150
    end

    it "may be of a new collector each time, for the VM knows that there is memory to collect" do
      most_at_once = Child.run(<<~'RUBY')
        counts = Array.new(20) do
          50.times { exact }
          ObjectSpace.each_object(MemprofilerPprof::Collector).count
        end
        print counts.max
      RUBY
      expect(most_at_once.to_i).to be < 300
    end

    it "calls the flush of a subclass, with what it was given" do
      subclass = Class.new(described_class) { def flush(*arguments) = [arguments, super()] }
      expect(subclass.new(sample_rate: 1).profile { Object.new }).to match([[], be_a(MemprofilerPprof::ProfileData)])
    end

    it "takes the options of a flush" do
      collector = exact
      work = -> { 40.times { "garbage" * 10 } && nil }
      kept = nil
      data = collector.profile(gc: true, sample_types: :go, class_names: :frame) do
        Fiber.new(&work).resume
        kept = Object.new
      end
      profile = read(data)
      expect(profile.sample_types.map(&:first)).to eq %w[alloc_objects alloc_space inuse_objects inuse_space]
      strings = profile.samples.select { |sample| sample.stack.first.name == "String" }
      expect(total(strings, "alloc_objects")).to be >= 40
      expect(total(strings, "inuse_objects")).to be <= 2
      expect(profile.total("inuse_objects")).to be >= 1
      expect(kept).not_to be_nil
      expect(read(collector.profile(min_gc_age: 5) { kept = Object.new }).total("retained_objects")).to eq 0
    end

    it "does not run the block of a running collector, which goes on" do
      collector = exact
      collector.start!
      allocate_here(3)
      expect { collector.profile { raise "was run" } }.to raise_error(MemprofilerPprof::StateError)
      expect(collector.running?).to be true
      expect(objects(collector.flush)).to eq 3
      collector.stop!
    end

    it "lets exceptions, break and throw through, and stops" do
      collector = exact
      expect { collector.profile { raise IOError, "mine" } }.to raise_error(IOError, "mine")
      expect(collector.running?).to be false
      expect(collector.profile { break 7 }).to eq 7
      expect(collector.running?).to be false
      expect(catch(:out) { collector.profile { throw :out, 8 } }).to eq 8
      expect(collector.running?).to be false
      allocated = nil
      expect { collector.profile { allocate_here(4) && raise } }.to raise_error(RuntimeError)
      expect(allocated = objects(collector.flush)).to eq 4
    end

    it "needs a block, and threads that make sense, else nothing changes" do
      collector = exact
      expect { collector.profile }.to raise_error(ArgumentError, /block/)
      expect { collector.profile(threads: :none) { raise "was run" } }.to raise_error(ArgumentError, /threads/)
      expect { collector.profile(threads: 1) { raise "was run" } }.to raise_error(TypeError, /threads/)
      expect(collector.stats[:state]).to eq :new
    end

    it "copes with a block that stops or restarts the collector" do
      collector = exact
      data = collector.profile do
        allocate_here(5)
        collector.stop!
        allocate_here(6)
      end
      expect(objects(data)).to eq 5
      data = collector.profile do
        allocate_here(5)
        collector.stop!
        collector.start!
        allocate_here(6)
      end
      expect(objects(data)).to eq 6
    end

    it "may be nested with other collectors" do
      inner = nil
      outer = exact.profile do
        allocate_here(2)
        inner = exact.profile { allocate_here(3) }
        allocate_here(4)
      end
      expect([objects(inner), objects(outer)]).to eq [3, 9]
    end
  end

  describe "threads: :current" do
    it "samples the thread that starts it and counts the others" do
      collector = exact(threads: :current)
      other = Thread.new { Thread.stop; allocate_here(100) }
      Thread.pass until other.stop?
      collector.start!
      kept = allocate_here(10)
      kept += other.run.value
      kept += Thread.new { allocate_here(50) }.value
      stats = collector.stats[:allocations]
      data = collector.flush
      collector.stop!
      expect(objects(data)).to eq 10
      expect(stats[:other_thread]).to be >= 150
      expect(balance(collector)).to all(eq(balance(collector).first))
      expect(kept.size).to eq 160
    end

    it "may be asked for one profile alone" do
      collector = exact
      data = collector.profile(threads: :current) { Thread.new { allocate_here(50) }.join && allocate_here(3) }
      expect(objects(data)).to eq 3
      data = collector.profile { Thread.new { allocate_here(50) }.join && allocate_here(3) }
      expect(objects(data)).to eq 53
    end

    it "goes on when its thread has ended, and takes no later thread for it" do
      collector = exact(threads: :current)
      Thread.new { collector.start! }.join
      GC.start
      threads = Array.new(50) { Thread.new { allocate_here(10) } }.each(&:join)
      data = collector.flush
      expect(collector.stop!).to be true
      expect(objects(data)).to eq 0
      expect(threads.size).to eq 50
    end
  end

  describe "several at once" do
    it "have each its own rate, run and tables" do
      a = exact
      b = exact(max_stack_depth: 1)
      c = described_class.new(sample_rate: 0.1, seed: 1)
      a.start!
      allocate_here(100)
      b.start!
      c.start!
      kept = allocate_here(1_000)
      counts = [a, b, c].map { |collector| read(collector.flush) }
      expect(a.stop!).to be true
      kept.concat(allocate_here(10))
      expect([b, c].map(&:stop!)).to eq [true, true]
      expect(objects(counts[0])).to eq 1_100
      expect(counts[1].samples.map { |sample| sample.stack.size }.max).to be <= 2
      expect(objects(counts[2])).to be_between(500, 1_500).and be < 1_100.0.next_float
      expect(objects(a.snapshot)).to eq 1_100
      expect(kept.size).to eq 1_010
    end

    it "may start and stop in any order, a hundred of them" do
      random = Random.new(3)
      collectors = Array.new(100) { exact(liveness: [:none, *Collecting::BACK_ENDS].sample(random: random)) }
      1_000.times { collectors.sample(random: random).public_send(%i[start! stop!].sample(random: random)) }
      running = collectors.select(&:running?)
      kept = allocate_here(10)
      expect(running.map { |collector| collector.stats[:samples] }).to all(be >= 10)
      collectors.each(&:stop!)
      expect(collectors.map(&:running?)).to all(be false)
      expect(kept.size).to eq 10
    end
  end

  describe "as an object" do
    it "runs on without any reference to it, until stop" do
      number = -> { start_and_drop }.call
      GC.start
      GC.start
      allocate_here(10)
      found = ObjectSpace.each_object(described_class).find { |collector| collector.seed == number }
      expect(found.running?).to be true
      expect(found.stats[:samples]).to be >= 10
      found.stop!
    end

    def start_and_drop = exact(seed: 7_777).then { |collector| collector.start! && collector.seed }

    it "dies once it is stopped and let go" do
      Child.run(<<~'RUBY')
        def cycle = 200.times { exact.tap(&:start!).tap { |collector| Array.new(10) { "x" * 50 } }.tap(&:stop!).flush }
        cycle
        GC.start
        left = ObjectSpace.each_object(MemprofilerPprof::Collector).count
        abort "#{left} are left" if left > 5
      RUBY
    end

    it "has a true size" do
      collector = exact
      bare = ObjectSpace.memsize_of(collector)
      collector.start!
      kept = Array.new(20_000) { Object.new }
      total = collector.stats[:memory][:total]
      size = ObjectSpace.memsize_of(collector)
      expect(size - bare).to be > 20_000 * 40
      expect(size).to be_between(total, total + 64 * 1024)
      collector.stop!
      expect(kept.size).to eq 20_000
    end

    it "counts live samples at once" do
      collector = exact
      expect(collector.live_heap_samples_count).to eq 0
      collector.start!
      kept = allocate_here(10)
      expect(collector.live_heap_samples_count).to be >= 10
      collector.stop!
      expect(collector.live_heap_samples_count).to be >= kept.size
    end

    it "may be frozen" do
      collector = exact.freeze
      expect(objects(collector.profile { allocate_here(3) })).to eq 3
    end
  end

  it "tells its numbers" do
    collector = exact(seed: 5)
    collector.start!
    kept = allocate_here(10)
    collector.flush
    stats = collector.stats
    collector.stop!
    expect(stats).to include(state: :running, sample_rate: 1.0, effective_rate: 1.0, liveness: :free_hook,
                             live_thinning: 1.0, live_thinnings: 0, evicted_rows: 0, pending_samples: 0, flushes: 1)
    expect(stats[:dropped_samples]).to eq(pending_full: 0, memory_limit: 0, no_memory: 0, row_limit: 0, unnamed: 0,
                                          live_limit: 0, untracked: 0)
    expect(stats.values_at(:samples, :live_samples, :rows, :strings, :functions, :locations, :stacks, :jobs))
      .to all(be_positive)
    memory = stats[:memory]
    expect(memory[:limit]).to eq 64 * 1024 * 1024
    expect(memory.values_at(:strings, :functions, :locations, :stacks, :rows, :live, :pending, :caches).sum)
      .to be_between(0.8 * memory[:total], memory[:total])
    expect(memory[:peak]).to be >= memory[:total]
    expect(memory.values_at(:last_snapshot, :last_scratch)).to all(be_positive)
    expect(memory[:last_scratch]).to be <= 4 * 1024 * 1024
    expect(stats[:time].values).to all(be_a(Float).and(be >= 0))
    expect(kept.size).to eq 10
  end

  shared_examples "in a forked child" do |liveness|
    include_context "with liveness", liveness

    it "goes on running in a new run, from zero" do
      collector = exact
      collector.start!
      kept = allocate_here(1_000)
      collector.flush
      run = collector.stats[:run]
      child = in_fork do
        kept.clear
        GC.start # reports the parent's objects as freed
        fresh = allocate_here(10)
        GC.start
        balance = balance(collector)
        data = collector.flush(gc: true)
        rules = ProfileRules.violations(data.pprof_data)
        [collector.running?, collector.stats[:run], balance, objects(data), objects(data, type: "retained_objects"),
         fresh.size, rules, collector.stats[:dropped_samples].values.sum]
      end
      running, child_run, balance, allocated, retained, fresh, rules, dropped = child
      expect(running).to be true
      expect(child_run).to be > run
      expect(balance.uniq.size).to eq 1
      expect([allocated, retained, fresh, dropped]).to eq [10, 10, 10, 0]
      expect(rules).to eq []
      data = collector.flush
      collector.stop!
      expect([objects(data), objects(data, type: "retained_objects")]).to eq [0, 1_000]
      expect(balance(collector).uniq.size).to eq 1
      expect(kept.size).to eq 1_000
    end

    it "covers the time since the fork" do
      collector = exact
      collector.start!
      sleep 0.05
      forked_at = Time.now
      started_at, duration = in_fork { collector.flush.then { |data| [data.started_at, data.duration] } }
      collector.stop!
      expect(started_at).to be >= forked_at
      expect(duration).to be < Time.now - forked_at
    end

    it "can be stopped, started, forked again, while the parent goes on" do
      collector = exact
      collector.start!
      grandchild = in_fork do
        collector.stop!
        collector.start!
        allocate_here(5)
        in_fork do
          allocate_here(6)
          [objects(collector.flush), balance(collector).uniq.size]
        end
      end
      expect(grandchild).to eq [6, 1]
      kept = allocate_here(7)
      expect(objects(collector.flush)).to eq 7
      collector.stop!
      expect(kept.size).to eq 7
    end

    it "stays readable where it was stopped before" do
      collector = exact
      collector.start!
      kept = allocate_here(9)
      collector.stop!
      expect(in_fork { [collector.running?, objects(collector.flush)] }).to eq [false, 9]
      expect(objects(collector.flush)).to eq 9
      expect(kept.size).to eq 9
    end

    it "copes with a fork at any time, with threads that flush and allocate", unless: Child.sanitized? do
      run_child(<<~'RUBY')
        collectors = [exact, exact(threads: :current), exact(liveness: :none)].each(&:start!)
        flushers = collectors.map { |collector| Thread.new { loop { collector.flush } } }
        noise = Thread.new { loop { Array.new(100) { "x" * 50 } } }
        30.times do
          pid = fork do
            Array.new(1_000) { Object.new }
            GC.start
            collectors.each do |collector|
              collector.flush
              allocations = collector.stats[:allocations]
              abort "not balanced: #{allocations}" unless allocations.except(:vm).values.sum == allocations[:vm]
              abort "unseen: #{allocations}" unless allocations[:unseen].zero?
              collector.stop!
            end
            exit!(0)
          end
          abort "the forked child failed" unless Process.wait2(pid).last.success?
        end
        [*flushers, noise].each(&:kill).each(&:join)
        collectors.each(&:stop!)
      RUBY
    end

    it "goes on in a daemon" do
      reader, writer = IO.pipe
      Process.wait(fork do
        reader.close
        collector = exact
        collector.start!
        Process.daemon(true, true)
        allocate_here(8)
        GC.start
        writer.write([objects(collector.flush), balance(collector).uniq.size].inspect)
        writer.close
        exit!(0)
      end)
      writer.close
      expect(reader.read).to eq "[8, 1]"
    end
  end

  Collecting::BACK_ENDS.each do |liveness|
    describe "in a forked child (liveness: #{liveness})" do
      include_examples "in a forked child", liveness
    end
  end

  describe "at exit" do
    {
      "by itself" => "",
      "by exit" => "exit",
      "by exit!" => "exit!(0)",
      "with a thread that allocates" => 'Thread.new { loop { "x" * 100 } }; sleep 0.05',
      "with a start at exit" => "at_exit { exact.profile { Object.new } && MemprofilerPprof::Collector.new.start! }",
      "with a thread that flushes" => <<~RUBY,
        Thread.new { loop { exact.profile { Array.new(100) { Object.new } } } }
        sleep 0.05
      RUBY
      "with a flush at exit" => <<~RUBY,
        collector = exact
        collector.start!
        at_exit { collector.flush.allocation_samples_count >= 100 && collector.stop! or abort "empty" }
        $kept = Array.new(100) { Object.new }
      RUBY
      "with finalizers that flush" => <<~RUBY
        collector = exact
        collector.start!
        finalizer = proc { collector.flush && collector.stats }
        $kept = Array.new(50) { Object.new.tap { |object| ObjectSpace.define_finalizer(object, finalizer) } }
      RUBY
    }.each do |how, code|
      it "ends well #{how}" do
        Child.run(<<~RUBY)
          $running = [exact, exact(threads: :current), exact(liveness: :none), exact(liveness: :weak_map),
                      MemprofilerPprof::Collector.new]
          $running.each(&:start!)
          $objects = Array.new(10_000) { "x" * 50 }
          #{code}
        RUBY
      end
    end

    it "ends with the status of the program" do
      expect { Child.run("exact.start!; exit 3") }.to raise_error(Child::Failed, /status 3/)
      expect { Child.run("exact.start!; raise 'mine'") }.to raise_error(Child::Failed, /status 1.*mine/m)
    end
  end

  shared_examples "with other Ractors" do |liveness|
    include_context "with liveness", liveness

    it "refuses to be called from them" do
      run_child(<<~'RUBY', "-W:no-experimental")
        collector = exact
        collector.start!
        %i[start! stop! flush stats].each do |method|
          error = Ractor.new(method) do |name|
            MemprofilerPprof::Collector.allocate.public_send(name)
          rescue => e
            e.class.name
          end
          error = take(error)
          abort "#{method}: #{error}" unless error == "Ractor::UnsafeError"
        end
        collector.stop!
      RUBY
    end

    # None hides them from a WeakMap.
    it "gives up what it follows when another one's collection hides deaths",
       if: RUBY_VERSION < "4" && !(liveness == :weak_map && Collecting::WEAK_MAP) do
      output = run_child(<<~'RUBY', "-W:no-experimental")
        Ractor.new { }.take # the first one makes the main Ractor collect
        collector = exact
        collector.start!
        def make(n) = n.times { "x" * 100 }
        GC.disable # this Ractor collects nothing
        make(20_000)
        before = collector.live_heap_samples_count
        ractor = Ractor.new { 5.times { GC.start } }
        ractor.take
        data = collector.flush
        collector.stop!
        puts before, data.heap_samples_count, collector.stats[:dropped_samples][:untracked]
      RUBY
      before, after, untracked = output.split.map(&:to_i)
      expect(before).to be > 10_000
      expect(after).to be < 5_000
      expect(untracked).to be > 5_000
    end

    it "goes on beside them, tells what it did not see, and trusts no address that may be dead" do
      output = run_child(<<~'RUBY', "-W:no-experimental")
        collector = exact
        collector.start!
        kept = Array.new(1_000) { "x" * 100 }
        ractors = Array.new(3) { Ractor.new { 30_000.times { "y" * 100 }; GC.start; :done } }
        20.times { Array.new(1_000) { "z" * 100 }; collector.flush }
        ractors.each { |ractor| take(ractor) }
        GC.start
        GC.compact if GC.respond_to?(:compact)
        data = collector.flush(gc: true)
        allocations = collector.stats[:allocations]
        collector.stop!
        abort "kept #{kept.size}" unless kept.all? { |string| string == "x" * 100 }
        puts allocations[:other_ractor] + allocations[:unseen], allocations.except(:vm).values.sum - allocations[:vm]
      RUBY
      elsewhere, difference = output.split.map(&:to_i)
      expect(elsewhere).to be >= 90_000
      expect(difference).to eq 0
    end
  end

  Collecting::BACK_ENDS.each do |liveness|
    describe "with other Ractors (liveness: #{liveness})" do
      include_examples "with other Ractors", liveness
    end
  end
end
