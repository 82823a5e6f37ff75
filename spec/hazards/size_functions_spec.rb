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
      output = Child.run(<<~RUBY)
        require #{extension.dump}
        collector = #{kind.code}
        collector.start!
        kept = []
        leaving = true
        leave = lambda do
          fiber = Fiber.new do
            kept << StrangeData.new { leaving && Fiber.current.equal?(fiber) ? Fiber.yield : 8 }
            collector.flush
          end
          fiber.resume
        end
        100.times { leave.call }
        leaving = false
        GC.start
        stacks = Array.new(100) { Fiber.new { Fiber.yield }.tap(&:resume) }
        Thread.new { 1_000.times { Object.new } }.join
        burn(0.3) unless #{kind.exact?}
        allocations = collector.stats[:allocations]
        data = collector.flush(gc: true)
        abort "unbalanced" unless imbalance(collector).abs <= 101 # each fiber has the sample that it was at
        abort "lost: \#{allocations}" unless allocations[:counted] >= 1_000 || #{!kind.exact?}
        $stdout.binmode.write(data.pprof_data)
        $stdout.flush
        exit!(0)
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
