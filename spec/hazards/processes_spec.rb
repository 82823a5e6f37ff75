# frozen_string_literal: true

# Other processes, system calls and their time: a program notices nothing of the profiler, in either mode. The rest of how
# a process ends is in life_spec.rb.
RSpec.describe "processes" do
  modes = {
    "fixed" => "MemprofilerPprof::Collector.new(sample_rate: 0.5, liveness: :weak_map)",
    "exact" => "exact",
    "burst" => "MemprofilerPprof::Collector.new(mode: :burst, overhead: 0.5, prelude: 0.02)"
  }

  modes.each do |mode, collector|
    describe "while a collector is in #{mode} mode" do
      define_method(:start) { "collector = #{collector}; collector.start!; busy = ->(s) { t = Process.clock_gettime(2); Array.new(50) { 'x' * 9 } while Process.clock_gettime(2) - t < s };" }

      it "are made in every way, and give what they give" do
        output = Child.run(<<~RUBY)
          #{start}
          busy.(0.2)
          results = []
          results << `echo backticks` << system("exit 3") << $?.exitstatus
          results << IO.popen(["cat"], "r+") { |io| io.write("popen"); io.close_write; io.read }
          pid = spawn("exit 5")
          results << Process.wait2(pid).last.exitstatus
          reader, writer = IO.pipe
          pid = fork { reader.close; writer.write(Array.new(1000) { "y" }.size); exit!(7) }
          writer.close
          results << reader.read << Process.wait2(pid).last.exitstatus
          pid = fork { exec("sh", "-c", "kill -l TERM >/dev/null; exit 9") }
          results << Process.wait2(pid).last.exitstatus
          collector.flush
          collector.stop!
          print results.inspect
        RUBY
        expect(output).to eq ["backticks\n", false, 3, "popen", 5, "1000", 7, 9].inspect
      end

      it "are replaced by exec, again and again" do
        output = Child.run(<<~RUBY)
          statuses = Array.new(15) do |i|
            pid = fork do
              #{start}
              busy.(0.01 + i * 0.001)
              exec("sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; exit 4")
            end
            Process.wait2(pid).last
          end
          print statuses.map { |status| status.exitstatus || status.termsig.to_s }.uniq.inspect
        RUBY
        expect(output).to eq "[4]"
      end

      it "of a pre-fork server have a profile each, wherever the collector was started" do
        output = Child.run(<<~RUBY)
          require "tmpdir"
          folder = Dir.mktmpdir
          #{start}
          busy.(0.1)
          pids = Array.new(4) do |i|
            fork do
              mine = i.odd? ? #{collector}.tap(&:start!) : collector
              busy.(0.4)
              mine.flush.write(File.join(folder, "\#{i}.pb.gz"))
              mine.stop!
              exit!(0)
            end
          end
          busy.(0.2)
          collector.flush.write(File.join(folder, "master.pb.gz"))
          statuses = pids.map { |pid| Process.wait2(pid).last.exitstatus }
          collector.stop!
          profiles = Dir[File.join(folder, "*")].sort.map { |file| MemprofilerPprof::ProfileReader.read(File.binread(file)) }
          print [statuses, profiles.size, profiles.all? { |profile| profile.total(profile.sample_types.first.first) > 1000 }].inspect
          require "fileutils"
          FileUtils.rm_rf(folder)
        RUBY
        expect(output).to eq [[0, 0, 0, 0], 5, true].inspect
      end

      it "wait and sleep as long as they are told to, and lose nothing of what they read" do
        output = Child.run(<<~RUBY)
          require "timeout"
          #{start}
          noise = Thread.new { busy.(3) }
          clock = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
          took = lambda { |&work| from = clock.(); work.(); clock.() - from }
          results = []
          results << took.() { sleep(0.3) }.between?(0.29, 1.5)
          reader, writer = IO.pipe
          results << took.() { IO.select([reader], nil, nil, 0.3) }.between?(0.29, 1.5)
          results << took.() { Timeout.timeout(0.3) { reader.read } rescue Timeout::Error }.between?(0.29, 1.5)
          feeder = Thread.new { 200.times { |i| writer.write("%05d" % i) && sleep(0.001) }; writer.close }
          text = reader.read
          results << (text == (0...200).map { |i| "%05d" % i }.join)
          pid = spawn("sleep 0.3")
          results << took.() { Process.wait(pid) }.between?(0.2, 1.5)
          queue = Queue.new
          Thread.new { sleep(0.2); queue << :item }
          results << (queue.pop == :item)
          noise.join
          collector.stop!
          print results.inspect
        RUBY
        expect(output).to eq ([true] * 6).inspect
      end

      it "go on sampling where they were forked while another thread collected garbage in a flush" do
        output = Child.run(<<~RUBY)
          #{start}
          finalizing = Queue.new
          leave = ->(body) { ObjectSpace.define_finalizer(Object.new, body) && nil }
          Fiber.new { 10.times { leave.call(proc { finalizing << 1 && sleep(0.1) }) } }.resume
          Array.new(1_000) { Object.new }
          flushing = Thread.new { collector.flush(gc: true) }
          500.times { finalizing.empty? && sleep(0.01) }
          Kept = Class.new
          child = fork do
            20_000.times { Kept.new }
            before = collector.stats[:jobs]
            100_000.times { Kept.new }
            burn(0.3)
            3.times { GC.start }
            print ObjectSpace.each_object(Kept).count < 5_000, collector.stats[:jobs] > before
            $stdout.flush
            exit!(0)
          end
          Process.wait(child)
          flushing.join
        RUBY
        expect(output).to eq "truetrue"
      end

      it "end as they would, with their own status and output" do
        {
          "exit 3" => [3, ""], "exit!(4)" => [4, ""], "abort 'aborted'" => [1, ""],
          "raise 'uncaught'" => [1, ""], "Process.kill(:TERM, $$); sleep" => ["TERM", ""],
          "at_exit { print collector.flush.pprof_data.size > 100 }" => [0, "true"],
          "Thread.new { raise 'in a thread' }.join rescue print('rescued')" => [0, "rescued"],
          "Thread.new { loop { busy.(0.01) } }; Thread.new { loop { collector.flush } }; sleep 0.1" => [0, ""]
        }.each do |code, expected|
          output = Child.run(<<~RUBY)
            reader, writer = IO.pipe
            pid = fork do
              reader.close
              $stdout.reopen(writer)
              $stderr.reopen(File::NULL)
              #{start}
              busy.(0.05)
              #{code}
            end
            writer.close
            text = reader.read
            status = Process.wait2(pid).last
            print [status.exitstatus || Signal.signame(status.termsig), text].inspect
          RUBY
          expect([code, output]).to eq [code, expected.inspect]
        end
      end
    end
  end
end
