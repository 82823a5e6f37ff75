# frozen_string_literal: true

# Programs that recurse until SystemStackError, or come near it, behave with a collector as they do without.
RSpec.describe "deep stacks" do
  # Small stacks end soon. What ends first is the VM's stack in the main thread, the C stack in threads and fibers.
  sizes = {
    "RUBY_THREAD_VM_STACK_SIZE" => 256, "RUBY_THREAD_MACHINE_STACK_SIZE" => 256,
    "RUBY_FIBER_VM_STACK_SIZE" => 128, "RUBY_FIBER_MACHINE_STACK_SIZE" => 256
  }.transform_values { |kib| (kib * 1024).to_s }

  trials = <<~'RUBY'
    require "json"
    Thread.report_on_exception = false

    PLACES = {
      main: ->(work) { work.call },
      thread: ->(work) { Thread.new(&work).value },
      fiber: ->(work) { Fiber.new(&work).resume }
    }

    def run_in(place)
      PLACES.fetch(place).call(proc do
        yield
      rescue SystemStackError => error
        error.class.name
      end)
    end

    # What the block gives in a fork, or how that ended.
    def trial(seconds: 15)
      reader, writer = IO.pipe(binmode: true)
      pid = fork do
        $stderr.reopen(File::NULL)
        result = begin
          yield
        rescue Exception => error
          "raises #{error.full_message(highlight: false)[0, 500]}"
        end
        writer.write(Marshal.dump(result))
        writer.close
        exit!(0)
      end
      writer.close
      guard = Thread.new { sleep(seconds) && Process.kill(:KILL, pid) }
      bytes = reader.read
      guard.kill.join
      _, status = Process.wait2(pid)
      return Marshal.load(bytes) if status.success?
      status.termsig == Signal.list["KILL"] ? "hangs" : "dies of #{status}"
    end

    def afterwards = Array.new(100) { Object.new }

    def report(collector, got)
      data = collector.flush(gc: true)
      stats = collector.stats
      collector.stop!
      allocations = stats[:allocations]
      { got: got, balance: allocations.except(:vm).values.sum - allocations[:vm], unseen: allocations[:unseen],
        pending: stats[:pending_samples], dropped: data.dropped_samples, pprof: data.pprof_data }
    end

    def profiled(**options)
      collector = MemprofilerPprof::Collector.new(**options)
      collector.start!
      got = Array.new(2) { yield }.uniq
      kept = afterwards
      report(collector, got.size == 1 ? got[0] : got).merge(kept: kept.size)
    end
  RUBY

  # Left out are recursions through C functions that do not check the stack (Comparable#<, inspect, JSON and Marshal of
  # nested arrays): they meet the guard page wherever it happens to be. Amid malloc, its lock stays locked, hook or none.
  # Amid an allocation that anything hooks, be it ObjectSpace's own tracing, the VM unwinds with its lock held and loops
  # for ever. Comparable#< is fatal in threads and fibers in any case. Of eval the parser goes deepest: it can be tested.
  overflows = <<~'RUBY'
    OVERFLOWS = {
      method: -> { def method_down(n) = "#{method_down(n + 1)}"; method_down(0) },
      send: -> { def send_down(n) = ["a", send(:send_down, n + 1)]; send_down(0) },
      lambda: -> { (down = ->(n) { "#{n}".tap { down.(n + 1) } }).(0) },
      map: -> { (down = ->(n) { [n].map { |i| [i, "a", down.(i + 1)] } }).(0) },
      each_pair: -> { (down = ->(n) { { n => "a" }.each_pair { |i, _| down.(i + 1) } }).(0) },
      sort_by: -> { (down = ->(n) { [n].sort_by { |i| "#{i}" && down.(i + 1) } }).(0) },
      gsub: -> { (down = ->(n) { "a".gsub(/a/) { down.(n + 1) } }).(0) },
      eval: -> { (down = ->(n) { "a#{n}" && eval("down.(n + 1)") }).(0) },
      instance_eval: -> { (down = ->(n) { Object.new.instance_eval { down.(n + 1) } }).(0) },
      catch: -> { (down = ->(n) { catch { "a" && down.(n + 1) } }).(0) },
      ensure: -> { (down = ->(n) { begin; "a" && down.(n + 1); ensure; "b" + "c"; end }).(0) },
      define_method: -> { Class.new { define_method(:down) { |n| ["a", down(n + 1)] } }.new.down(0) },
      method_missing: -> { Class.new { def method_missing(name, *all) = __send__(name, *all.last(2), "a") }.new.down },
      hash_default: -> { Hash.new { |hash, n| "a" && hash[n + 1] }[0] },
      initialize: -> { Class.new { def initialize = (@name = "a") && self.class.new }.new },
      to_s: -> { Class.new { def to_s = "#{self.class.new}" }.new.to_s },
      inspect: -> { Class.new { def inspect = "#{[self.class.new].inspect}" }.new.inspect },
      to_json: -> { Class.new { def to_json(*) = [self.class.new].to_json }.new.to_json }
    }
  RUBY

  def problems(with, exact:)
    return [with] unless with.is_a?(Hash)

    kept = samples_in(ProfileReader.read(with[:pprof]), "Object#afterwards", "Object")
    expected = { got: "SystemStackError", unseen: 0, pending: 0, dropped: {} }
    expected.update(balance: 0, kept: total(kept)) if exact
    (expected.to_a - with.to_a) + ProfileRules.violations(with[:pprof])
  end

  [
    [:main, { sample_rate: 1 }], [:thread, { sample_rate: 1 }], [:fiber, { sample_rate: 1 }],
    [:thread, { sample_rate: 0.01, seed: 1, liveness: :none }]
  ].each do |place, options|
    it "that overflow in a #{place} raise as without a collector (#{options})" do
      output = Child.run(<<~RUBY, environment: sizes)
        #{trials}
        #{overflows}
        results = OVERFLOWS.transform_values do |work|
          [trial { run_in(:#{place}, &work) }, trial { profiled(**#{options}) { run_in(:#{place}, &work) } }]
        end
        $stdout.binmode.write(Marshal.dump(results))
      RUBY
      survived, fatal = Marshal.load(output.b).partition { |_, (without, _)| without == "SystemStackError" }.map(&:to_h)
      expect(fatal.size).to be <= 2 # on the guard page amid malloc, whose lock stays locked: a matter of alignment
      bad = survived.transform_values { |_, with| problems(with, exact: options[:sample_rate] == 1) }
      expect(bad.reject { |_, list| list.empty? }).to eq({})
    end
  end

  it "lack their frames near the end of the C stack, and nothing else" do
    output = Child.run(<<~RUBY, environment: sizes)
      #{trials}
      def at_the_end = ["a", "b", "c", "d", "e", "f", "g", "h"] # a block or a C function might not run any more
      def padded(levels, &work) = levels.zero? ? work.call : [1].each { padded(levels - 1, &work) }
      def down(n, last, &work) = n == last ? work.call : ($n = n) && eval("down(n + 1, last, &work)")

      # The deepest level that is reached, where the exception does not come amid malloc.
      padding, deepest = (0..7).each do |levels|
        reached = trial(seconds: 5) { run_in(:thread) { padded(levels) { down(0, nil) } } && $n }
        break [levels, reached] if reached.is_a?(Integer)
      end

      $stdout.binmode.write(Marshal.dump(trial do
        collector = exact
        collector.start!
        kept = refused = nil
        got = run_in(:thread) do
          padded(padding) do
            down(0, deepest - 6) do
              kept = at_the_end
              collector.flush
            rescue SystemStackError
              refused = true
            end
          end
        end
        report(collector, got).merge(kept: kept.size, refused: refused)
      end))
    RUBY
    result = Marshal.load(output.b)
    expect(result).to include(got: true, refused: true, balance: 0, unseen: 0, pending: 0, dropped: {})
    ends = ProfileReader.read(result[:pprof]).samples.select { |sample| sample.stack.map(&:name) == ["(truncated)"] }
    expect(result[:kept]).to eq 8
    expect(total(ends.select { |sample| sample.labels["class"] == "String" }, "retained_objects")).to be_between(8, 16)
    expect(ProfileRules.violations(result[:pprof])).to eq []
  end

  it "of ten thousand Ruby frames are taken whole, or cut at max_stack_depth" do
    profiles = Marshal.load(Child.run(<<~'RUBY', environment: { "RUBY_THREAD_VM_STACK_SIZE" => (8 << 20).to_s }).b)
      def down(n) = n.zero? ? Object.new : down(n - 1)
      profiles = [[9_000, 10_000], [12_000, 10_000], [12_000, 512]].map do |frames, limit|
        data = exact(max_stack_depth: limit).profile { 3.times { down(frames) } }
        [data.dropped_samples, data.pprof_data]
      end
      $stdout.binmode.write(Marshal.dump(profiles))
    RUBY
    expect(profiles.map(&:first)).to all(eq({}))
    stacks = profiles.map do |_, pprof|
      sample = samples_in(ProfileReader.read(pprof), "Object#down", "Object").first
      expect(sample.values["allocations"]).to eq 3
      sample.stack.map(&:name)
    end
    expect(stacks.map { |names| names.count("Object#down") }).to match [9_001, be_between(9_990, 10_000), be_between(505, 512)]
    expect(stacks.map { |names| names.index("(truncated)") }).to eq [nil, 10_000, 512]
    expect(stacks.map { |names| names.take_while { |name| name != "Object#down" } }.uniq.size).to eq 1 # the innermost
  end
end
