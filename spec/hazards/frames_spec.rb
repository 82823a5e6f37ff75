# frozen_string_literal: true

# Frames of every kind of code: named, valid, and bounded, also when the code is gone before the flush.
RSpec.describe "frames" do
  def profile_of(kind = Collecting::KINDS.first, &work) = read(collect(kind, &work))

  def frames_of(profile) = profile.samples.flat_map(&:stack)

  files = {
    "empty" => "", "relative" => "./a/../b.rb", "with spaces" => "a b c.rb",
    "a megabyte long" => "x" * 1_000_000, "binary" => "\xFF\xFEa".b, "not UTF-8" => "caf\xE9.rb".dup.force_encoding("ISO-8859-1"),
    "UTF-16" => "datei.rb".encode("UTF-16LE"), "emoji" => "🦀.rb", "(eval)" => "(eval)", "newlines" => "a\nb\n.rb"
  }
  files.each do |name, file|
    it "may be in a file whose name is #{name}" do
      profile = profile_of { eval("def evaluated_here = Object.new\nevaluated_here", binding, file, 1) }
      expect(frames_of(profile).map(&:name)).to include(/evaluated_here/)
      expect(frames_of(profile).map { |frame| frame.file.bytesize }.max).to be <= 8192
    end
  end

  Collecting::KINDS.drop(1).each do |kind|
    it "may be in any of them, and gone at once (#{kind.name})" do
      n = 0
      profile = profile_of(kind) do
        files.each_value do |file|
          text = "def self.here_#{n += 1} = Array.new(50) { Object.new }\nhere_#{n}"
          Module.new { module_eval(text, file, -n) }
        end
        GC.start if (n % 50).zero?
      end
      expect(frames_of(profile).map(&:name)).to include(/here_\d+/) if kind.exact? # few windows may have seen none
      expect(frames_of(profile).map { |frame| frame.file.bytesize }.max).to be <= 8192
    end
  end

  [0, -1, -2**31, 2**31 - 2].each do |line|
    it "may be in line #{line}" do
      profile = profile_of { eval("Object.new\nObject.new", binding, "odd_line.rb", line) }
      expect(frames_of(profile).map(&:file)).to include("odd_line.rb")
    end
  end

  it "may be of code that is gone when it is flushed" do
    profile = profile_of do
      200.times do |i|
        holder = Module.new { module_eval("def self.gone_#{i} = Object.new\ngone_#{i}", "gone.rb", 1) }
        holder.singleton_class.send(:undef_method, :"gone_#{i}")
        holder = nil
        GC.start if (i % 50).zero?
      end
      GC.start
    end
    expect(frames_of(profile).map(&:name).grep(/gone_/).uniq.size).to eq 200
  end

  it "may be of methods with any name" do
    names = ["with space", "émoji 🦀", "a\0b", "+", "[]=", "!", "=", "1", "x" * 10_000, "\xFF".b, "A::B", "a.b#c", "<top>"]
    receiver = Object.new
    profile = profile_of do
      names.each { |name| receiver.define_singleton_method(name) { Object.new } && receiver.public_send(name) }
    end
    expect(total(profile.samples.select { |sample| sample.labels["class"] == "Object" })).to be >= names.size
  end

  it "may be of refinements, aliases, method_missing, instance_eval, define_method, singletons of singletons, main" do
    output = Child.run(<<~'RUBY')
      module Refined; refine(Integer) { def refined = Object.new }; end
      using Refined
      class Odd < BasicObject
        def method_missing(name, *) = ::Object.new
        def original = ::Object.new
        alias aliased original
        define_method(:defined) { ::Object.new }
      end
      def at_main = Object.new
      collector = exact
      collector.start!
      1.refined
      odd = Odd.new
      odd.aliased; odd.defined; odd.anything
      odd.instance_eval { ::Object.new }
      deep = Object.new
      5.times { deep = deep.singleton_class }
      def deep.deepest = Object.new
      deep.deepest
      at_main
      ObjectSpace.each_object(Class).first
      catch(:out) { [1].each { Object.new.then { throw :out } } }
      RubyVM::InstructionSequence.load_from_binary(RubyVM::InstructionSequence.compile("Object.new").to_binary).eval
      TOPLEVEL_BINDING.eval("Object.new")
      Thread.new { Object.new }.join
      Fiber.new { Object.new }.resume
      data = collector.flush
      collector.stop!
      names = MemprofilerPprof::ProfileReader.read(data.pprof_data).samples.flat_map { |sample| sample.stack.map(&:name) }
      print %w[refined original method_missing deepest at_main].reject { |text| names.any? { |name| name.include?(text) } }
      abort "an address in a name" if names.any? { |name| name.match?(/0x\h{6,}/) }
    RUBY
    expect(output).to eq "[]"
  end

  # Compiled code is at no line that rb_profile_frames could tell.
  %w[yjit rjit].each do |compiler|
    it "may be compiled, by #{compiler}" do
      options = ["--#{compiler}", "--#{compiler}-call-threshold=5"]
      ask = "exit RubyVM::#{compiler.upcase}.enabled?"
      skip "this Ruby has no #{compiler}" unless system(RbConfig.ruby, "--disable=gems", *options, "-e", ask, err: File::NULL)

      output = Child.run(<<~RUBY, *options)
        def sites(n)
          text = "a" +
                 "b"
          list = [n]
          table = { of: n }
          [text, list, table, "\#{list.size} of it"]
        end
        require "objspace"
        200.times { |n| sites(n) }
        traced = ObjectSpace.trace_object_allocations { sites(1).map { |object| ObjectSpace.allocation_sourceline(object) } }
        data = exact.profile { 100.times { |n| sites(n) } }
        samples = MemprofilerPprof::ProfileReader.read(data.pprof_data).samples
        samples = samples.select { |sample| sample.stack.first.name.end_with?("sites") }
        lines = samples.map { |sample| sample.stack.first.line }
        print (traced - lines).inspect, lines.include?(0), samples.sum { |sample| sample.values["allocations"] }
      RUBY
      expect(output).to eq "[]false700"
    end
  end

  it "may be redefined between sample and flush" do
    output = Child.run(<<~'RUBY')
      collector = exact
      collector.start!
      kept = []
      300.times do |i|
        eval "class Redefined; def again = Object.new # #{i}\nend"
        kept << Redefined.new.again
        GC.start(full_mark: i % 100 == 0) if i % 20 == 0
      end
      data = collector.flush(gc: true)
      collector.stop!
      samples = MemprofilerPprof::ProfileReader.read(data.pprof_data).samples
      print samples.select { |s| s.stack.first.name == "Redefined#again" || s.stack.any? { |f| f.name == "Redefined#again" } }
        .sum { |s| s.values["retained_objects"] }
    RUBY
    expect(output).to eq "300"
  end
end
