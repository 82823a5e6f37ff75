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
    "a collector in bursts" => ["$burst = MemprofilerPprof::Collector.new(mode: :burst, overhead: 0.3); $burst.start!",
                                "$burst.stop!", "true"],
    "GC::Profiler" => ["GC::Profiler.enable", "GC::Profiler.disable", "true"],
    "GC.stress" => ["GC.stress = true", "GC.stress = false", "true"],
    "each_object" => ["$thread = Thread.new { loop { ObjectSpace.each_object(String) {} && sleep(0.001) } }", "$thread.kill.join", "true"]
  }
  # Which begins first, which ends first.
  orders = [%i[tool ours tool ours], %i[tool ours ours tool], %i[ours tool tool ours], %i[ours tool ours tool]]

  Collecting::BACK_ENDS.each do |liveness|
    tools.each do |name, (start, stop, check)|
      it "such as #{name} may come and go at any time (liveness: #{liveness})" do
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
          $start = { tool: -> { #{start} }, ours: -> { $ours = exact(liveness: :#{liveness}); $ours.start! } }
          $stop = { tool: -> { #{stop} }, ours: -> { $data = $ours.flush; $ours.stop! } }
          results = [#{programs.map { |program| "proc { #{program} }" }.join(", ")}].map do |program|
            $kept = []
            program.call
            stats = $ours.stats
            allocations = stats[:allocations]
            profile = MemprofilerPprof::ProfileReader.read($data.pprof_data)
            sites = profile.samples.select { |sample| sample.stack.any? { |frame| frame.name.end_with?("allocate_one") } }
            retained = sites.sum { |sample| sample.values["retained_objects"] } + stats[:dropped_samples][:untracked]
            [sites.sum { |sample| sample.values["allocations"] } >= $kept.size, retained >= $kept.size,
             allocations.except(:vm).values.sum == allocations[:vm], (#{check.include?("$calls") ? "$kept.size < 500 || #{check}" : check})]
          end
          print results.inspect
          $stdout.flush
          exit!(0)
        RUBY
        expect(output).to eq ([[true] * 4] * 4).inspect
      end
    end
  end
end
