# frozen_string_literal: true

require "open3"

# Other tools that hook the VM, started and stopped before, after and across ours: each sees what it would see alone.
RSpec.describe "other tools" do
  tools = {
    "TracePoint" => ["$calls = 0; $trace = TracePoint.new(:call) { $calls += 1 }; $trace.enable", "$trace.disable",
                     "$calls >= 2_000"],
    "trace_object_allocations" => ["require 'objspace'; ObjectSpace.trace_object_allocations_start",
                                   "$line = ObjectSpace.allocation_sourceline($sample); ObjectSpace.trace_object_allocations_stop",
                                   "$line.nil? || $line.is_a?(Integer)"],
    "Coverage" => ["require 'coverage'; Coverage.start(lines: true) unless Coverage.running?", "$coverage = Coverage.result(stop: true, clear: true)",
                   "$coverage.is_a?(Hash)"],
    "another collector" => ["$other = MemprofilerPprof::Collector.new(sample_rate: 0.3, liveness: :free_hook); $other.start!",
                            "$other.stop!", "$other.stats[:allocations][:unseen] == 0"],
    "a collector in bursts" => ["$burst = MemprofilerPprof::Collector.new(mode: :burst, overhead: 0.3, prelude: 0.02); $burst.start!",
                                "$burst.stop!", "true"],
    "GC::Profiler" => ["GC::Profiler.enable", "GC::Profiler.disable", "true"],
    "GC.stress" => ["GC.stress = true", "GC.stress = false", "true"],
    "each_object" => ["$thread = Thread.new { loop { ObjectSpace.each_object(String) {} && sleep(0.001) } }", "$thread.kill.join", "true"]
  }
  # Which begins first, which ends first.
  orders = [%i[tool ours tool ours], %i[tool ours ours tool], %i[ours tool tool ours], %i[ours tool ours tool]]

  # Of those that are gems.
  if Gem.loaded_specs.key?("stackprof")
    start = ->(mode, interval) { "require 'stackprof'; StackProf.start(mode: :#{mode}, interval: #{interval}, raw: true)" }
    stop = "StackProf.stop; $report = StackProf.results"
    tools["StackProf in object mode"] = [start.(:object, 1), stop, "$report[:frames].any? { |_, f| f[:name].end_with?('allocate_one') }"]
    tools["StackProf of CPU time"] = [start.(:cpu, 500), stop, "$report[:samples] >= 0"] # SIGPROF
    tools["StackProf of wall time"] = [start.(:wall, 500), stop, "$report[:samples] >= 0"] # SIGALRM
  end
  if Gem.loaded_specs.key?("memory_profiler")
    tools["MemoryProfiler"] = ["require 'memory_profiler'; MemoryProfiler.start", "$report = MemoryProfiler.stop",
                               "$report.allocated_objects_by_class.any? { |of| of[:data] == 'Object' && of[:count] >= 20 }"]
  end
  if Gem.loaded_specs.key?("vernier")
    %i[wall retained].each do |mode|
      tools["Vernier in mode #{mode}"] = ["require 'vernier'; Vernier.start_profile(mode: :#{mode}, allocation_interval: #{mode == :wall ? 10 : 0})",
                                          "$report = Vernier.stop_profile", "!$report.nil?"]
    end
  end

  # The debugger that comes with Ruby, which no bundle knows.
  def debugger
    find = "puts Gem::Specification.find_by_name('debug').full_require_paths"
    Bundler.with_unbundled_env { IO.popen([RbConfig.ruby, "-e", find, err: File::NULL], &:readlines) }.map(&:chomp)
  end

  Collecting::KINDS.each do |kind|
    tools.each do |name, (start, stop, check)|
      it "such as #{name} may come and go at any time (#{kind.name})" do
        programs = orders.map do |order|
          started = {}
          steps = order.each_with_index.map do |who, i|
            step = started[who] ? "$stop[:#{who}].()" : "$start[:#{who}].()"
            started[who] = true
            i == 1 ? "#{step}; work; " : "#{step}; "
          end
          steps.join
        end
        output = Child.run(<<~RUBY)
          def allocate_one = Object.new
          def work = GC.stress ? 20.times { $kept << allocate_one } : 2_000.times { |i| $sample = allocate_one; $kept << $sample if i % 4 == 0 }
          $start = { tool: -> { #{start} }, ours: -> { $ours = #{kind.code}; $ours.start! } }
          $stop = { tool: -> { #{stop} }, ours: -> { $data = $ours.flush; $ours.stop! } }
          results = [#{programs.map { |program| "proc { #{program} }" }.join(", ")}].map do |program|
            $kept = []
            program.call
            stats = $ours.stats
            allocations = stats[:allocations]
            profile = MemprofilerPprof::ProfileReader.read($data.pprof_data)
            sites = profile.samples.select { |sample| sample.stack.any? { |frame| frame.name.end_with?("allocate_one") } }
            retained = sites.sum { |sample| sample.values["retained_objects"] } + stats[:dropped_samples][:untracked]
            estimated = #{!kind.exact?}
            [estimated || sites.sum { |sample| sample.values["allocations"] } >= $kept.size, estimated || retained >= $kept.size,
             (allocations.except(:vm).values.sum - allocations[:vm]).abs <= (estimated ? 1 : 0), (#{check.include?("$calls") ? "$kept.size < 500 || #{check}" : check})]
          end
          print results.inspect
          $stdout.flush
          exit!(0)
        RUBY
        expect(output).to eq ([[true] * 4] * 4).inspect
      end
    end

    it "such as the debugger stop the program at breakpoints that come before, in and after what is sampled (#{kind.name})" do
      folders = debugger
      skip "this Ruby has no gem debug" if folders.empty?
      output = Child.run(<<~RUBY, environment: { "RUBY_DEBUG_NO_COLOR" => "1", "HOME" => Dir.tmpdir }, at_once: true)
        $LOAD_PATH.unshift(*#{folders})
        def allocate_one = Object.new
        def work(n, text)
          n.times { allocate_one }
          binding.break(do: "p text * 2")
          n.times { allocate_one }
        end
        first, second = Array.new(2) { #{kind.code} }
        first.start!
        require "debug/session"
        DEBUGGER__.start(nonstop: true)
        second.start!
        work(500, "ab")
        first.stop!
        work(500, "cd")
        second.stop!
        burn(0.1)
        [first, second].each do |collector|
          abort "unbalanced: \#{collector.stats}" unless imbalance(collector).abs <= #{kind.exact? ? 0 : 1}
          print "<", #{kind.exact?} ? allocations_in(collector.flush, :allocate_one) : "any", ">"
        end
      RUBY
      expect(output).to include("abab").and include("cdcd")
      expect(output).to end_with(kind.exact? ? "<1000><2000>" : "<any><any>")
    end

    it "that look at the whole heap see the program's objects as without us (#{kind.name})" do
      looking = <<~RUBY
        require "objspace"
        require "json"
        require "tempfile"
        class Seen; def initialize = (@name = "seen" * 10); end
        kept = Array.new(500) { Seen.new }
        GC.start
        lines = Tempfile.create("dump") do |file|
          ObjectSpace.dump_all(output: file, full: true)
          file.rewind
          file.each_line.map { |line| JSON.parse(line) }
        end
        klass = ObjectSpace.dump(Seen)[/"address":"(0x\\h+)"/, 1]
        GC.measure_total_time = true
        time = GC.total_time
        GC.start
        $result = [
          lines.count { |line| line["class"] == klass }, ObjectSpace.each_object(Seen).count,
          ObjectSpace.reachable_objects_from(kept).count { |object| object.is_a?(Seen) },
          ObjectSpace.memsize_of(kept.first), ObjectSpace.memsize_of_all(Seen), ObjectSpace.count_objects.keys,
          GC.total_time > time, GC.measure_total_time, GC.stat.keys, GC.stat.values.all?(Integer), GC.latest_gc_info.keys,
          ObjectSpace.trace_object_allocations { ObjectSpace.allocation_sourceline(Object.new) } == __LINE__, GC.stress, GC.disable, GC.enable
        ]
      RUBY
      output = Child.run(<<~RUBY)
        #{looking}
        alone = $result
        collector = #{kind.code}
        collector.start!
        burn(0.01) while windows(collector) < 2
        kept = lines = nil
        Fiber.new { burn(0.001) }.resume # over what is left on the stack
        GC.start
        #{looking.sub("class Seen; def initialize", "class SeenAnew; def initialize").gsub(/\bSeen\b/, "SeenAnew")}
        collector.flush
        collector.stop!
        print alone.zip($result).reject { |one, other| one == other }.inspect
      RUBY
      expect(output).to eq "[]"
    end

    # ObjectSpace's tracing does where the VM has counted an object and not yet called our hooks.
    it "that collect garbage in hooks of their own do not keep collectors busy (#{kind.name})" do
      output = Child.run(<<~RUBY)
        require "objspace"
        collectors = Array.new(3) { #{kind.code}.tap(&:start!) }
        ObjectSpace.trace_object_allocations do
          GC.stress = true
          20.times { Object.new }
          GC.stress = false
        end
        collectors.each(&:stop!)
        print collectors.map { |collector| imbalance(collector).abs <= #{kind.exact? ? 0 : 1} }.inspect
      RUBY
      expect(output).to eq "[true, true, true]"
    end

    it "that trace every kind of event see the same ones (#{kind.name})" do
      output = Child.run(<<~'RUBY'.sub("KIND", kind.code))
        sets = [%i[line], %i[call return b_call b_return c_call c_return], %i[raise], %i[class end], %i[thread_begin thread_end],
                %i[script_compiled], %i[fiber_switch], %i[a_call a_return]]
        sets << %i[rescue] if RUBY_VERSION >= "3.3"
        program = <<~'PROGRAM'
          class Traced
            def work(n) = n.zero? ? raise("deep") : work(n - 1)
            define_method(:defined) { |text| text * 2 }
          end
          traced = Traced.new
          begin
            traced.work(20)
          rescue => e
            e.backtrace.size
          end
          [3, 1, 2].sort_by { |n| traced.defined("x" * n) }.map(&:to_s).each_slice(2).to_a
          { a: 1 }.to_h { |key, value| [key.to_s, [value]] }
          Thread.new { Array.new(3) { Object.new } }.join
          Fiber.new { Fiber.yield("a" + "b") }.tap(&:resume).resume
          eval("1.then { |one| [one] }")
          catch(:done) { throw :done, "thrown" }
        PROGRAM
        compiled = -> { RubyVM::InstructionSequence.compile(program, "traced.rb", "traced.rb") }
        trace = lambda do |events|
          seen = []
          point = TracePoint.new(*events) do |t|
            klass = t.event.match?(/call|return/) ? t.defined_class.to_s : nil
            # Of the back end that calls a WeakMap at safe points the calls are seen. Whether the VM's own Ruby code is
            # traced depends on how it came to be called.
            next if t.path&.match?(/memprofiler|\A<internal:/) || klass&.match?(/MemprofilerPprof|WeakMap/)
            seen << [t.event, t.lineno, t.path == "traced.rb", t.event.match?(/call|return/) ? t.method_id : nil]
          end
          sequence = compiled.call
          point.enable { sequence.eval }
          seen
        end
        alone = Array.new(2) { sets.map(&trace) }.last # what happens once has happened
        collector = KIND
        collector.start!
        burn(0.01) while windows(collector) < 2
        collector.flush
        beside = sets.map(&trace)
        data = collector.flush
        allocations = collector.stats[:allocations]
        collector.stop!
        differ = sets.each_index.reject { |i| alone[i] == beside[i] }
        puts differ.map { |i| [sets[i], (beside[i] - alone[i]).first(3), alone[i].size, beside[i].size] }.inspect
        print [alone.count(&:any?) > 5, (allocations.except(:vm).values.sum - allocations[:vm]).abs <= 1].inspect
      RUBY
      expect(output).to eq "[]\n[true, true]"
    end
  end
end
