# frozen_string_literal: true

# Where memory, room, descriptors, timers, stack or time is short, each in a child process: the program goes on as it would
# without the profiler, and so does the profiler once there is enough again.
RSpec.describe "scarcity" do
  kinds = Collecting::BACK_ENDS.flat_map do |liveness|
    [["exact, #{liveness}", "sample_rate: 1, liveness: :#{liveness}"],
     ["burst, #{liveness}", "mode: :burst, overhead: 0.5, prelude: 0.02, liveness: :#{liveness}"]]
  end

  # Of the child processes: BURST, OPTIONS and what they share.
  common = <<~'RUBY'
    def collector(**options) = MemprofilerPprof::Collector.new(**OPTIONS, **options)
    BURST = OPTIONS[:mode] == :burst
    READER = MemprofilerPprof::ProfileReader # before anything is short

    def expect(what, holds)
      raise what unless holds
    end

    def busy(seconds)
      ending = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + seconds
      yield while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < ending
    end

    def counted_site = Array.new(1_000) { Object.new }

    # Sees to it that what is allocated now is recorded, and as much as there is.
    def check_that_all_is_recorded(collector)
      collector.flush
      BURST ? busy(0.15) { counted_site } : counted_site
      data = collector.flush
      n = allocations_in(data, :counted_site)
      expect "#{n} objects of 1,001 recorded, #{data.dropped_samples}", BURST ? n > 10_000 : n.between?(1_000, 1_002)
      expect "off by an amount", imbalance(collector).zero?
    end

    def resident_bytes = File.read("/proc/self/statm").split[1].to_i * 4096
  RUBY

  define_method(:run) do |options, code, environment: {}|
    Child.run("OPTIONS = { #{options} }; #{common}#{code}", environment: environment)
  end

  kinds.each do |kind, options|
    describe "of memory (#{kind})" do
      storms = {
        "stacks" => <<~'RUBY',
          def left(depth, i, &block) = depth.zero? ? block.call : turn(depth - 1, i, &block)
          def right(depth, i, &block) = depth.zero? ? block.call : turn(depth - 1, i, &block)
          def turn(depth, i, &block) = i[depth].zero? ? left(depth, i, &block) : right(depth, i, &block)
          @n = 0
          def storm = 40_000.times { left(20, (@n += 1) * 7) { Object.new } }
        RUBY
        "classes" => <<~'RUBY',
          @n = 0
          def storm
            4_000.times do
              name = :"Class#{(@n += 1) % 4_000}#{"X" * 100}"
              Object.const_set(name, Class.new).new
              Object.send(:remove_const, name)
            end
          end
        RUBY
        "files and methods" => <<~'RUBY'
          @n = 0
          def storm
            2_000.times do
              n = @n += 1
              Module.new { module_eval("def self.site_#{n % 2_000}#{"x" * 100} = Object.new", "#{"file" * 50}#{n}", n) }
                    .then { |holder| holder.send(holder.singleton_methods.first) }
            end
          end
        RUBY
      }
      storms.each do |what, storm|
        it "outlives a storm of #{what}, and all is as before" do
          run(options, <<~RUBY)
            #{storm}
            fresh = collector(memory_limit: 1024 * 1024)
            fresh.start!
            empty = fresh.stats[:memory][:total]
            sizes = Array.new(3) do
              storm
              stats = fresh.stats
              expect "above the limit: \#{stats[:memory]}", stats[:memory][:peak] <= 1024 * 1024
              expect "dropped: \#{stats[:dropped_samples]}", stats[:dropped_samples][:no_memory].zero?
              GC.start
              check_that_all_is_recorded(fresh)
              resident_bytes
            end
            fresh.stop!
            fresh.start!
            again = fresh.stats[:memory][:total]
            expect "\#{again} bytes after a start, not \#{empty}", again <= empty + 128 * 1024
            check_that_all_is_recorded(fresh)
            # AddressSanitizer keeps what is freed for a while.
            expect "resident: \#{sizes}", #{Child.sanitized?} || sizes[2] - sizes[1] < 8 * 1024 * 1024
          RUBY
        end
      end

      # Ruby itself needs memory at the first call of many a method, so there is a rehearsal. It ends the process where it
      # finds no place for an exception, so its heap has places for all that is allocated here. From 3.3 on the VM does not
      # get through this alone: 3.3 hangs, 3.4 ends the process.
      it "is never what an exception of the program comes from, where the address space is at its end",
         if: RUBY_VERSION < "3.3", unless: Child.sanitized? do
        output = run(options, <<~'RUBY', environment: { "RUBY_GC_HEAP_INIT_SLOTS" => "1000000" })
          SITES = (1..600).map { |i| :"site_#{i}" }
          SITES.each { |name| eval("def #{name}(*) = yield", binding, "file of #{name}") }
          def visit = SITES.each { |name| __send__(name) { Object.new } }

          def fill(list)
            at = 0
            [1 << 20, 1 << 16, 1 << 12, 1 << 10, 200].each do |size|
              list[at += 1] = "x" * size while at < list.size - 1
            rescue NoMemoryError
              next
            end
          end

          def unless_short
            yield
          rescue NoMemoryError
            :no_memory
          end

          def scene(running, other, list, places)
            fill(list)
            places.clear
            raised = unless_short { (BURST ? 500 : 3).times { visit } && nil }
            [raised, unless_short { running.flush }, unless_short { running.flush }, unless_short { running.stats },
             unless_short { other.start! }, unless_short { other.stop! }]
          end

          running, other = collector, collector
          scene(running, other, Array.new(50), [])
          running.start!
          busy(0.1) { Object.new } if BURST
          GC.start # finds all places free that the dead had
          list = Array.new(60_000)
          # For what the calls themselves need, an exception among it; from 3.2 on slots are of several sizes.
          places = Array.new(500) { [Object.new, *[60, 140, 300, 600].map { |size| "x" * size }] }
          limit = Process.getrlimit(:AS)
          Process.setrlimit(:AS, File.read("/proc/self/statm").split[0].to_i * 4096 + 4 * 1024 * 1024, limit[1])
          raised, *flushes, stats, started, stopped = scene(running, other, list, places)
          Process.setrlimit(:AS, *limit)
          list = nil
          GC.start

          expect "off", imbalance(running).zero?
          flushes << running.flush
          running.stop!
          flushes << running.flush
          flushes.delete(:no_memory)
          flushed = flushes.sum { |data| READER.read(data.pprof_data).total("allocations") }
          parts = running.stats[:allocations]
          expect "#{flushed} flushed of #{parts}", BURST || flushed == parts.values_at(:counted, :dropped).sum
          [running, other].each do |again|
            again.start!
            check_that_all_is_recorded(again)
          end
          print [raised, stats.class, started, stopped].inspect
        RUBY
        expect(output).to match(/\A\[nil, (Hash|Symbol), (true|:no_memory), (true|false|:no_memory)\]\z/)
      end
    end

    describe "of room (#{kind})" do
      small = "max_heap_samples: 1, max_allocation_samples: 16, max_stack_depth: 1, memory_limit: 1024 * 1024"
      large = "max_heap_samples: 1 << 24, max_allocation_samples: 1 << 24, max_stack_depth: 10_000, memory_limit: 1 << 40"
      { small: small, large: large }.each do |size, limits|
        it "goes on with limits as #{size} as they may be" do
          output = run(options, <<~RUBY)
            limited = collector(#{limits})
            limited.start!
            def deep(n, &block) = n.zero? ? block.call : deep(n - 1, &block)
            kept = []
            work = -> { 50.times { |i| kept << deep(i) { Object.new } << "x" * i } }
            busy(0.2, &work)
            kept.shift(kept.size / 2)
            data = limited.flush(gc: true)
            limited.stop!
            expect "off", imbalance(limited).zero?
            print limited.stats[:memory][:total], "\n", data.pprof_data.size, "\n"
            $stdout.binmode.write(data.pprof_data)
          RUBY
          total, bytes, profile = output.b.split("\n", 3)
          expect(profile.bytesize).to eq bytes.to_i
          expect(ProfileRules.violations(profile)).to eq []
          expect(total.to_i).to be < (size == :small ? 1024 * 1024 : 200 * 1024 * 1024)
        end
      end
    end

    describe "of everything else (#{kind})" do
      it "needs no descriptor but to write, and says so then" do
        run(options, <<~'RUBY')
          require "tmpdir"
          Dir.mktmpdir do |folder|
            path = File.join(folder, "profile")
            data = collector.profile { Object.new }
            limit = Process.getrlimit(:NOFILE)
            Process.setrlimit(:NOFILE, 3, limit[1])
            running = collector
            running.start!
            check_that_all_is_recorded(running)
            begin
              data.write(path)
              raise "written without a descriptor"
            rescue Errno::EMFILE
              nil
            end
            running.stop!
            Process.setrlimit(:NOFILE, *limit)
            expect "left: #{Dir.children(folder)}", Dir.empty?(folder)
            running.snapshot.write(path)
            expect "no profile", READER.read(File.binread(path)).samples.any?
          end
        RUBY
      end

      it "lives with stacks of every size" do
        output = run(options, <<~RUBY)
          require "rbconfig"
          program = <<~'PROGRAM'
            OPTIONS = { #{options} }
            #{(Child::PRELUDE + common).gsub("\n", "\n  ")}
            def deep(n) = n.zero? ? Object.new : deep(n - 1)
            running = collector
            running.start!
            begin
              deep(1 << 30)
            rescue SystemStackError
              print "caught "
            end
            Thread.new { deep(100) }.join
            check_that_all_is_recorded(running)
            running.stop!
          PROGRAM
          most = Process.getrlimit(:STACK)[1]
          [256 * 1024, 1024 * 1024, 64 * 1024 * 1024, most].each do |size|
            system(RbConfig.ruby, "--disable=gems", *$LOAD_PATH.map { |folder| "-I" + folder }, "-e", program,
                   rlimit_stack: [size, most], exception: true)
          end
        RUBY
        expect(output).to eq "caught caught caught caught "
      end

      it "lets a limit on CPU time do what it does" do
        output = run(options, <<~'RUBY')
          called = 0
          trap("XCPU") { called += 1 }
          running = collector
          running.start!
          spent = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
          Process.setrlimit(:CPU, spent.ceil + 1, spent.ceil + 60)
          busy(spent.ceil + 1.2 - spent) { counted_site }
          check_that_all_is_recorded(running)
          print called.positive?
        RUBY
        expect(output).to eq "true"
      end
    end
  end

  it "of timers is told once at each start, and the run is fixed" do
    output = Child.run(<<~'RUBY')
      $stderr = $stdout
      limit = Process.getrlimit(:SIGPENDING)
      Process.setrlimit(:SIGPENDING, 0, limit[1])
      collector = MemprofilerPprof::Collector.new(mode: :burst)
      collector.start!
      kept = Array.new(50_000) { Object.new }
      collector.flush
      stats = collector.stats
      collector.stop!
      puts "#{stats[:mode]} #{stats[:samples] > 100} #{kept.size}"
      Process.setrlimit(:SIGPENDING, *limit)
      collector.start!
      puts collector.stats[:mode]
    RUBY
    expect(output).to eq "MemprofilerPprof::Collector: a fixed rate of 0.01 instead of in bursts, for the system gives no " \
                         "timer of CPU time\nfixed true 50000\nburst\n"
  end

  it "of descriptors does not hinder the reader of profiles from coming later" do
    output = Child.run(<<~'RUBY')
      data = exact.profile { Object.new }
      limit = Process.getrlimit(:NOFILE)
      Process.setrlimit(:NOFILE, 3, limit[1])
      begin
        data.estimate(/Object/)
      rescue LoadError, SystemCallError => e
        print e.class, " "
      end
      Process.setrlimit(:NOFILE, *limit)
      print data.estimate(/new/, type: "allocations").value.positive?
    RUBY
    expect(output).to end_with "true"
  end

  it "of readers is told by the pipe" do
    output = Child.run(<<~'RUBY')
      require "tmpdir"
      Dir.mktmpdir do |folder|
        path = File.join(folder, "pipe")
        File.mkfifo(path)
        data = exact.profile { 5_000.times { |i| eval("Object.new", binding, "file#{i * 7919}") } }
        reader = Thread.new { File.open(path) { |file| file.read(1) } }
        begin
          10.times { data.write(path) }
        rescue Errno::EPIPE
          print "EPIPE "
        end
        reader.join
        data.write(File.join(folder, "file"))
        print Dir.children(folder).sort.join(" "), " ", File.size(File.join(folder, "file")) == data.pprof_data.bytesize
      end
    RUBY
    expect(output).to eq "EPIPE file pipe true"
  end
end
