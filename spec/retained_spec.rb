# frozen_string_literal: true

require "objspace"

RSpec.shared_examples "what is retained" do |liveness|
  include_context "with liveness", liveness

  # Of such classes the VM itself can tell how many are left, so what a stale stack slot keeps alive does not matter.
  before do
    stub_const("RetainedText", Class.new(String))
    stub_const("RetainedList", Class.new(Array))
    stub_const("RetainedTable", Class.new(Hash))
    stub_const("RetainedThing", Class.new { attr_accessor :a, :b, :c, :d, :e })
    stub_const("RetainedPair", Struct.new(:a, :b))
  end

  let(:classes) { [RetainedText, RetainedList, RetainedTable, RetainedThing, RetainedPair] }

  def make(n)
    Array.new(n) do |i|
      case i % 5
      when 0 then RetainedText.new("x" * 30)
      when 1 then RetainedList.new
      when 2 then RetainedTable.new
      when 3 then RetainedThing.new
      else RetainedPair.new(1, 2)
      end
    end
  end

  def grow(objects)
    objects.each do |object|
      case object
      when RetainedText then object << ("y" * 500)
      when RetainedList then 100.times { |i| object << i }
      when RetainedTable then 50.times { |i| object[i] = i }
      when RetainedThing then object.a = object.b = object.c = object.d = object.e = 1
      end
    end
  end

  # @return [Hash] count and bytes by class, as the VM has them
  def in_the_heap
    classes.to_h do |klass|
      objects = ObjectSpace.each_object(klass).to_a
      [klass.name, [objects.size, objects.sum { |object| ObjectSpace.memsize_of(object) }]]
    end
  end

  def in_the_profile(data)
    samples = read(data).samples.group_by { |sample| sample.labels["class"] }
    classes.to_h do |klass|
      mine = samples.fetch(klass.name, [])
      [klass.name, %w[retained_objects retained_size].map { |type| mine.sum { |sample| sample.values[type] } }]
    end
  end

  def flushed(collector) = collector.flush(gc: true)

  it "is what is alive, with the size that it has grown to" do
    collector = exact
    collector.start!
    kept = make(1_000)
    make(1_000)
    data = flushed(collector)
    expect(in_the_profile(data)).to eq in_the_heap
    grow(kept)
    data = flushed(collector)
    expect(in_the_profile(data)).to eq in_the_heap
    kept.pop(500)
    data = flushed(collector)
    collector.stop!
    expect(in_the_profile(data)).to eq in_the_heap
    expect(in_the_profile(data).values.sum(&:first)).to be < 2_000
    expect(kept.size).to eq 500
  end

  it "has the first size as allocated, whatever it grows to" do
    collector = exact
    collector.start!
    kept = make(100)
    collector.snapshot
    grow(kept)
    profile = read(flushed(collector))
    collector.stop!
    lists = profile.samples.select { |sample| sample.labels["class"] == "RetainedList" }
    expect(lists.sum { |sample| sample.values["allocation_size"] }).to eq 20 * ObjectSpace.memsize_of(RetainedList.new)
    expect(lists.sum { |sample| sample.values["retained_size"] }).to be > 20 * 800
    expect(kept.size).to eq 100
  end

  it "survives garbage collections of every kind, over many rounds and reused addresses" do
    collector = exact
    collector.start!
    kept = []
    random = Random.new(1)
    12.times do |round|
      kept.concat(make(500))
      make(1_000)
      kept = kept.sample(600, random: random)
      case round % 4
      when 0 then GC.start
      when 1 then GC.start(full_mark: false)
      when 2 then GC.start(immediate_sweep: false)
      else 3.times { make(500) }
      end
    end
    data = flushed(collector)
    collector.stop!
    expect(in_the_profile(data)).to eq in_the_heap
    expect(collector.stats[:dropped_samples][:untracked]).to eq 0
    expect(kept.size).to eq 600
  end

  it "gives no address to another object that lives there now" do
    collector = exact
    collector.start!
    10.times do
      make(2_000)
      GC.start
      Array.new(10_000) { "other" }
    end
    data = flushed(collector)
    collector.stop!
    expect(in_the_profile(data)).to eq in_the_heap
  end

  describe "during a lazy sweep" do
    it "counts what is not known dead, and touches nothing that is" do
      output = run_child(<<~'RUBY')
        collector = exact
        collector.start!
        class Kept < Array; end
        def kinds(i)
          case i % 6
          when 0 then "x" * 200
          when 1 then Array.new(50, i)
          when 2 then { a: i, b: i, c: i, d: i, e: i, f: i, g: i, h: i, i: i, j: i }
          when 3 then Enumerator.new { }
          when 4 then Regexp.new("a#{i}").match("a#{i}")
          else Kept.new(60) end
        end
        sweeping = stale = 0
        12.times do
          kept = Array.new(6_000) { |i| kinds(i) }.each_slice(3).map(&:first)
          GC.start(full_mark: true, immediate_sweep: false)
          sweeping += 1 if GC.latest_gc_info(:state) == :sweeping
          data = collector.flush
          stale += collector.stats[:stale_sizes]
          abort "too few" if data.heap_samples_count < kept.size
          kept.each { |object| object << "more" if object.is_a?(String) || object.is_a?(Array) }
          collector.snapshot(min_gc_age: 1)
        end
        collector.stop!
        puts sweeping, stale
      RUBY
      sweeping, stale = output.split.map(&:to_i)
      expect(sweeping).to be > 5
      expect(stale).to be_positive if liveness == :free_hook # the dead that are not swept yet among them
    end

    it "says so in the profile" do
      collector = exact
      collector.start!
      make(20_000)
      GC.start(immediate_sweep: false)
      comments = read(collector.flush).comments.join("\n")
      collector.stop!
      expect(comments).to match(/gc count: \d+, gc state: (sweeping|marking|none)/)
      expect(comments).to match(/sizes not measured again: \d+/)
    end
  end

  if GC.respond_to?(:compact)
    it "follows objects that compaction moves" do
      collector = exact
      collector.start!
      kept = []
      4.times do
        kept.concat(make(2_000))
        kept = kept.each_slice(2).map(&:first)
        GC.compact
        grow(kept.first(100))
      end
      data = flushed(collector)
      expect(in_the_profile(data)).to eq in_the_heap
      kept.pop(kept.size / 2)
      data = flushed(collector)
      collector.stop!
      expect(in_the_profile(data)).to eq in_the_heap
      expect(collector.stats[:dropped_samples][:untracked]).to eq 0
    end

    it "follows them with auto_compact, and where every object is moved on purpose" do
      output = run_child(<<~'RUBY')
        class Thing; attr_accessor :a; end
        collector = exact
        collector.start!
        def make = Array.new(3_000) { Thing.new.tap { |thing| thing.a = "x" * 100 } }
        kept = []
        GC.auto_compact = true
        5.times { kept = (kept + make).each_slice(2).map(&:first); make; GC.start }
        GC.auto_compact = false
        3.times do
          kept = (kept + make).each_slice(2).map(&:first)
          if RUBY_VERSION < "3.2"
            GC.verify_compaction_references(toward: :empty, double_heap: true)
          else
            GC.verify_compaction_references(toward: :empty, expand_heap: true)
          end
        end
        make
        data = collector.flush(gc: true)
        alive = ObjectSpace.each_object(Thing).count
        collector.stop!
        $stdout.binmode.write([alive, collector.stats[:dropped_samples][:untracked]].pack("Q2"), data.pprof_data)
      RUBY
      alive, untracked = output.b.unpack("Q2")
      profile = ProfileReader.read(output.b.byteslice(16..))
      things = profile.samples.select { |sample| sample.labels["class"] == "Thing" }
      expect(things.sum { |sample| sample.values["retained_objects"] }).to eq alive
      expect(untracked).to eq 0
    end
  end

  describe "with min_gc_age" do
    around do |example| # no collection but those of the test
      GC.disable
      example.run
    ensure
      GC.enable
    end

    it "leaves out what has not survived so many collections" do
      collector = exact
      collector.start!
      kept = make(100)
      ages = ->(n) { in_the_profile(collector.snapshot(min_gc_age: n)).values.sum(&:first) }
      expect(ages.(0)).to eq 100
      expect(ages.(1)).to eq 0
      GC.start
      expect([ages.(1), ages.(2)]).to eq [100, 0]
      GC.start(full_mark: false, immediate_sweep: true)
      younger = make(50)
      count = ages.(0)
      expect(count).to eq 150
      expect([ages.(2), ages.(3)]).to eq [100, 0]
      GC.start
      expect([ages.(1), ages.(3), ages.(4)]).to eq [150, 100, 0]
      collector.stop!
      GC.start
      expect([ages.(1), ages.(3), ages.(4)]).to eq [150, 100, 0] # as of the stop
      expect(read(collector.flush(min_gc_age: 3)).comments).to include(/survivors of 3 collections/)
      expect([kept.size, younger.size]).to eq [100, 50]
    end

    it "counts a collection when it has finished" do
      collector = exact
      Array.new(200_000) { "x" } # keeps the sweep going for a while
      collector.start!
      kept = make(100)
      collector.stats
      GC.start(immediate_sweep: false)
      sweeping = GC.latest_gc_info(:state)
      during = collector.snapshot(min_gc_age: 1)
      still = GC.latest_gc_info(:state)
      GC.start
      after = collector.snapshot(min_gc_age: 1)
      collector.stop!
      expect([sweeping, still]).to eq %i[sweeping sweeping]
      expect(in_the_profile(during).values.sum(&:first)).to eq 0
      expect(in_the_profile(after).values.sum(&:first)).to eq 100
      expect(kept.size).to eq 100
    end

    it "makes retained counts of samples fit" do
      collector = exact
      collector.start!
      kept = make(100)
      expect(collector.snapshot(min_gc_age: 1).heap_samples_count).to eq 0
      expect(collector.snapshot.heap_samples_count).to be >= 100
      collector.stop!
      expect(kept.size).to eq 100
    end
  end

  describe "after stop" do
    it "is what was then, whatever dies or moves" do
      collector = exact
      collector.start!
      kept = make(500)
      grow(kept.first(100))
      collector.stop!(gc: true)
      then_alive = in_the_heap
      kept.clear
      3.times { GC.start }
      make(2_000)
      GC.compact if GC.respond_to?(:compact)
      expect(in_the_profile(collector.flush(gc: true))).to eq then_alive
      expect(in_the_profile(collector.snapshot)).to eq then_alive
    end

    it "has sizes measured at the stop" do
      collector = exact
      collector.start!
      kept = make(500)
      collector.snapshot
      GC.start
      grow(kept)
      collector.stop!
      lists = read(collector.flush).samples.select { |sample| sample.labels["class"] == "RetainedList" }
      actual = kept.grep(RetainedList).sum { |list| ObjectSpace.memsize_of(list) }
      expect(lists.sum { |sample| sample.values["retained_size"] }).to eq actual
    end

    it "without gc has what is not known dead" do
      collector = exact
      collector.start!
      make(1_000)
      collector.stop!
      expect(in_the_profile(collector.flush).values.sum(&:first)).to be_between(0, 1_000)
    end
  end

  describe "beyond max_heap_samples" do
    it "is thinned, stays unbiased, and leaves allocations alone" do
      kept = nil
      estimates = (1..25).map do |seed|
        collector = exact(max_heap_samples: 500, seed: seed)
        collector.start!
        kept = Array.new(10_000) { RetainedThing.new }
        stats = collector.stats
        data = collector.flush
        collector.stop!
        expect(stats[:live_samples]).to be_between(1, 500)
        expect(stats[:live_thinning]).to be_between(1 / 128.0, 1 / 16.0)
        things = read(data).samples.select { |sample| sample.labels["class"] == "RetainedThing" }
        expect(things.sum { |sample| sample.values["allocations"] }).to eq 10_000
        expect(read(data).comments.join).to include("live thinning")
        things.sum { |sample| sample.values["retained_objects"] }
      end
      # Each stands for itself with probability 1/32 or 1/64 in the end: the larger variance bounds both.
      error = (estimates.sum / 25.0 - 10_000) / Math.sqrt(10_000 * 63 / 25.0)
      expect(error).to be_between(-5, 5)
      expect(estimates.uniq.size).to be > 1
      expect(kept.size).to eq 10_000
    end

    it "is taken in full again when few are left" do
      collector = exact(max_heap_samples: 500, seed: 1)
      collector.start!
      kept = Array.new(5_000) { RetainedThing.new }
      expect(collector.stats[:live_thinning]).to be < 1
      kept.clear
      GC.start
      collector.flush # notices deaths, whatever tells of them
      20.times { RetainedThing.new }
      expect(collector.stats[:live_thinning]).to eq 1.0
      collector.stop!
    end

    it "says with raw_counts that they are scaled all the same" do
      collector = exact(max_heap_samples: 100, raw_counts: true, seed: 1)
      kept = nil
      data = collector.profile { kept = Array.new(1_000) { RetainedThing.new } }
      expect(read(data).comments.join).to match(/thinning.*raw counts are scaled/)
      expect(kept.size).to eq 1_000
    end
  end

  it "is zero with liveness: :none" do
    collector = exact(liveness: :none)
    kept = nil
    data = collector.profile { kept = make(1_000) }
    expect(read(data).total("retained_objects")).to eq 0
    expect(read(data).total("retained_size")).to eq 0
    expect([data.heap_samples_count, collector.live_heap_samples_count]).to eq [0, 0]
    expect(collector.stats[:liveness]).to eq :none
    expect(read(data).comments.join).to include("liveness: none")
    expect(kept.size).to eq 1_000
  end

  it "leaves out what has a finalizer and is dead, and survives objects whose size cannot be had" do
    run_child(<<~'RUBY')
      require "tempfile"
      require "stringio"
      collector = exact
      collector.start!
      ran = 0
      count = proc { ran += 1 }
      Array.new(2_000) { Object.new.tap { |object| ObjectSpace.define_finalizer(object, count) } }
      kept = [Tempfile.new("x"), StringIO.new("x"), Thread.new { sleep }, Mutex.new, binding, proc { }, method(:puts),
              Enumerator.new { }, Random.new, Fiber.new { }, Class.new, Module.new, IO.pipe, $stdin.dup, Time.now,
              ObjectSpace::WeakMap.new, 1.0e-320, 2**70, :a.to_proc, /x/, "x".match(/x/), Struct.new(:a).new(1),
              Encoding::Converter.new("UTF-8", "UTF-16"), Rational(1, 3), Complex(1, 2), (1..2).each_slice(2)]
      5.times { GC.start; collector.flush; collector.flush(gc: true) }
      abort "finalizers: #{ran}" if ran < 1_900
      collector.stop!
    RUBY
  end
end

Collecting::BACK_ENDS.each do |liveness|
  RSpec.describe "what is retained (liveness: #{liveness})" do
    include_examples "what is retained", liveness
  end
end
