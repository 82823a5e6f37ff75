# frozen_string_literal: true

require "bigdecimal"

RSpec.describe "the options of a Collector" do
  # What stands for a value that fights back: every question asked of it raises.
  hostile = Class.new(BasicObject) { def method_missing(*) = ::Kernel.raise("user code was run") }.new
  loud = Class.new(Object) do
    %i[inspect to_s class nil? == === to_f to_i to_int to_str to_sym hash is_a? respond_to?].each do |name|
      define_method(name) { |*| raise "user code was run" }
    end
  end.new

  def make(**options) = MemprofilerPprof::Collector.new(**options)

  allowed = {
    mode: %i[fixed burst],
    overhead: [nil, 1.0e-6, 0.5, Rational(1, 100)],
    prelude: [nil, 0, 0.5, 60, Rational(1, 100)],
    timer_signal: [nil, 34, 64],
    sample_rate: [nil, 1.0e-6, 0.01, 1.0, 1, Rational(1, 3), Rational(1)],
    max_heap_samples: [1, 16_777_216],
    max_allocation_samples: [16, 16_777_216],
    memory_limit: [1024**2, 1024**4],
    max_stack_depth: [1, 10_000],
    class_names: [nil, :label, :frame, :off],
    sample_types: %i[memprofiler go],
    raw_counts: [true, false],
    liveness: [:auto, *Collecting::BACK_ENDS, :none],
    threads: %i[all current],
    seed: [nil, 0, 2**64 - 1]
  }
  needs = { overhead: { mode: :burst }, prelude: { mode: :burst }, timer_signal: { mode: :burst } }
  wrong_values = {
    mode: [:bursts, :none],
    overhead: [0, 0.0, -0.1, 0.5.next_float, 1, Rational(2, 3), Float::NAN, Float::INFINITY, 10**400],
    prelude: [-0.1, -1, 60.0.next_float, 61, Rational(121, 2), Float::NAN, Float::INFINITY, 10**400],
    timer_signal: [0, 27, 33, 65, -1, 2**64],
    sample_rate: [0, 0.0, -0.0, -0.5, 1.0.next_float, 2, 9.9e-7, Rational(3, 2), Rational(1, 10_000_000), Float::NAN,
                  Float::INFINITY, -Float::INFINITY, 10**400, -(10**400)],
    max_heap_samples: [0, -1, 16_777_217, 2**64],
    max_allocation_samples: [15, 0, -1, 16_777_217, 2**64],
    memory_limit: [1024**2 - 1, 0, -1, 1024**4 + 1, 2**64],
    max_stack_depth: [0, -1, 10_001, 2**64],
    class_names: [:labels, :"", :none],
    sample_types: [:pprof, :Go],
    liveness: [:mark_hook, :finalizer],
    threads: [:main, :other],
    seed: [-1, 2**64]
  }
  integers = %i[max_heap_samples max_allocation_samples memory_limit max_stack_depth]
  symbols = %i[mode class_names sample_types liveness threads]
  strange = ["0.5", "all", [], {}, Object, Object.new, Complex(1, 0), BigDecimal("0.5"), hostile, loud]
  wrong_types = {
    overhead: [true, :half, *strange],
    prelude: [true, false, :none, *strange],
    timer_signal: [true, 1.0, :USR1, *strange],
    sample_rate: [true, false, :half, *strange],
    seed: [true, 1.0, Rational(2), :random, *strange],
    raw_counts: [nil, 0, 1, :true, "true", *strange]
  }
  integers.each { |option| wrong_types[option] = [nil, true, false, 100.0, Rational(100), :all, Float::NAN, *strange] }
  symbols.each { |option| wrong_types[option] = [true, 1, *strange] }
  (symbols - [:class_names]).each { |option| wrong_types[option] << nil }

  it "are checked here one and all" do
    options = MemprofilerPprof::Collector.instance_method(:initialize).parameters.map(&:last)
    expect(options).to match_array(allowed.keys)
    expect(wrong_types.keys).to match_array(options)
    expect(wrong_values.keys).to match_array(options - [:raw_counts])
  end

  allowed.each do |option, values|
    it "#{option} takes the ends of its range" do
      values.each { |value| expect(make(option => value, **needs.fetch(option, {})).running?).to be false }
    end

    it "#{option} can be read" do
      values.compact.each { |value| expect(make(option => value, **needs.fetch(option, {})).public_send(option)).to eq value }
    end
  end

  wrong_values.each do |option, values|
    it "#{option} refuses a wrong value, and says what is allowed" do
      values.each do |value|
        expect { make(option => value) }.to raise_error(ArgumentError) { |error|
          expect(error.message).to match(/\A#{option} must be .+, not .+/)
          expect(error.message).to include(value.inspect) if value.inspect.size < 80
          expect(error.message.size).to be < 300
        }
      end
    end
  end

  wrong_types.each do |option, values|
    it "#{option} refuses another type, and runs no code of it" do
      values.each do |value|
        expect { make(option => value) }.to raise_error(TypeError, /\A#{option} must be .+, not .+/)
      end
    end
  end

  it "defaults are those of the documentation" do
    expect(allowed.keys.to_h { |option| [option, make.public_send(option)] }).to eq(
      mode: :fixed, overhead: nil, prelude: nil, timer_signal: nil, sample_rate: 0.01,
      max_heap_samples: 100_000, max_allocation_samples: 100_000, memory_limit: 67_108_864,
      max_stack_depth: 512, class_names: nil, sample_types: :memprofiler, raw_counts: false, liveness: :auto,
      threads: :all, seed: nil
    )
  end

  it "gives the rate as a Float" do
    [1, Rational(1, 4), 0.5].each { |rate| expect(make(sample_rate: rate).sample_rate).to be_a(Float) }
  end

  it "refuses an unknown one by name" do
    expect { make(sample_ratio: 0.5) }.to raise_error(ArgumentError, /sample_ratio/)
    expect { make.flush(full: true) }.to raise_error(ArgumentError, /full/)
    expect { make.snapshot(full: true) }.to raise_error(ArgumentError, /full/)
    expect { make.stop!(full: true) }.to raise_error(ArgumentError, /full/)
    expect { make.profile(full: true) {} }.to raise_error(ArgumentError, /full/)
  end

  it "names the class of an object that it does not show" do
    expect { make(seed: hostile) }.to raise_error(TypeError, /an object of an anonymous class/)
    expect { make(seed: Complex(1, 0)) }.to raise_error(TypeError, /an object of Complex/)
    expect { make(seed: 2**1000) }.to raise_error(ArgumentError, /an Integer of 1001 bits/)
    expect { make(seed: "x" * 1000) }.to raise_error(TypeError, /"xxx.*\.\.\.\z/)
  end

  it "are shown by Ruby's own inspect, whatever a string says of itself" do
    text = +"0.5"
    def text.inspect = raise("user code was run")
    expect { make(sample_rate: text) }.to raise_error(TypeError, /not "0\.5"\z/)
  end

  describe "of calls on a running collector" do
    let(:collector) { make(sample_rate: 1.0).tap(&:start!) }

    after { collector.stop! }

    wrong = { gc: [nil, 0, 1, :full, "true", hostile, loud], min_gc_age: [nil, 1.0, "1", true, hostile, loud] }
    %i[flush snapshot].each do |call|
      it "#{call} refuses wrong types and takes nothing" do
        kept = Array.new(100) { Object.new }
        wrong.each do |option, values|
          values.each do |value|
            expect { collector.public_send(call, option => value) }.to raise_error(TypeError, /\A#{option} must be/)
          end
        end
        [-1, 2**31, 2**64].each do |age|
          expect { collector.public_send(call, min_gc_age: age) }.to raise_error(ArgumentError, /\Amin_gc_age must be/)
        end
        expect { collector.public_send(call, sample_types: :x) }.to raise_error(ArgumentError, /\Asample_types must be/)
        [[], %i[go go], %i[go memprofiler go], [:x]].each do |several|
          expect { collector.public_send(call, sample_types: several) }.to raise_error(ArgumentError, /\Asample_types must be/)
        end
        expect { collector.public_send(call, sample_types: [hostile]) }.to raise_error(TypeError, /\Asample_types must be/)
        expect { collector.public_send(call, sample_types: hostile) }.to raise_error(TypeError, /\Asample_types must be/)
        expect { collector.public_send(call, class_names: loud) }.to raise_error(TypeError, /\Aclass_names must be/)
        expect { collector.public_send(call, class_names: "x") }.to raise_error(TypeError, /\Aclass_names must be/)
        expect(collector.running?).to be true
        expect(collector.flush.allocation_samples_count).to be >= kept.size
      end
    end

    it "stop! refuses what is neither true nor false, and goes on" do
      wrong[:gc].each { |value| expect { collector.stop!(gc: value) }.to raise_error(TypeError, /\Agc must be/) }
      expect(collector.running?).to be true
    end
  end

  it "profile refuses unknown threads and options of a flush, and does not start" do
    collector = make
    %i[gc min_gc_age sample_types class_names].each do |option|
      expect { collector.profile(option => hostile) { raise "run" } }.to raise_error(TypeError, /\A#{option} must be/)
    end
    expect { collector.profile(class_names: :none) { raise "run" } }.to raise_error(ArgumentError, /\Aclass_names must be/)
    expect { collector.profile(threads: :main) { raise "run" } }.to raise_error(ArgumentError, /\Athreads must be/)
    expect { collector.profile(threads: hostile) { raise "run" } }.to raise_error(TypeError, /\Athreads must be/)
    expect { collector.profile }.to raise_error(ArgumentError, /block/)
    expect(collector.running?).to be false
  end

  it "leave a collector that refused them unchanged" do
    collector = make(sample_rate: 0.5)
    expect { collector.send(:initialize, sample_rate: 2) }.to raise_error(ArgumentError)
    expect { collector.send(:initialize, sample_rate: 1.0) }.to raise_error(ArgumentError)
    expect(collector.sample_rate).to eq 0.5
  end
end
