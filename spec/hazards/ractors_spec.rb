# frozen_string_literal: true

# Ractors other than the main one are not profiled: they must not disturb what is.
RSpec.shared_examples "Ractors" do |liveness|
  include_context "with liveness", liveness

  def child(code) = run_child(code, "-W0", at_once: true)

  it "that collect garbage and run the VM's jobs do no harm" do
    output = child(<<~'RUBY')
      Array.new(2) { Ractor.new { loop { 100.times { IO.pipe.each(&:close) } && GC.start } } }
      collector = exact
      collector.start!
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 4
      flushes = 0
      until Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        20.times { ("a," * 5_000).split(",").map { |text| text + "b" } }
        flushes += 1 if collector.flush.pprof_data.bytesize > 100
      end
      allocations = collector.stats[:allocations]
      collector.stop!
      $stdout.write [flushes.positive?, allocations[:counted] > 10_000, allocations.except(:vm).values.sum == allocations[:vm]].inspect
    RUBY
    expect(output).to eq "[true, true, true]"
  end

  it "begin whatever becomes of their standard streams, with a collector and without" do
    output = child(<<~'RUBY')
      collector = exact
      2.times do
        Ractor.new { File.open(File::NULL) }
        Ractor.new { $stderr = $stdout; sleep }
        Ractor.new { 1 }
        collector.start!
      end
      $stdout.write "begun"
    RUBY
    expect(output).to eq "begun"
  end

  it "leave the hooks in for a child of two forks in a row, made amid their beginning" do
    output = child(<<~'RUBY')
      require "fiddle"
      c_fork = Fiddle::Function.new(Fiddle::Handle::DEFAULT["fork"], [], Fiddle::TYPE_INT)
      collector = exact
      collector.start!
      forking = TracePoint.new(:call) do |call|
        next unless call.method_id == :new && call.path.start_with?("<internal:")
        forking.disable
        2.times do
          pid = c_fork.call
          next if pid.zero?

          Process.wait(pid)
          exit!(0)
        end
      end
      forking.enable
      take(Ractor.new { 1 })
      before = collector.stats[:samples]
      1000.times { Object.new }
      $stdout.write(collector.stats[:samples] - before >= 1000)
    RUBY
    expect(output).to eq "true"
  end

  it "leave a collector running that nobody else refers to" do
    output = child(<<~'RUBY')
      def start = exact.start!
      def deep(n) = n.zero? ? start : deep(n - 1)
      Thread.new { deep(50) }.join
      done = false
      thread = Thread.new { GC.start until done }
      10.times { Ractor.new { 1 } }
      done = true
      thread.join
      other = exact
      other.start!
      Array.new(1_000) { Object.new }
      GC.start
      other.stop!
      $stdout.write "alive"
    RUBY
    expect(output).to eq "alive"
  end

  # Before 3.3 hooks are out just then.
  it "leave a child counting that is forked while one is made" do
    output = child(<<~'RUBY')
      collector = exact
      collector.start!
      counts = []
      forking = TracePoint.new(:call) do |call|
        next unless call.method_id == :new && call.path.start_with?("<internal:")
        forking.disable
        reader, writer = IO.pipe
        pid = fork do
          1_000.times { Object.new }
          allocations = collector.stats[:allocations] # which would put in again what it finds lost
          writer.write(allocations[:counted] >= 1_000 && allocations[:hook_lost].zero? && imbalance(collector).zero?)
          exit!(0)
        end
        writer.close
        counts << reader.read
        Process.wait(pid)
      end
      forking.enable
      take(Ractor.new { 1 })
      $stdout.write counts.join(" ")
    RUBY
    expect(output).to eq "true"
  end

  # With a collector running these may crash the VM before 3.3. The child of a Ractor's fork waits for the locks of all
  # others, for ever where one was held: the main one has let go of its own once it waits.
  it "may make others, and fork" do
    output = Child.run(<<~'RUBY', "-W0", at_once: true)
      p take(Ractor.new { Ractor.new { 5 }.then { |inner| inner.respond_to?(:take) ? inner.take : inner.value } })
      p take(Ractor.new { sleep(0.1) && Process.wait2(fork { exit!(7) }).last.exitstatus })
    RUBY
    expect(output).to eq "5\n7\n"
  end

  # There Ractor.new is patched.
  it "are made as without the profiler: arguments, place, errors, fibers, and what strikes them and their threads",
     if: RUBY_VERSION < "3.3" do
    program = <<~'RUBY'
      require "timeout"
      p take(Ractor.new(4, name: "named") { |number| [number, Ractor.current.name] })
      puts Ractor.new { 1 }.inspect[/[^ ]*:\d+ /]
      begin
        Ractor.new
      rescue ArgumentError => e
        p e.message, e.backtrace.grep_v(/internal/).map { |line| line[/:\d+:/] }.uniq # one frame more, of the same line
      end
      p take(Ractor.new { Thread.new { sleep }.then { |thread| thread.kill && thread.join(20) ? :killed : :alive } })
      p take(Ractor.new { Timeout.timeout(0.1) { sleep 20 } rescue $!.class })

      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      idle = [Ractor.new { $stderr = $stdout; sleep }, Ractor.new { $stdout = $stderr = $stdin; 1 }]
      20.times { take(Ractor.new { 1 }) }
      p Process.clock_gettime(Process::CLOCK_MONOTONIC) - started < 15

      # Strikes a thread that makes Ractors.
      def strike(&block)
        ready = Queue.new
        thread = Thread.new do
          log = []
          begin
            ready << 1
            loop { take(Ractor.new { 1 }) }
          rescue => e
            log << e.message
          ensure
            log << $!.class
          end
          log
        end
        ready.pop
        sleep rand * 0.003
        block.call(thread)
        thread.join(60) or abort("it goes on")
        thread.value
      end
      p Array.new(10) { strike { |thread| thread.raise("A") } }.uniq
      p Array.new(10) { strike(&:kill) }.uniq
      trap("USR1") { throw :out, :thrown }
      p Array.new(10) { catch(:out) { Process.kill(:USR1, Process.pid); 100.times { take(Ractor.new { 1 }) } } }.uniq

      scheduler = Class.new do
        %i[block unblock io_wait close].each { |name| define_method(name) { |*| } }
        def kernel_sleep(*) = abort("slept")
        def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)
      end
      Thread.new { Fiber.set_scheduler(scheduler.new) && Fiber.schedule { Ractor.new { 1 } } }.join
      class << Ractor
        def new(*) = :stub
      end
      p Ractor.new
    RUBY
    counted = "p imbalance(collector).zero?, collector.stats[:allocations][:counted] > 100"
    with = child("collector = exact; collector.start!; #{program}; #{counted}")
    without = Child.run(program, "-W0", at_once: true)
    expect(with.lines.last(2)).to eq ["true\n"] * 2
    expect(with.lines[..-3]).to eq without.lines
  end

  it "survive a collector that is started right after them" do
    output = child(<<~'RUBY')
      10.times do
        ractor = Ractor.new { Array.new(100) { Object.new }.size }
        collector = exact
        collector.start!
        Array.new(100) { Object.new }
        collector.stop!
      end
      $stdout.write "survived"
    RUBY
    expect(output).to eq "survived"
  end
end

Collecting::BACK_ENDS.each do |liveness|
  RSpec.describe "Ractors (liveness: #{liveness})" do
    include_examples "Ractors", liveness
  end
end

RSpec.shared_examples "Ractors beside the main one" do |kind|
  define_method(:child) do |code|
    program = "CODE = #{kind.code.dump}; def start = eval(CODE).tap(&:start!); #{code}; $stdout.write('end')"
    expect(Child.run(program, "-W0", at_once: true)).to end_with "end"
  end

  # 3.3 and 3.4 crash at a collection after objects were moved, without us too.
  it "get and give moved and shared objects that are followed", unless: RUBY_VERSION.match?(/\A3\.[34]/) do
    child(<<~'RUBY')
      collector = start
      Shared = Ractor.make_shareable({ list: Array.new(500) { "shared" * 20 }, set: { a: [Object.new.freeze] } })
      echo = Ractor.new { loop { Ractor.yield(Ractor.receive, move: true) } } if RUBY_VERSION < "4"
      echo ||= Ractor.new(Ractor.current) { |main| loop { main.send(Ractor.receive, move: true) } }
      reader = Ractor.new { Array.new(200) { Shared[:list].sum(&:size) + Shared[:set][:a].size }.sum }
      40.times do |round|
        here = Array.new(20) { |n| ["moved" * n, ["long" * 100]] }
        echo.send(here, move: true)
        GC.start if round % 10 == 0
        collector.flush if round % 5 == 0
        back = RUBY_VERSION < "4" ? echo.take : Ractor.receive
        back.each { |one, two| one << "grown" * 100 and two << one }
        GC.compact if round % 15 == 0 && GC.respond_to?(:compact)
      end
      abort "shared objects are gone" unless take(reader).positive? && Shared[:list].all?(String)
      abort "no profile" if collector.flush(gc: true).pprof_data.bytesize < 100
      abort "unbalanced: #{collector.stats[:allocations]}" unless imbalance(collector).zero?
      collector.stop!
    RUBY
  end

  # 3.4 hangs, or crashes where anything hooks allocations, without us too, if Ractors begin while others collect and a
  # thread of the main one lets go of its lock.
  it "raise, collect, compact, begin and end while this one flushes, without a number lost" do
    child(<<~'RUBY')
      collector = start
      others = Array.new(2) do |index|
        Ractor.new(index) do |n|
          30.times do
            Array.new(500) { "x" * 100 }
            raise "mid" rescue nil
            n.zero? && GC.respond_to?(:compact) ? GC.compact : GC.start
          end
          raise "end of a Ractor"
        end
      end
      begin_others = -> { 10.times { take(Ractor.new { Array.new(10) { Object.new }.size }) } }
      beginning = Thread.new(&begin_others) unless RUBY_VERSION.start_with?("3.4")
      20.times { Array.new(500) { "y" * 30 } && collector.flush }
      beginning&.join
      others.each { |ractor| take(ractor) rescue ($!.is_a?(Ractor::RemoteError) || abort($!.inspect)) }
      others = nil
      begin_others.call unless beginning
      3.times { GC.start && collector.flush }
      abort "unbalanced: #{collector.stats[:allocations]}" unless imbalance(collector).zero?
      collector.stop!
    RUBY
  end

  it "are refused the methods of a collector, which goes on" do
    child(<<~'RUBY')
      Running = collector = start
      %i[start! stop! flush snapshot stats running?].each do |name|
        error = take(Ractor.new(name) { |method| Running.public_send(method) rescue $!.class.name })
        abort "#{name}: #{error}" unless error.match?(/\ARactor::(Isolation|Unsafe)Error\z/)
        error = take(Ractor.new { MemprofilerPprof::Collector.new rescue $!.class.name })
        abort "new: #{error}" unless error.match?(/\ARactor::(Isolation|Unsafe)Error\z/)
      end
      abort "stopped" unless collector.running? && collector.flush && collector.stop!
    RUBY
  end

  # They are kept: a child of 3.1 that collects Ractors which waited at the fork destroys locks in use.
  it "are alive while this one forks and ends" do
    child(<<~'RUBY')
      collector = start
      # Not such that allocate or are yet to begin: the VM may hang in a child that was forked while one held its lock.
      $others = Array.new(2) { Ractor.new(Ractor.current) { |main| main.send(:begun) && Ractor.receive } }
      2.times { Ractor.receive }
      sleep 0.05
      3.times do
        pid = fork do
          2_000.times { Object.new }
          collector.flush(gc: true)
          collector.stop!
          exit!(imbalance(collector).zero? ? 0 : 3) # the end of a VM forked beside Ractors may be a bug of its own on 3.1
        end
        Process.wait(pid)
        abort $?.inspect unless $?.success?
      end
      IO.popen(["/proc/self/exe", "--disable=gems", "-W0", *$LOAD_PATH.map { |folder| "-I#{folder}" }, "-e", <<~PROGRAM], &:read)
        require "ruby_memprofiler_pprof"
        #{CODE}.start!
        2.times { Ractor.new { Ractor.receive } } # such that allocate crash 3.4's exit
        at_exit { 1_000.times { Object.new } }
        20_000.times { Object.new }
      PROGRAM
      abort "at exit: #{$?.inspect}" unless $?.success?
    RUBY
  end

  # Where anything hooks allocations, 3.4 marks an object that is not cleared yet when another Ractor collects garbage.
  it "allocate without what is known of this one being wrong", unless: RUBY_VERSION.start_with?("3.4") do
    child(<<~'RUBY')
      Array.new(2) { Ractor.new { loop { "other" + "one" } } }
      collector = start
      n = 0
      ends = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 1.2
      until Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) > ends
        300.times { Object.new } && n += 300
      end
      data = collector.flush
      allocations = collector.stats[:allocations]
      total = MemprofilerPprof::ProfileReader.read(data.pprof_data).total("allocations")
      elsewhere = allocations[:other_ractor] + allocations[:unseen] + allocations[:hook_lost]
      abort "unbalanced: #{allocations}" unless imbalance(collector).zero?
      abort "nothing allocated elsewhere: #{allocations}" unless elsewhere > n / 4
      # Bursts tell it by the windows' estimate alone.
      range = collector.mode == :burst ? (n * 0.1)..(n * 1.6) : n..(n * 1.01 + 2_000)
      abort "#{n} of #{total}, #{allocations}" unless range.cover?(total) && range.cover?(allocations[:counted])
      comment = MemprofilerPprof::ProfileReader.read(data.pprof_data).comments.grep(/\Aother Ractors.*not in this profile\z/)
      abort "not told" if comment.empty?
      collector.stop!
    RUBY
  end
end

[
  *Collecting::KINDS.select(&:exact?),
  Collecting::Kind.new("bursts, weak_map", { mode: :burst, overhead: 0.3, prelude: 0.02, liveness: :weak_map })
].each do |kind|
  RSpec.describe "Ractors beside the main one (#{kind.name})" do
    include_examples "Ractors beside the main one", kind
  end
end

# One word of the VM says which events are announced; a Ractor's end, and its own tracing, overwrite it before Ruby 4.0.
Collecting::BACK_ENDS.each do |liveness|
  RSpec.describe "A hook that another Ractor has switched off (liveness: #{liveness})" do
    include_context "with liveness", liveness

    {
      "by being collected" => "6.times { take(Ractor.new { 1 }) } && 3.times { GC.start }",
      "by a TracePoint of its own" => "take(Ractor.new { TracePoint.new(:line) {}.tap(&:enable).disable })",
      "and then forks" => "6.times { take(Ractor.new { 1 }) } && 3.times { GC.start }; pid = fork and Process.wait(pid) && exit!($?.exitstatus)"
    }.each do |how, code|
      it "#{how} is put in again, the gap counted" do
        output = run_child(<<~RUBY, "-W0", at_once: true)
          collector = exact
          collector.start!
          #{code}
          GC.disable
          sleep(0.001) until Ractor.count == 1
          10_000.times { Object.new } # not seen, if it is off
          seen = Array.new(5) do # what a Ractor leaves to its end, or to a collection, may switch it off once more
            collector.flush
            before = collector.stats[:samples]
            10_000.times { Object.new }
            collector.stats[:samples] - before
          end
          kept = Array.new(100) { "kept" + "here" }
          stats = collector.stats
          retained = collector.flush(gc: true).heap_samples_count
          allocations = stats[:allocations]
          abort "off: \#{allocations}" if seen.max < 10_000
          # Should that collection have taken a Ractor, and the hooks with it, all is given up.
          abort "dead: \#{retained}" if retained < kept.size && collector.stats[:dropped_samples][:untracked].zero?
          abort "unbalanced: \#{allocations}" unless allocations.except(:vm).values.sum == allocations[:vm]
          missing = allocations[:hook_lost] + allocations[:unseen]
          abort "miscounted: \#{allocations}" unless missing < 5_000 || allocations[:hook_lost] >= missing * 0.8
          collector.stop!
          $stdout.write "end"
        RUBY
        expect(output).to end_with "end"
      end
    end

    it "is put in again by the next collection, without a call of ours" do
      output = run_child(<<~RUBY, "-W0", at_once: true)
        collector = exact
        collector.start!
        6.times { take(Ractor.new { 1 }) }
        3.times { GC.start }
        1_000.times { Object.new }
        GC.start
        100_000.times { Object.new }
        print collector.stats[:allocations][:hook_lost] < 50_000
      RUBY
      expect(output).to eq "true"
    end
  end
end
