# frozen_string_literal: true

require "delegate"
require "objspace"
require "set"
require "socket"
require "stringio"
require "tempfile"
require "weakref"

# Objects of every type that a program can make: label, number, and the size that ObjectSpace tells, then and later.
RSpec.describe "objects" do
  made = {
    "Object" => -> { Object.new }, "BasicObject" => -> { BasicObject.new },
    "String" => -> { "x" * 100 }, "Symbol" => -> { "dynamic symbol #{rand}".to_sym },
    "Array" => -> { Array.new(50) { 1 } }, "Hash" => -> { { rand => 1, 2 => 3 } },
    "Float" => -> { (1 + rand) * 1.0e-320 }, "Integer" => -> { (2**1000) + rand(1000) },
    "Rational" => -> { Rational(rand(1..9), 7) }, "Complex" => -> { Complex(rand, 1) },
    "Range" => -> { ("a".."#{rand(9)}") }, "Regexp" => -> { /a#{rand}/ },
    "MatchData" => -> { "abc".match(/b/) }, "Proc" => -> { proc {} }, "Method" => -> { 1.method(:+) },
    "UnboundMethod" => -> { Integer.instance_method(:+) }, "Binding" => -> { binding },
    "Class" => -> { Class.new }, "Module" => -> { Module.new }, "Random" => -> { Random.new(1) },
    "Time" => -> { Time.at(0) }, "Struct" => nil, "Enumerator" => -> { [].each },
    "Enumerator::Lazy" => -> { [1].lazy }, "Enumerator::Yielder" => nil, "Fiber" => -> { Fiber.new {} },
    "Thread" => -> { Thread.new {}.join }, "Thread::Mutex" => -> { Mutex.new }, "Thread::Queue" => -> { Queue.new },
    "Thread::ConditionVariable" => -> { ConditionVariable.new }, "StandardError" => -> { StandardError.new("x") },
    "IO" => nil, "File" => -> { File.open(File::NULL) }, "Dir" => -> { Dir.new("/") }, "StringIO" => -> { StringIO.new("x") },
    "Encoding::Converter" => -> { Encoding::Converter.new("UTF-8", "UTF-16") }, "Set" => -> { Set[1, 2] },
    "ObjectSpace::WeakMap" => -> { ObjectSpace::WeakMap.new }, "WeakRef" => -> { WeakRef.new("x") },
    "Addrinfo" => -> { Addrinfo.tcp("127.0.0.1", 80) }, "Process::Status" => nil,
    "RubyVM::InstructionSequence" => -> { RubyVM::InstructionSequence.compile("1") }, "Thread::Backtrace::Location" => nil
  }.compact

  Collecting::BACK_ENDS.each do |liveness|
    made.each do |name, make|
      it "of type #{name} are counted, labelled and measured (liveness: #{liveness})" do
        collector = exact(liveness: liveness)
        make.call # what is made once
        collector.start!
        kept = Array.new(30) { make.call }
        profile = read(collector.flush(gc: true))
        collector.stop!
        ours = profile.samples.select { |sample| sample.labels["class"] == name }
        expect(total(ours)).to be >= 30
        # What an object holds besides itself (a Thread's fiber …) may be of the same class.
        sizes = kept.sum { |object| ObjectSpace.memsize_of(object) }
        retained = total(ours, "retained_objects")
        expect(retained).to be_between(30, 70)
        expect(total(ours, "retained_size")).to eq sizes if retained == 30 && name != "BasicObject"
        kept.each(&:close) if %w[File Dir].include?(name)
      end
    end

    it "of user classes, whatever they override, are never asked anything (liveness: #{liveness})" do
      output = Child.run(<<~RUBY)
        class Hostile
          methods = %i[class inspect to_s hash eql? == equal? respond_to? method_missing object_id __id__ is_a? kind_of?
                       instance_of? frozen? name nil? ! encoding size length dup clone freeze]
          methods.each { |method| define_method(method) { |*| raise "\#{method} was called" } }
          class << self
            %i[name to_s inspect hash == allocate class respond_to? ancestors superclass].each do |method|
              define_method(method) { |*| raise "\#{method} was called on the class" }
            end
          end
        end
        collector = exact(liveness: :#{liveness})
        collector.start!
        kept = Array.new(100) { Hostile.new }
        data = collector.flush(gc: true)
        collector.stop!
        print MemprofilerPprof::ProfileReader.read(data.pprof_data).samples
          .select { |sample| sample.labels["class"] == "Hostile" }.sum { |sample| sample.values["retained_objects"] }
      RUBY
      expect(output).to eq "100"
    end
  end

  it "of every type are sampled in bursts, with classes of theirs" do
    kept = []
    profile = read(collect(Collecting::KINDS.last, gc: true) do
      made.each { |name, make| kept << Array.new(%w[Thread File Dir].include?(name) ? 1 : 200) { make.call } }
      kept.shift if kept.size > made.size
    end)
    known = profile.samples.map { |sample| sample.labels["class"] } & made.keys
    expect(known).not_to be_empty
    expect(profile.total("retained_objects")).to be > 0
  end

  it "keep their size at allocation, and have the one they have grown to" do
    collector = exact
    collector.start!
    text = "a" * 10
    list = Array.new(3) { 1 }
    collector.stats # the safe point
    text << "b" * 100_000
    list.concat([1] * 10_000)
    data = collector.flush(gc: true)
    collector.stop!
    here = samples_in(data, "block (2 levels) in <top (required)>").group_by { |sample| sample.labels["class"] }
    expect(total(here["String"], "retained_size")).to be >= 100_000
    expect(total(here["Array"], "retained_size")).to be_between(80_000, 200_000)
    expect(total(here["String"], "allocation_size")).to be_between(100_000, 200_000) # what was appended, mostly
    expect([text.size, list.size]).to eq [100_010, 10_003]
  end

  it "die as they would: finalizers run, and nothing is kept" do
    output = Child.run(<<~'RUBY')
      kinds = [*%i[free_hook weak_map none].map { |way| { sample_rate: 1, liveness: way } }, { mode: :burst, overhead: 0.5, prelude: 0.02 }]
      results = kinds.map do |options|
        collector = MemprofilerPprof::Collector.new(**options)
        collector.start!
        burn(0.1)
        finalized = 0
        note = proc { finalized += 1 }
        make = lambda do
          200.times { ObjectSpace.define_finalizer(Object.new, note) }
          Array.new(200) { ObjectSpace::WeakMap.new.tap { |map| map[Object.new] = 1 } }
        end
        maps = Fiber.new { make.call }.resume
        Fiber.new { Array.new(50) { "wipe" } }.resume
        3.times { GC.start }
        collector.stop!
        [finalized > 190, maps.count { |map| map.size.zero? } > 190]
      end
      print results.flatten.all?
    RUBY
    expect(output).to eq "true"
  end

  it "may be huge" do
    collector = exact
    collector.start!
    text = "x" * 300_000_000
    data = collector.flush
    collector.stop!
    expect(total(samples_of(data, "String"), "retained_size")).to be >= 300_000_000
    expect(text.bytesize).to eq 300_000_000
  end

  it "share buffers, are copied, frozen and removed from under their names" do
    collector = exact
    collector.start!
    base = "x" * 10_000
    parts = Array.new(50) { |i| base[i, 5_000] } + Array.new(50) { base.dup } + Array.new(50) { base.clone.freeze }
    lists = Array.new(50) { |i| Array.new(1000) { i }.drop(10) }
    Object.const_set(:Vanishing, Class.new)
    instances = Array.new(50) { Vanishing.new }
    collector.stats
    Object.__send__(:remove_const, :Vanishing)
    GC.start
    profile = read(collector.flush(gc: true))
    collector.stop!
    named = profile.samples.select { |sample| sample.labels["class"] == "Vanishing" }
    expect(total(named, "retained_objects")).to eq 50
    expect(ProfileRules.violations(collector.snapshot.pprof_data)).to eq []
    expect([parts.size, lists.size, instances.size]).to eq [150, 50, 50]
  end
end
