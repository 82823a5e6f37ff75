# frozen_string_literal: true

require "objspace"

# The caches keep nothing of the program alive, and tables stay flat while code and classes come and go.
RSpec.describe "caches" do
  # Runs the block some frames deeper and wipes what it left on the machine stack.
  def elsewhere(depth = 30, &block) = depth.zero? ? block.call : elsewhere(depth - 1, &block)

  [*Collecting::BACK_ENDS, :none].each do |liveness|
    context "with liveness: #{liveness}" do
      def collect
        elsewhere { Array.new(50) { "wipe" } }
        3.times { GC.start }
      end

      it "let objects die as without the profiler" do
        collector = exact(liveness: liveness)
        collector.start!
        map = ObjectSpace::WeakMap.new
        elsewhere { 1_000.times { map[Object.new] = nil } }
        collect
        left = map.size
        collector.stop!
        expect(left).to be < 20
      end

      it "let classes die" do
        collector = exact(liveness: liveness)
        collector.start!
        map = ObjectSpace::WeakMap.new
        elsewhere do
          200.times do
            klass = Class.new(Array) { def call = [Object.new] }
            klass.new.call
            map[klass] = nil
          end
        end
        collect
        left = map.size
        collector.stop!
        expect(left).to be < 20
      end

      it "let code die" do
        collector = exact(liveness: liveness)
        collector.start!
        before = count_code
        elsewhere { 300.times { |i| Object.new.instance_eval("def x#{i} = [1, #{i}]; x#{i}", "churn") } }
        collect
        after = count_code
        collector.stop!
        expect(after - before).to be < 150 # of the 600 and more that were made
      end

      it "stay flat while classes, methods and evaluated code come and go" do
        collector = exact(liveness: liveness)
        collector.start!
        sizes = Array.new(16) do
          churn
          GC.start
          collector.flush
          stats = collector.stats
          stats.slice(:rows, :strings, :functions, :locations, :stacks).merge(caches: stats[:memory][:caches])
        end
        collector.stop!
        early, late = sizes[3], sizes.last # what only grows is four times as large by then, tables double at once
        late.each { |name, size| expect([name, size]).to satisfy { size <= early[name] * (name == :caches ? 2 : 1.25) + 50 } }
      end
    end
  end

  def count_code
    RubyVM.stat # warm
    ObjectSpace.count_imemo_objects.values_at(:imemo_iseq, :imemo_ment).sum
  end

  def churn
    300.times do |i|
      klass = Class.new { class_eval("def run(n) = [n, n.to_s, Object.new]", "churned", 1) }
      klass.new.run(i)
      eval("proc { 'x' * 3 }", TOPLEVEL_BINDING, "churned_eval", 1).call
      object = Object.new
      def object.single = +"one"
      object.single
    end
  end

  it "name an anonymous class anew when it gets a name" do
    collector = exact
    collector.start!
    klass = Class.new(Hash)
    klass.new
    before = read(collector.flush).samples.map { |sample| sample.labels["class"] }
    stub_const("NamedLater", klass)
    klass.new
    after = read(collector.flush).samples.map { |sample| sample.labels["class"] }
    collector.stop!
    expect(before).to include("(anonymous Hash)")
    expect(after).to include("NamedLater")
  end

  it "do not mistake new code at an old address for what was there" do
    collector = exact
    collector.start!
    wrong = 0
    80.times do |i|
      data = nil
      elsewhere(5) do
        Object.new.instance_eval("def fresh#{i} = Object.new; fresh#{i}", "fresh#{i}.rb", 1)
        data = collector.flush
      end
      names = read(data).samples.select { |sample| sample.values["allocations"].positive? }
        .flat_map { |sample| sample.stack.map(&:name) }
      wrong += 1 unless names.any? { |name| name.end_with?("fresh#{i}") }
      wrong += 1 if names.any? { |name| name =~ /fresh(\d+)\z/ && $1.to_i != i }
      GC.start if (i % 3).zero?
    end
    collector.stop!
    expect(wrong).to eq 0
  end

  [*Collecting::BACK_ENDS, :none].each do |liveness|
    it "leave the process's memory flat over flush cycles (liveness: #{liveness})", unless: Child.sanitized? do
      sizes = Child.run(<<~RUBY).lines.map(&:to_i)
        collector = exact(liveness: :#{liveness})
        collector.start!
        def rss = File.read("/proc/self/statm").split[1].to_i * 4
        def work = Array.new(2_000) { |i| [i.to_s, { i => Object.new }] }
        200.times do |i|
          work
          collector.flush
          puts rss if i % 40 == 39
        end
      RUBY
      expect(sizes.last).to be <= sizes[1] * 1.1 + 1_024
    end

    it "keep no thread, binding or exception (liveness: #{liveness})" do
      left = Child.run(<<~RUBY).to_i
        collector = exact(liveness: :#{liveness})
        collector.start!
        class Mine < StandardError; end
        def work(n) = n.times { Thread.new { begin; raise Mine; rescue Mine => e; binding; e; end }.join }
        work(200)
        collector.flush
        3.times { GC.start }
        puts [Mine, Thread].sum { |klass| ObjectSpace.each_object(klass).count } - 1
      RUBY
      expect(left).to be <= 5
    end
  end

  it "do not mistake a new class at an old address for what was there" do
    collector = exact
    collector.start!
    names = Array.new(300) do |i|
      elsewhere(5) { Object.const_set("Transient#{i}", Class.new).new }
      Object.__send__(:remove_const, "Transient#{i}")
      collector.stats
      GC.start if (i % 10).zero?
      "Transient#{i}"
    end
    profile = read(collector.snapshot)
    caches = collector.stats[:memory][:caches]
    collector.stop!
    counts = profile.samples.group_by { |sample| sample.labels["class"] }
      .transform_values { |samples| samples.sum { |sample| sample.values["allocations"] } }
    expect(counts.values_at(*names)).to all(eq 1)
    expect(caches).to be < 64 * 1024
  end
end
