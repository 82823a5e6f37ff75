# frozen_string_literal: true

require_relative "../../rakelib/small_extension"

# The one place where the code of other extensions runs in our work: the size function of an object of theirs. Whatever
# it does is what it would do under ObjectSpace.memsize_of, and costs at most the size. (But for one that leaves its fiber.)
RSpec.describe "size functions" do
  extension = SmallExtension.build(File.expand_path("../support/strange_data", __dir__))
  sizes = {
    "tell the size" => "64",
    "say there is none" => "0",
    "lie" => "(1 << 64) - 1",
    "lie within bounds" => "(1 << 63) - 1",
    "give what is no size" => "nil",
    "raise" => "raise 'no size'",
    "raise what is no StandardError" => "raise NoMemoryError, 'no size'",
    "throw out of the program" => "throw :out",
    "throw to nobody" => "throw :nowhere",
    "call exit" => "exit(7)",
    "recurse without end" => "recurse = ->(n) { 1 + recurse.(n + 1) }; recurse.(0)",
    "allocate" => "Array.new(20) { 'x' * 100 }.size",
    "allocate more like it" => "StrangeData.new { 1 }; 1",
    "collect garbage" => "GC.start; 1",
    "collect and compact" => "GC.compact if GC.respond_to?(:compact); 1",
    "let others run" => "Thread.pass; sleep(0.0001); 1",
    "change the exception in hand" => "(raise 'mine' rescue 1); $!.nil? ? 1 : 2",
    "flush" => "$collector.flush.pprof_data.bytesize",
    "take snapshots" => "$collector.snapshot(gc: true).pprof_data.bytesize",
    "read statistics" => "$collector.stats[:samples]",
    "stop the collector" => "$collector.stop! if ($calls += 1) == 40; 1",
    "start it anew" => "$collector.stop! && $collector.start! if ($calls += 1) == 40; 1",
    "start another" => "($other ||= exact.tap(&:start!)).stats[:samples]"
  }
  # What the last flush has less of then.
  flushed_before = ["flush", "stop the collector", "start it anew"]

  kinds = Child.sanitized? ? Collecting::KINDS.first(1) : Collecting::KINDS # each child takes a second to load there
  kinds.each do |kind|
    sizes.each do |what, code|
      it "may #{what} (#{kind.name})" do
        output = Child.run(<<~RUBY)
          require #{extension.dump}
          $calls = 0
          def strange = StrangeData.new { #{code} }
          def plain = Object.new
          def pair = [strange, plain]
          $collector = #{kind.code}
          $collector.start!
          $kept = []
          work = lambda do
            begin
              raise ArgumentError, "the program's"
            rescue ArgumentError
              reached = catch(:out) { 30.times { $kept << pair } && :reached }
              abort "thrown out of it" unless reached == :reached
              abort "another exception: \#{$!.inspect}" unless $!.is_a?(ArgumentError)
            end
          end
          work.call
          burn(0.3) { work.call; $kept.shift(20) } unless #{kind.exact?}
          data = $collector.flush(gc: true)
          stats = $collector.stats
          abort "unbalanced: \#{stats[:allocations]}" unless imbalance($collector).zero?
          abort "dropped: \#{stats[:dropped_samples]}" if stats[:dropped_samples].values.any?(&:positive?)
          seen = %i[strange plain].map { |site| allocations_in(data, site) }
          retained = MemprofilerPprof::ProfileReader.read(data.pprof_data).samples.select { |of| of.labels["class"] == "StrangeData" }
          retained = retained.sum { |of| of.values.fetch("retained_objects") }
          if #{kind.exact? && !flushed_before.include?(what)}
            abort "seen: \#{seen}" unless seen == [60, 30] # each strange one with its block
            abort "retained: \#{retained}" unless retained == 30
          end
          $collector.stop!
          $collector.start!
          1_000.times { plain }
          again = allocations_in($collector.flush, :plain)
          abort "afterwards: \#{again}" unless !#{kind.exact?} || again == 1_000
          $stdout.binmode.write(data.pprof_data)
        RUBY
        expect(ProfileRules.violations(output.b)).to eq []
      end
    end

    it "may leave their fibers for good, with stacks that are gone (#{kind.name})" do
      output = Child.run(<<~RUBY, at_once: true)
        require #{extension.dump}
        collector = #{kind.code}
        collector.start!
        $left = 0
        def leave
          fiber = Fiber.new { StrangeData.new { fiber&.equal?(Fiber.current) ? ($left += 1) && Fiber.yield : 8 } && Object.new }
          fiber.resume
        end
        def deep(n) = n.zero? ? Array.new(50) { |i| i.to_s }.size : deep(n - 1) # over what is left on the stack
        letting_go = Queue.new
        threads = Array.new(100) { Thread.new { leave; deep(50); letting_go.pop } }
        sleep 0.01 until letting_go.num_waiting == 100
        burn(0.2) { leave } unless #{kind.exact?}
        deep(200)
        GC.start
        stacks = Array.new(300) { Fiber.new { deep(20) && Fiber.yield }.tap(&:resume) }
        letting_go.close
        threads.each(&:join).clear
        Fiber.new { deep(500) }.resume
        3.times { GC.start }
        before = collector.stats[:allocations][:counted]
        Array.new(300) { Thread.new { 1_000.times { Object.new } } }.each(&:join)
        counted = collector.stats[:allocations][:counted] - before
        abort "taken for threads that are gone: \#{counted}" unless counted >= 300_000 || #{!kind.exact?}
        abort "left: \#{$left}" unless $left == 100 || #{!kind.exact?}
        abort "unbalanced: \#{imbalance(collector)}, \#{$left} left" unless imbalance(collector).abs == $left || #{!kind.exact?}
        $stdout.binmode.write(collector.flush(gc: true).pprof_data)
      RUBY
      expect(ProfileRules.violations(output.b)).to eq []
    end

    it "may let others run, whose allocations are the program's all the same (#{kind.name})" do
      output = Child.run(<<~RUBY, at_once: true)
        require #{extension.dump}
        asleep = false
        collector = #{kind.code}
        collector.start!
        kept = []
        kept << StrangeData.new { (sleep(0.05) if asleep); 8 } until collector.live_heap_samples_count > #{kind.exact? ? 1 : 20}
        done = 0
        thread = Thread.new { 200.times { Object.new } && done += 200 while true }
        before = collector.stats[:allocations]
        asleep = true
        3.times { collector.flush }
        asleep = false
        allocations = collector.stats[:allocations]
        thread.kill.join
        own = allocations[:own] - before[:own]
        abort "taken for ours: \#{own} of \#{done}" unless done > 1_000 && own < [5_000, done].min
        $stdout.binmode.write(collector.flush.pprof_data)
      RUBY
      expect(ProfileRules.violations(output.b)).to eq []
    end

    it "may be missing, with the type or alone (#{kind.name})" do
      output = Child.run(<<~RUBY)
        require #{extension.dump}
        collector = #{kind.code}
        collector.start!
        kept = Array.new(500) { [SilentData.new, UntypedData.new, StrangeData.new] }
        burn(0.3) { kept.shift; kept << [SilentData.new, UntypedData.new, StrangeData.new] } unless #{kind.exact?}
        data = collector.flush(gc: true)
        collector.stop!
        samples = MemprofilerPprof::ProfileReader.read(data.pprof_data).samples
        counts = %w[SilentData UntypedData StrangeData].map do |name|
          samples.select { |of| of.labels["class"] == name }.sum { |of| of.values.fetch("retained_objects") }
        end
        abort counts.inspect unless #{kind.exact? ? "counts == [500] * 3" : "true"}
        abort "unbalanced" unless imbalance(collector).zero?
        $stdout.binmode.write(data.pprof_data)
      RUBY
      expect(ProfileRules.violations(output.b)).to eq []
    end
  end
end
