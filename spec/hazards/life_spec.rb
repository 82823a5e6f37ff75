# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# How a process begins, is told to be, and ends: with a collector as without one. Ends after fork and exec are in
# processes_spec.rb.
RSpec.describe "life" do
  library = File.expand_path("../../lib", __dir__)
  native = $LOADED_FEATURES.grep(%r{/ruby_memprofiler_pprof_native\.}).first

  # [exit status or signal, what it prints, what it complains of] of a program without a collector's prelude.
  def run_program(code, *options, environment: {})
    output, errors, status = Child.capture(*options, "-e", code, environment: environment)
    [status.exitstatus || Signal.signame(status.termsig), output, errors]
  end

  kinds = "KINDS = [#{Collecting::KINDS.map(&:code).join(", ")}]"
  loading = "require 'ruby_memprofiler_pprof'"

  # In every way to collect: profiles that are read, of allocations that are seen.
  use = <<~RUBY
    def made_here = Array.new(100) { Object.new }
    def use
      #{kinds.sub("KINDS", "kinds")}
      kinds.each(&:start!)
      kept = made_here
      500.times { made_here }
      profiles = kinds.map { |kind| kind.flush(gc: true).pprof_data }
      kinds.each(&:stop!)
      sums = profiles.map do |profile|
        samples = MemprofilerPprof::ProfileReader.read(profile).samples
        samples.select { |sample| sample.stack.any? { |frame| frame.name == "Object#made_here" } && sample.labels["class"] == "Object" }
          .sum { |sample| sample.values["allocations"] }
      end
      lost = kinds.first(2).map do |kind| # to a Ractor that was collected
        kind.stats[:allocations].values_at(:hook_lost, :unseen).sum
      end
      exact = sums.first(2).zip(lost).all? { |sum, unseen| (50_100 - sum).between?(0, unseen) }
      exact && kept.size == 100 ? "used" : [sums, lost].inspect
    end
  RUBY

  describe "when it begins" do
    # What the VM says by itself is what it says without us.
    {
      "all warnings" => %w[-w -W:deprecated -W:experimental],
      "performance warnings" => RUBY_VERSION >= "3.3" ? %w[-w -W:performance] : nil,
      "strict warnings of blocks" => RUBY_VERSION >= "3.4" ? %w[-w -W:strict_unused_block] : nil,
      "frozen string literals" => %w[-w --enable=frozen-string-literal --debug-frozen-string-literal],
      "nothing enabled" => %w[-w --disable=all], "all enabled" => %w[-w --enable=rubyopt,did_you_mean,error_highlight],
      "UTF-8 sources by option" => %w[-Ku], "EUC-JP sources by option" => %w[-Ke], "Windows-31J sources by option" => %w[-Ks],
      "sources without an encoding by option" => %w[-Kn],
      "an internal encoding" => %w[-w --encoding=UTF-8:UTF-16LE], "another external encoding" => %w[-w --encoding=EUC-JP]
    }.compact.each do |name, options|
      it "with #{name}, warns of nothing and works" do
        _, _, silence = run_program("print", *options)
        expect(run_program("#{loading}; #{use}; print use", *options)).to eq [0, "used", silence]
      end
    end

    it "in the C locale, in debug mode and with every category of warnings on, works" do
      expect(run_program("#{loading}; #{use}; print use", "-w", environment: { "LANG" => "C", "LC_ALL" => "C" }))
        .to eq [0, "used", ""]
      expect(run_program("#{loading}; #{use}; print use", "-d").first(2)).to eq [0, "used"] # it tells of every exception
      categories = "(Warning.respond_to?(:categories) ? Warning.categories : %i[deprecated experimental]).each { |c| Warning[c] = true };"
      expect(run_program("#{categories}#{loading}; #{use}; print use", "-w")).to eq [0, "used", ""]
    end

    it "with a just-in-time compiler, gives the same profile as without" do
      jits = %w[--yjit --rjit --mjit].select { |jit| run_program("1", jit) == [0, "", ""] }
      program = <<~RUBY
        #{loading}
        class Deep
          def one(n) = n.zero? ? [Object.new] : two(n - 1) { |x| x }
          def two(n) = yield(one(n))
          define_method(:three) { |n| one(n) }
        end
        deep = Deep.new
        2_000.times { deep.three(6) } # compiled by now
        collector = MemprofilerPprof::Collector.new(sample_rate: 1)
        collector.start!
        500.times { deep.three(6) }
        data = collector.flush
        collector.stop!
        samples = MemprofilerPprof::ProfileReader.read(data.pprof_data).samples
        rows = samples.select { |s| s.labels["class"] == "Object" }.map { |s| [s.stack.map { |f| [f.name, f.line] }, s.values["allocations"]] }
        print rows.inspect
      RUBY
      without = run_program(program)
      expect(without).to match [0, a_string_including("Deep#one", "500"), ""]
      jits.each { |jit| expect([jit, run_program(program, jit, *("--yjit-call-threshold=1" if jit == "--yjit"))]).to eq [jit, without] }
    end

    it "more than once, by whatever path, changes nothing" do
      Dir.mktmpdir do |folder|
        File.symlink(library, File.join(folder, "link"))
        link = File.join(folder, "link", "ruby_memprofiler_pprof.rb")
        program = <<~RUBY
          #{loading}
          #{use}
          collector = MemprofilerPprof::Collector.new(sample_rate: 1)
          collector.start!
          require "ruby_memprofiler_pprof"
          require #{File.join(library, "ruby_memprofiler_pprof.rb").dump}
          require #{native.dump}
          require #{link.dump}
          load #{link.dump}
          load #{File.join(library, "ruby_memprofiler_pprof.rb").dump}
          made_here
          seen = collector.flush.allocation_samples_count
          pid = fork { made_here; exit!(collector.flush.allocation_samples_count.between?(100, 5_000)) }
          Process.wait(pid)
          print [seen > 100, $?.success?, collector.stop!, use].inspect
        RUBY
        expect(run_program(program, "-W1")).to match [0, '[true, true, true, "used"]', anything]
      end
    end

    it "refuses a second copy of the extension, and the first goes on" do
      Dir.mktmpdir do |folder|
        FileUtils.cp(native, folder)
        output = run_program(<<~RUBY, "-w")
          #{loading}
          #{use}
          message = begin
            require #{File.join(folder, File.basename(native)).dump}
          rescue LoadError => e
            e.message
          end
          print message, " ", use
        RUBY
        expect(output).to eq [0, "ruby_memprofiler_pprof: another copy of the native extension is loaded already used", ""]
      end
    end

    {
      "a thread" => "Thread.new { LOADING }.join; print use", "a fiber" => "Fiber.new { LOADING }.resume; print use",
      "at_exit" => "at_exit { LOADING; print use }", "an ensure of a killed thread" =>
        "t = Thread.new { begin; sleep; ensure; LOADING; end }; Thread.pass until t.stop?; t.kill; t.join; print use",
      "a TracePoint" => "t = TracePoint.new(:c_call) { t.disable; LOADING }; t.enable; 1.to_s; print use",
      "a finalizer" => "ObjectSpace.define_finalizer(Object.new, proc { LOADING }); " \
                       "GC.start until defined?(MemprofilerPprof::Collector) || !100.times { Object.new }; print use",
      "a forked child" => "exit!(1) unless (pid = fork { LOADING; print use }).then { |p| Process.wait2(p)[1].success? }"
    }.each do |place, program|
      it "in #{place}, works" do
        expect(run_program("#{use}; #{program.sub("LOADING", loading)}", "-w")).to eq [0, "used", ""]
      end
    end

    it "in a Ractor, says that the main one is to come first, and works there afterwards" do
      program = <<~RUBY
        #{use}
        ractor = Ractor.new { begin; #{loading}; "loaded"; rescue LoadError => e; e.message; end }
        told = ractor.respond_to?(:value) ? ractor.value : ractor.take
        #{loading}
        again = Ractor.new { #{loading} }
        again.respond_to?(:value) ? again.value : again.take
        print told, "; ", use
      RUBY
      status, output, = run_program(program, "-W0")
      expect([status, output]).to eq([0, "ruby_memprofiler_pprof is to be required in the main Ractor first; used"])
        .or eq([0, "loaded; used"]) # where the VM has the main Ractor load it
    end

    protobuf = <<~RUBY
      require "google/protobuf"
      require "google/protobuf/timestamp_pb"
      def theirs
        times = Array.new(200) { |i| Google::Protobuf::Timestamp.new(seconds: i, nanos: 7) }
        GC.start
        times.all? { |time| Google::Protobuf::Timestamp.decode(Google::Protobuf::Timestamp.encode(time)) == time }
      end
    RUBY
    {
      "before" => "#{protobuf}; #{loading}", "after" => "#{loading}; #{protobuf}",
      "after it was used" => "#{loading}; #{use}; use; #{protobuf}",
      "while it collects" => "#{loading}; c = MemprofilerPprof::Collector.new(sample_rate: 1); c.start!; #{protobuf}; c.flush; c.stop!"
    }.each do |order, program|
      it "with google/protobuf loaded #{order}, both work" do
        expect(run_program("#{program}; #{use}; print theirs, use, theirs")).to eq [0, "trueusedtrue", ""]
      end
    end
  end

  describe "while a collector runs" do
    it "follows the collector whose last reference is dropped, which goes on" do
      output = Child.run(<<~RUBY)
        #{kinds.sub("KINDS", "kinds")}
        kinds.each { |kind| kind.start! }
        kinds = nil
        10.times { GC.start && burn(0.02) }
        found = ObjectSpace.each_object(MemprofilerPprof::Collector).to_a
        kept = Array.new(1_000) { Object.new }
        counts = found.map { |collector| collector.flush.allocation_samples_count }
        print [found.size, found.map(&:running?).uniq, counts.count { |count| count > 1_000 }, found.map(&:stop!).uniq].inspect
      RUBY
      expect(output).to eq "[3, [true], 2, [true]]"
    end
  end

  describe "when it ends" do
    # With threads that allocate and flush, and a server that answers.
    server = <<~'RUBY'
      require "socket"
      server = TCPServer.new("127.0.0.1", 0)
      Thread.report_on_exception = false
      Thread.new { loop { client = server.accept; client.write("answer " * 20); client.close } }
      ask = -> { TCPSocket.open("127.0.0.1", server.addr[1], &:read) }
      Thread.new { loop { ask.call && sleep(0.001) } }
      Thread.new { loop { Array.new(20) { |i| { i => "x" * i } } && sleep(0.001) } }
      FLUSHER
      3.times { ask.call == "answer " * 20 or abort "no answer" }
    RUBY
    flusher = <<~'RUBY'
      Thread.new { loop { COLLECTOR.flush(gc: rand(5) == 0).write(File::NULL) && sleep(0.001) } }
      Thread.new { loop { COLLECTOR.stats && COLLECTOR.snapshot && sleep(0.001) } }
      burn(0.01) while windows(COLLECTOR) < 2
    RUBY

    ends = {
      "with its program" => "",
      "with exit" => "exit 3", "with exit!" => "exit!(4)", "with abort" => "abort 'aborted'", "with exit in a thread" => "Thread.new { exit 5 }.join; sleep",
      "of an exception" => "raise IndexError, 'uncaught'", "of an exception in a thread" => "Thread.new { raise 'its own' }.join",
      "of a throw" => "throw :nothing", "of SystemExit in a fiber" => "Fiber.new { exit 6 }.resume",
      "of SIGTERM" => "Process.kill(:TERM, $$); sleep", "of SIGINT" => "Process.kill(:INT, $$); sleep",
      "of SIGHUP" => "Process.kill(:HUP, $$); sleep", "of SIGKILL" => "Process.kill(:KILL, $$); sleep",
      "of SIGTERM that is trapped" => "trap(:TERM) { exit 7 }; Process.kill(:TERM, $$); sleep",
      "of SIGINT that is rescued" => "begin; Process.kill(:INT, $$); sleep; rescue Interrupt; print 'rescued'; exit 8; end",
      "of SIGHUP given back to the system" => "trap(:HUP) {}; trap(:HUP, 'SYSTEM_DEFAULT'); Process.kill(:HUP, $$); sleep",
      "amid at_exit" => "at_exit { print 'at exit'; exit 9 }; raise 'first'",
      "while ensures run" => "t = Thread.new { begin; sleep; ensure; print 'ensured'; end }; Thread.pass until t.stop?; exit 10",
      "while finalizers run" => "ObjectSpace.define_finalizer('x' * 3, proc { print 'finalized' }); exit 11",
      "with exec" => "exec('echo', 'executed')", "out of memory" => "raise NoMemoryError, 'none'"
    }

    Collecting::KINDS.each do |kind|
      it "does so as without a collector (#{kind.name})" do
        prelude = Child::PRELUDE.sub("Process.setrlimit(:CORE, 0)", "Process.setrlimit(:CORE, 0); $stderr.sync = $stdout.sync = true")
        without = "#{prelude}; #{server.sub("FLUSHER", "")}"
        with = "#{prelude}; COLLECTOR = #{kind.code}; COLLECTOR.start!; #{server.sub("FLUSHER", flusher)}"
        # In forks of one process, for loading takes time.
        runner = <<~RUBY
          #{Child::PRELUDE}
          require "socket"
          trap(:HUP, "DEFAULT") # whatever these specs are run by
          results = #{ends.values}.map do |code|
            [#{without.dump}, #{with.dump}].map do |before|
              out, err = IO.pipe, IO.pipe
              pid = fork do
                $stdout.reopen(out[1])
                $stderr.reopen(err[1])
                (out + err).each(&:close)
                eval(before + ";" + code, TOPLEVEL_BINDING, "program", 1)
              end
              [out[1], err[1]].each(&:close)
              guard = Thread.new { sleep(60) && Process.kill(:KILL, pid) }
              texts = [out[0], err[0]].map { |io| Thread.new { io.read } }.map(&:value)
              status = Process.wait2(pid)[1]
              guard.kill
              [status.exitstatus || Signal.signame(status.termsig), texts[0], texts[1].lines.first.to_s.sub(/program:\\d+/, "")]
            end
          end
          $stdout.binmode.write(Marshal.dump(results))
        RUBY
        output = Child.run(runner)
        differ = ends.keys.zip(Marshal.load(output.b)).reject { |_, (alone, beside)| alone == beside }
        expect(differ).to eq []
      end
    end
  end
end
