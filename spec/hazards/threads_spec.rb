# frozen_string_literal: true

# Threads and fibers that come and go, and are struck down anywhere, in either mode and with each back end.
RSpec.describe "threads" do
  Collecting::KINDS.map { |kind| [kind.name, kind.code] }.each do |kind, collector|
    it "may be killed and raised into in every call of the API (#{kind})" do
      output = Child.run(<<~RUBY)
        require "tmpdir"
        MemprofilerPprof::ProfileReader # no library can be loaded again that was struck while it loaded
        Struck = Class.new(Exception)
        folder = Dir.mktmpdir
        calls = [
          ->(c) { c.start! }, ->(c) { c.stop! }, ->(c) { c.flush }, ->(c) { c.flush(gc: true) }, ->(c) { c.snapshot },
          ->(c) { c.stats }, ->(c) { c.live_heap_samples_count }, ->(c) { c.running? },
          ->(c) { c.running? || c.profile { Object.new } }, ->(c) { c.flush.write(File.join(folder, "p.pb.gz")) },
          ->(c) { c.flush.estimate(/x/) }, ->(c) { c.stop!(gc: true) }
        ]
        $kept = []
        made = #{collector}
        round = 0
        90.times do |i|
          thread = Thread.new do
            Thread.current.report_on_exception = false
            loop { round += 1; calls[(round * 7 + i) % calls.size].call(made); $kept << "x" * 10 if $kept.size < 1000 }
          rescue Struck, MemprofilerPprof::StateError
            retry if i % 3 == 0 && rand(2) == 0
          end
          sleep(0.0002 * (i % 23))
          case i % 3
          when 0 then thread.raise(Struck)
          when 1 then thread.kill
          else
            thread.raise(Struck)
            thread.kill
          end
          ended = lambda do |seconds|
            thread.join(seconds) || (thread.kill && false)
          rescue Struck
            true
          end
          abort "a thread that does not end, at \#{i}" unless ended.(0.1) || ended.(20)
        end
        # All that it did is undone or done, and it works.
        made.stop!
        made.start!
        kept = Array.new(50_000) { Object.new }
        data = made.flush
        allocations = made.stats[:allocations]
        made.stop!
        abort "left over: \#{Dir.children(folder)}" unless (Dir.children(folder) - ["p.pb.gz"]).empty?
        print [data.pprof_data.size > 100, (allocations.except(:vm).values.sum - allocations[:vm]).abs <= 1, kept.size].inspect
        require "fileutils"
        FileUtils.rm_rf(folder)
      RUBY
      expect(output).to eq "[true, true, 50000]"
    end

    it "may begin and end by the hundred while others flush (#{kind})" do
      output = Child.run(<<~RUBY)
        made = #{collector}
        made.start!
        done = false
        flushes = 0
        flusher = Thread.new { made.flush && flushes += 1 until done }
        15.times { Array.new(40) { |i| Thread.new { i.even? ? Array.new(50) { "x" * i } : Fiber.new { Array.new(20) { {} } }.resume } }.each(&:join) }
        done = true
        flusher.join
        allocations = made.stats[:allocations]
        made.stop!
        print [flushes > 3, (allocations.except(:vm).values.sum - allocations[:vm]).abs <= 1].inspect
      RUBY
      expect(output).to eq "[true, true]"
    end

    it "of fibers, enumerators and small stacks are followed (#{kind})" do
      output = Child.run(<<~RUBY, environment: { "RUBY_FIBER_VM_STACK_SIZE" => "32768", "RUBY_THREAD_VM_STACK_SIZE" => "65536" })
        made = #{collector}
        made.start!
        words = Enumerator.new { |yielder| loop { yielder << "word" * 3 } }
        sum = 0
        20_000.times { sum += words.next.size }
        fibers = Array.new(300) { |i| Fiber.new { 20.times { Fiber.yield(Array.new(5) { i }) } } }
        20.times { fibers.each { |fiber| sum += fiber.resume.size } }
        lazy = (1..Float::INFINITY).lazy.map { |i| [i] }.select { |list| list[0].odd? }.first(2_000).size
        data = made.flush
        made.stop!
        print [sum, lazy, data.pprof_data.size > 100].inspect
      RUBY
      expect(output).to eq "[270000, 2000, true]"
    end

    # The VM lets them wait until its finalizers have run, of whatever makes it run these.
    finalizing = { "GC.start" => "GC.start", "GC.start, deep in Ruby code" => "deep(600) { GC.start }",
                   "a flush" => "made.flush(gc: true)" }
    finalizing["compaction"] = "GC.compact" if GC.respond_to?(:compact)
    finalizing["Process.warmup"] = "Process.warmup" if Process.respond_to?(:warmup)
    it "may be struck in finalizers, and lose nothing by it (#{kind})" do
      program = <<~RUBY
        require "timeout"
        def deep(n, &block) = n.zero? ? yield : deep(n - 1, &block)
        def leave(body) = ObjectSpace.define_finalizer(Object.new, body) && nil
        inside = amid = false
        ways = { #{finalizing.map { |name, code| "#{name.dump} => -> { #{code} }" }.join(", ")} }
        lost = ways.reject do |_, way|
          inside = amid = false
          Fiber.new { leave(proc { amid = inside && Thread.current.equal?(Thread.main); 60_000.times { |i| "f\#{i}" }; sleep 0.15 }) }.resume
          Timeout.timeout(0.05) { sleep(0.01) && (inside = true) && way.call && sleep(0.001) }
          !amid # it came earlier or is yet to come
        rescue Timeout::Error
          true
        end
        print lost.keys.inspect
      RUBY
      alone = Child.run("def self.flush(gc:) = GC.start\nmade = self\n" + program)
      expect(Child.run("made = #{collector}\nmade.start!\n" + program)).to eq alone
    end

    it "may flush in handlers of signals, in finalizers, in at_exit, within each_object (#{kind})" do
      output = Child.run(<<~RUBY)
        made = #{collector}
        made.start!
        flushed = 0
        %w[USR1 USR2 WINCH].each { |signal| trap(signal) { made.flush && flushed += 1 } }
        killer = fork { 150.times { |i| Process.kill(%w[USR1 USR2 WINCH][i % 3], Process.ppid); sleep 0.003 } }
        500.times do |i|
          ObjectSpace.define_finalizer(Object.new, proc { made.flush if i % 50 == 0 })
          ObjectSpace.each_object(Class) { |_| made.stats } if i == 250
          Array.new(200) { "x" * i }
        end
        Process.wait(killer)
        at_exit { print [flushed > 20, made.flush.pprof_data.size > 100, made.stop!].inspect }
      RUBY
      expect(output).to eq "[true, true, true]"
    end
  end
end
