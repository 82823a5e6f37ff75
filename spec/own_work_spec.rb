# frozen_string_literal: true

# What the profiler itself allocates is counted as its own and is in nobody's profile.
RSpec.shared_examples "own work" do |liveness|
  include_context "with liveness", liveness

  def own(collector) = collector.stats[:allocations][:own]

  def paths(data)
    read(data).samples.flat_map { |sample| sample.stack.map(&:file) }.uniq
  end

  it "is not in its own profile" do
    collector = exact
    collector.start!
    first = own(collector)
    5.times { collector.flush }
    5.times { collector.snapshot(gc: true) }
    5.times { collector.stats }
    data = collector.flush
    collector.stop!
    expect(own(collector)).to be > first + 50
    inside = read(data).samples.select { |sample| sample.stack.first.file.include?("/profile_data.rb") }
    expect(inside).to eq []
  end

  it "is not in the profile of another collector either" do
    one, other = exact, exact
    one.start!
    other.start!
    before = one.stats[:allocations]
    datas = Array.new(10) { other.flush(gc: true) }
    10.times { other.stats }
    after = one.stats[:allocations]
    [one, other].each(&:stop!)
    expect(datas.size).to eq 10
    expect(after[:own] - before[:own]).to be > 100
    expect(after[:counted] - before[:counted]).to be < 100 # what the example itself makes
    profile = read(one.flush)
    expect(profile.samples.map { |sample| sample.labels["class"] }).not_to include("MemprofilerPprof::ProfileData")
  end

  it "is that of one thread: another one's allocations meanwhile are sampled" do
    collector = exact
    collector.start!
    done = false
    made = 0
    thread = Thread.new { made += Array.new(100) { Object.new }.size until done }
    30.times { collector.flush(gc: true) }
    done = true
    thread.join
    collector.stop!
    counted = read(collector.snapshot).samples.select { |sample| sample.labels["class"] == "Object" }
    expect(counted.sum { |sample| sample.values["allocations"] }).to be >= made
    expect(balance(collector).reduce(:-)).to eq 0
  end

  it "ends: what is allocated after a call is the program's" do
    collector = exact
    collector.start!
    collector.flush
    collector.stats
    before = own(collector)
    Array.new(500) { Object.new }
    during = own(collector) - before
    collector.stop!
    expect(during).to be < 150 # one reading of stats
  end

  # A WeakMap is in the VM's memory, and has none but methods.
  plain = !(liveness == :weak_map && Collecting::WEAK_MAP)

  it "is in no malloc accounting of the VM, and starts no collection", if: plain do
    collector = exact
    GC.start
    GC.disable
    collector.start!
    kept = Array.new(50_000) { Object.new }
    before = GC.stat(:malloc_increase_bytes)
    collector.stats
    expect(GC.stat(:malloc_increase_bytes) - before).to be < 100_000
    collector.stop!
    expect(kept.size).to eq 50_000
  ensure
    GC.enable
  end

  it "leaves $! as it is" do
    collector = exact
    collector.start!
    begin
      raise "mine"
    rescue RuntimeError => e
      Array.new(10) { Object.new }
      collector.flush
      expect($!).to equal(e)
    end
    collector.stop!
    expect($!).to be_nil
  end

  # Such as a tracer's, which might leave in the midst of it for good.
  it "calls no method, so that nothing of the program runs in the midst of it", if: plain do
    collector = exact
    calls = []
    thread = Thread.current
    tracer = TracePoint.new(:call, :c_call, :b_call) { |event| calls << event.method_id if Thread.current == thread }
    collector.start!
    tracer.enable { [collector.flush, collector.snapshot(gc: true), collector.stats, collector.stop!] }
    expect(calls).to include(:flush_native, :stats, :stop_native)
    expect(calls.each_cons(2).filter_map { |call, inner| inner if call == :flush_native }).to all(eq(:snapshot).or(eq(:stats)))
    expect(calls.each_cons(2).filter_map { |call, inner| inner if call == :stats }).to eq [:stop!]
  end
end

Collecting::BACK_ENDS.each do |liveness|
  RSpec.describe "own work (liveness: #{liveness})" do
    include_examples "own work", liveness
  end
end
