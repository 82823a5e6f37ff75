# frozen_string_literal: true

# What is allocated in these, so that the stack of each place can be told from all others.
class NamesProbe; end

# Code of every kind that has a name of its own.
module NamesProgram
  class Inner
    def plain = NamesProbe.new
    def in_block = [1].each { NamesProbe.new }
    def in_nested = [1].each { [1].each { NamesProbe.new } }

    def on_its_line
      nil
      NamesProbe.new
    end
    def self.singleton = NamesProbe.new

    class << self
      def in_singleton_class = NamesProbe.new
    end
    define_method(:defined) { NamesProbe.new }
    define_method(:defined_nested) { [1].each { NamesProbe.new } }
    def größe = NamesProbe.new
    def <=>(_other) = NamesProbe.new
    def []=(_index, _value); NamesProbe.new; end
    def method_missing(_name, *) = NamesProbe.new
    def sorted = [2, 1].sort_by { NamesProbe.new && 1 }
    def in_lambda = -> { NamesProbe.new }.call
    def in_thread = Thread.new { NamesProbe.new }.join
    def in_fiber = Fiber.new { NamesProbe.new }.resume
    def sent = __send__(:plain)
    def rescued = Integer("x") rescue NamesProbe.new
  end

  module Refined
    refine(String) { def refined = NamesProbe.new }
  end

  class Sub < Inner; end
  ANONYMOUS = Class.new do
    def in_anonymous = NamesProbe.new
    def self.of_anonymous = NamesProbe.new
  end
  OBJECT = Object.new
  def OBJECT.own = NamesProbe.new
  MODULE = Module.new { def in_module = NamesProbe.new }
  eval("def self.evaluated = NamesProbe.new", nil, "some/eval'd file.erb", 77)
  BLOCK = proc { NamesProbe.new }
end

RSpec.describe "the names in a profile" do
  using NamesProgram::Refined

  # @return [Array<ProfileReader::Frame>] the stack of the probe that the block allocates, from above Class#new
  def stack_of(**options, &block)
    samples = read(exact(**options).profile(&block)).samples.select { |sample| sample.labels["class"] == "NamesProbe" }
    expect(samples).not_to be_empty
    samples.first.stack.drop_while { |frame| frame.name == "Class#new" }
  end

  def leaf(**options, &block) = stack_of(**options, &block).first

  let(:inner) { NamesProgram::Inner.new }

  describe "of functions" do
    it "are those that Ruby programmers write" do
      names = {
        "NamesProgram::Inner#plain" => -> { inner.plain },
        "NamesProgram::Inner.singleton" => -> { NamesProgram::Inner.singleton },
        "NamesProgram::Inner.in_singleton_class" => -> { NamesProgram::Inner.in_singleton_class },
        "NamesProgram::Inner#größe" => -> { inner.größe },
        "NamesProgram::Inner#<=>" => -> { inner <=> 1 },
        "NamesProgram::Inner#[]=" => -> { inner[1] = 2 },
        "NamesProgram::Inner#method_missing" => -> { inner.no_such_method },
        "NamesProgram.evaluated" => -> { NamesProgram.evaluated }
      }
      expect(names.values.map { |code| leaf(&code).name }).to eq names.keys
    end

    it "are the definer's, not the receiver's" do
      expect(leaf { NamesProgram::Sub.new.plain }.name).to eq "NamesProgram::Inner#plain"
    end

    it "of the method around a block, whose own line it is" do # the VM tells no more of it
      frames = stack_of { inner.in_nested }.first(5)
      each = RUBY_VERSION >= "3.4" && frames[1].file.start_with?("<internal:") ? frames[1].name : "Array#each"
      expect(frames.map(&:name)).to eq ["NamesProgram::Inner#in_nested", each, "NamesProgram::Inner#in_nested", each,
                                        "NamesProgram::Inner#in_nested"]
    end

    it "of a block that is in no method tell where it is" do
      expect(leaf { NamesProgram::BLOCK.call }.name).to eq "block in <module:NamesProgram>"
      expect(leaf { inner.defined }.name).to eq "block in <class:Inner>"
      expect(stack_of { inner.defined_nested }.map(&:name)[0, 3].values_at(0, 2))
        .to eq ["block (2 levels) in <class:Inner>", "block in <class:Inner>"]
    end

    it "have no address in them, and are the same for each class of the kind" do
      names = [leaf { NamesProgram::ANONYMOUS.new.in_anonymous }, leaf { NamesProgram::ANONYMOUS.of_anonymous },
               leaf { NamesProgram::OBJECT.own }, leaf { Class.new { include NamesProgram::MODULE }.new.in_module },
               leaf { "".refined }].map(&:name)
      expect(names).to all(match(/\A[^0-9]*\z/))
      expect(names.map { |name| name[/\w+\z/] }).to eq %w[in_anonymous of_anonymous own in_module refined]
      classes = Array.new(3) { Class.new { def in_anonymous = NamesProbe.new } }
      again = classes.map { |klass| leaf { klass.new.in_anonymous }.name }
      expect(again.uniq).to eq ["#<Class>#in_anonymous"]
    end

    it "of procs, threads, fibers and rescues are there" do
      expect(leaf { inner.in_lambda }.name).to eq "NamesProgram::Inner#in_lambda"
      expect(leaf { inner.rescued }.name).to eq "NamesProgram::Inner#rescued"
      expect(stack_of { inner.in_thread }.map(&:name)).to eq ["NamesProgram::Inner#in_thread"]
      expect(stack_of { inner.in_fiber }.map(&:name)).to eq ["NamesProgram::Inner#in_fiber"]
      expect(stack_of { inner.sent }.map(&:name).first(2)).to eq %w[NamesProgram::Inner#plain NamesProgram::Inner#sent]
    end
  end

  describe "of C functions" do
    it "are qualified, and have the place of their caller" do
      frames = stack_of { inner.sorted }
      own_line = inner.method(:sorted).source_location.last
      c_frames = frames.drop(1).take_while { |frame| frame.name != "NamesProgram::Inner#sorted" }
      expect(c_frames.map(&:name)).to include("Enumerable#sort_by")
      native = c_frames.reject { |frame| frame.file.start_with?("<internal:") }
      expect(native.map { |frame| [frame.file, frame.line, frame.start_line] }.uniq).to eq [[__FILE__, own_line, 0]]
    end

    it "count the object that they allocate at that place" do
      kept = nil
      line = __LINE__ + 1
      data = exact.profile { kept = Array.new(3) { "abc".reverse } }
      sample = samples_in(data, "String#reverse", "String").first
      frame = sample.stack.first
      expect([frame.file, frame.line]).to eq [__FILE__, line]
      expect(sample.values["allocations"]).to eq kept.size
    end

    it "called from two lines are two places, of one stack each" do
      data = exact.profile do
        "abc".reverse
        "abd".reverse
      end
      samples = samples_in(data, "String#reverse", "String")
      expect(samples.map { |sample| sample.stack.first.line }.uniq.size).to eq 2
    end
  end

  describe "of files" do
    it "are absolute, with the line of the frame and the first of the function" do
      frame = leaf { inner.on_its_line }
      file, line = inner.method(:on_its_line).source_location
      expect(frame.to_a).to eq ["NamesProgram::Inner#on_its_line", File.expand_path(file), line + 2, line]
    end

    it "are what eval was told" do
      expect(leaf { NamesProgram.evaluated }.to_a).to eq ["NamesProgram.evaluated", "some/eval'd file.erb", 77, 77]
    end

    it "may be in any encoding" do
      names = ["größe.rb", "gr\xF6\xDFe.rb".dup.force_encoding("ISO-8859-1"), "broken \xFF\xC3.rb",
               "bytes \xE9.rb".b, "名前.rb".encode("EUC-JP"), ""]
      names.each_with_index do |name, i|
        eval("def self.named_#{i} = NamesProbe.new", binding, name, 5)
      end
      datas = names.each_index.map { |i| exact.profile { __send__("named_#{i}") } }
      expect(datas.flat_map { |data| ProfileRules.violations(data.pprof_data) }).to eq []
      files = datas.map { |data| samples_in(data, "NamesProbe", nil) && read(data) }.map do |profile|
        probe = profile.samples.find { |sample| sample.labels["class"] == "NamesProbe" }
        probe.stack.find { |frame| frame.name.include?("named_") }.file
      end
      expect(files[0]).to eq "größe.rb"
      expect(files[1]).to eq "gr\uFFFD\uFFFDe.rb" # nothing is converted: that may run code of the program
      expect(files[2]).to eq "broken \uFFFD\uFFFD.rb"
      expect(files[4]).to match(/\uFFFD.*\.rb\z/)
    end

    it "may be very long, and so may names" do
      long = "x" * 100_000
      eval("def self.#{"é" * 5_000} = NamesProbe.new", binding, long, 1)
      data = exact.profile { __send__("é" * 5_000) }
      expect(ProfileRules.violations(data.pprof_data)).to eq []
      profile = read(data)
      expect(profile.message.string_table.map(&:bytesize).max).to be <= 4_096
      expect(profile.message.string_table.map(&:bytesize).max).to be > 4_090
    end
  end

  describe "of classes" do
    def class_names(&block)
      read(exact.profile(&block)).samples.map { |sample| sample.labels["class"] }.uniq
    end

    it "are their paths, of a singleton the class below it" do
      singleton = NamesProgram::Inner.new
      def singleton.x = 1
      kept = nil
      names = class_names do
        kept = [NamesProgram::Inner.new, NamesProgram::Inner.new.tap { |object| def object.y = 1 }, 2**80]
      end
      expect(names).to include("NamesProgram::Inner", "Integer", "Array")
      expect(names.grep(/#</)).to eq []
      expect(kept.size).to eq 3
    end

    it "are their superclass's where they have none, without an address" do
      anonymous = Class.new(NamesProgram::Inner)
      below = Class.new(anonymous)
      bare = Class.new(BasicObject)
      nested = anonymous.class_eval("Nested = Class.new", __FILE__, __LINE__) && anonymous.const_get(:Nested)
      names = class_names { [anonymous.new, below.new, bare.new, nested.new] }
      expect(names).to include("(anonymous NamesProgram::Inner)", "(anonymous BasicObject)")
      expect(names.grep(/0x/)).to eq []
      expect(names).to include(match(/\A#<Class>::Nested\z/))
    end

    it "follow a class that gets its name later" do
      klass = Class.new
      collector = exact
      collector.start!
      before = Array.new(3) { klass.new }
      collector.stats
      stub_const("NamedLater", klass)
      after = Array.new(4) { klass.new }
      profile = read(collector.flush)
      collector.stop!
      counts = profile.samples.group_by { |sample| sample.labels["class"] }.transform_values { |list| total(list) }
      expect(counts["NamedLater"]).to eq 4
      expect(counts["(anonymous Object)"]).to be >= 3
      expect(before.size + after.size).to eq 7
    end

    it "follow a class whose outer one gets its name later" do
      outer = Class.new
      inner = outer.const_set(:Inside, Class.new)
      collector = exact
      collector.start!
      kept = [inner.new]
      before = read(collector.flush).samples.map { |sample| sample.labels["class"] }
      stub_const("NamedOutside", outer)
      kept << inner.new
      after = read(collector.flush).samples.map { |sample| sample.labels["class"] }
      collector.stop!
      expect(before).to include("#<Class>::Inside")
      expect(after).to include("NamedOutside::Inside")
      expect(kept.size).to eq 2
    end

    it "may be in any alphabet" do
      stub_const("Größe", Class.new)
      expect(class_names { Größe.new }).to include("Größe")
    end

    it "are never asked of the class: hostile ones run no code" do
      ran = []
      hostile = Class.new do
        %i[name to_s inspect hash == eql? equal? class allocate superclass respond_to? method_missing].each do |name|
          define_singleton_method(name) { |*| ran << name && raise("user code was run") }
          define_method(name) { |*| ran << name && raise("user code was run") } unless name == :allocate
        end
      end
      stub_const("HostileName", Module.new)
      HostileName.const_set(:Class, hostile)
      lying = Class.new { def self.name = ran_never }
      collector = exact
      kept = nil
      data = collector.profile { kept = Array.new(10) { hostile.new } << lying.new }
      collector.start!
      kept.concat(Array.new(10) { hostile.new })
      GC.start
      collector.flush(gc: true)
      collector.stop!
      expect(ran).to eq []
      expect(read(data).samples.map { |sample| sample.labels["class"] }).to include("HostileName::Class")
      expect(kept.size).to eq 21
    end
  end

  it "differ in address where name, file or line do, and are the same between profiles" do
    addresses = Array.new(2) do
      data = exact.profile { inner.plain && inner.on_its_line }
      message = read(data).message
      strings = message.string_table.to_a
      functions = message.function.to_h { |function| [function.id, function] }
      message.location.to_h do |location|
        function = functions.fetch(location.line[0].function_id)
        place = [strings[function.name], strings[function.filename], location.line[0].line, function.start_line]
        [place, location.address]
      end
    end
    common = addresses[0].keys & addresses[1].keys
    line = inner.method(:plain).source_location.last
    expect(common).to include(["NamesProgram::Inner#plain", __FILE__, line, line])
    expect(common.map { |key| addresses[0][key] }).to eq(common.map { |key| addresses[1][key] })
    expect(addresses[0].values.uniq.size).to eq addresses[0].size
    collected = Child.run(<<~'RUBY')
      def here = Object.new
      2.times do |i|
        Array.new(100 * i) { |j| eval("def m#{j} = Object.new; m#{j}") }
        $stdout.binmode.write([exact.profile { 10.times { here } }.pprof_data].pack("m0"), "\n")
      end
    RUBY
    both = collected.lines.map { |line| ProfileReader.read(line.chomp.unpack1("m0")).message }.map do |message|
      names = message.function.to_h { |function| [function.id, message.string_table[function.name]] }
      message.location.find { |location| names[location.line[0].function_id] == "Object#here" }.address
    end
    expect(both.uniq.size).to eq 1
  end
end
