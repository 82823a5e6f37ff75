# frozen_string_literal: true

# The other side of Nursery: programs come in, outcomes go out.
Process.setrlimit(:CORE, 0)
Encoding.default_external = Encoding::UTF_8
require "objspace"
require "tmpdir"
require "ruby_memprofiler_pprof"
require_relative "../child"
require_relative "../profile_reader"
require_relative "../model"

module Model
  # Runs one program in a fork of this process.
  class Room
    # Profiles of a program that all the rules are asked of.
    MOST_PROFILES = 10

    # Frames that say nothing of where it failed.
    EVERYWHERE = /(?:perform|each|descend|expect)'|operations\.rb/

    SECONDS = Child.sanitized? ? 600 : 240 # GC.stress on a busy machine is slow

    def run(program)
      Dir.mktmpdir do |folder|
        files = File.join(folder, "files")
        Dir.mkdir(files)
        progress, writer = IO.pipe(binmode: true)
        pid = Process.fork { inside(program, folder, files, writer) }
        writer.close
        status = wait(pid)
        at = progress.read_nonblock(65_536, exception: false).to_s.unpack("N*").last
        progress.close
        outcome(program, folder, status, at)
      end
    end

    private

    # A process group of its own, so that what it leaves behind ends with it.
    def inside(program, folder, files, writer)
      Process.setpgid(0, 0)
      $stdin.reopen(File::NULL)
      $stdout.reopen(File::NULL)
      $stderr.reopen(File.join(folder, "messages"), "w")
      $stderr.sync = true
      world = World.new(files, ->(number) { writer.syswrite([number].pack("N")) })
      result = attempt(world, program)
      File.binwrite(File.join(folder, "result"), Marshal.dump(result))
      exit!(0)
    end

    def attempt(world, program)
      Thread.report_on_exception = false # it is in the outcome
      world.perform(program.steps)
      world.finish
      [:passed, "", world.findings, world.profiles]
    rescue Exception => e # a bug of the model too
      trace = e.backtrace.grep_v(EVERYWHERE).first(10)
      [:failed, "#{e.class}: #{e.message[0, 3_000]}\n    #{trace.join("\n    ")}", [], world.profiles]
    end

    # @return [Process::Status, nil] nil if it had to be ended
    def wait(pid)
      deadline = now + SECONDS
      until (status = Process.wait2(pid, Process::WNOHANG)&.last) || now > deadline
        sleep 0.002
      end
      end_group(pid)
      Process.wait(pid) unless status
      status
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def end_group(pid)
      Process.kill(:KILL, -pid)
    rescue Errno::ESRCH, Errno::EPERM
      nil
    end

    def outcome(program, folder, status, at)
      messages = File.read(File.join(folder, "messages"), mode: "rb").scrub[0, 6_000]
      return Outcome.new(kind: :hung, message: "no end within #{SECONDS} s\n#{messages}", at: at) if status.nil?
      unless status.success?
        return Outcome.new(kind: :crashed, message: "#{status.inspect[/(SIG|exit).*/]}\n#{messages}", at: at)
      end

      kind, message, findings, profiles = Marshal.load(File.binread(File.join(folder, "result")))
      profiles = profiles.sample(MOST_PROFILES, random: Random.new(program.seed))
      step, broken = profiles.lazy.map { |number, bytes| [number, ProfileRules.violations(bytes)] }
                             .find { |_, violations| violations.any? }
      kind, message = :failed, "not a valid profile at step #{step}: #{broken.first(5)}" if kind == :passed && broken
      unless quiet?(messages)
        kind, message = :failed, "#{message unless kind == :passed}\nprinted: #{messages}"
      end
      Outcome.new(kind: kind, message: message, at: at, findings: findings)
    end

    # The one warning that there may be is of a timer that cannot be had.
    def quiet?(messages) = Child.sanitized? || messages.lines.all? { |line| line.include?("instead of in bursts") }
  end

  room = Room.new
  until $stdin.eof?
    outcome = room.run(Marshal.load($stdin))
    $stdout.binmode
    Marshal.dump(outcome, $stdout)
    $stdout.flush
  end
end
