# frozen_string_literal: true

require "open3"
require "rbconfig"

# Code that might take the process down runs in another one, where that is a failure with a name.
module Child
  Failed = Class.new(StandardError)
  SECONDS = 120

  PRELUDE = <<~'RUBY'
    Process.setrlimit(:CORE, 0)
    Encoding.default_external = Encoding::UTF_8
    require "ruby_memprofiler_pprof"
    def exact(**options) = MemprofilerPprof::Collector.new(sample_rate: 1, **options)
    def windows(collector) = collector.stats[:burst]&.fetch(:windows) || Float::INFINITY
    def burn(seconds) # of CPU time, allocating
      ends = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
      50.times { "x" * 9 } while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < ends
    end
  RUBY

  # @param code [String] Ruby, with the gem loaded; a line that it raises in is told by its number in the code
  # @param options [Array<String>] for the Ruby that runs it
  # @return [String] what it prints
  # @raise [Failed] if it exits with anything but 0
  def self.run(code, *options, environment: {})
    output, messages, status = Open3.capture3(
      { "RUBYOPT" => nil, **environment }, "timeout", "-s", "KILL", SECONDS.to_s,
      RbConfig.ruby, "--disable=gems", *options, *$LOAD_PATH.map { |folder| "-I#{folder}" },
      "-e", "#{PRELUDE}eval($stdin.read, TOPLEVEL_BINDING, \"child\", 1)",
      stdin_data: code, binmode: true
    )
    check(status, messages)
    output.force_encoding(Encoding::UTF_8)
  end

  # AddressSanitizer keeps freed memory for a while, and its allocator may be locked for good in the fork of a process
  # with several threads.
  # @return [Boolean]
  def self.sanitized? = ENV["LD_PRELOAD"].to_s.include?("asan")

  # @return [Object] what the block gives in a fork of this process
  # @raise [Failed] if it raises, with its message, or dies
  def self.fork
    reader, writer = IO.pipe(binmode: true)
    pid = Process.fork do
      reader.close
      result = begin
        [:gave, yield]
      rescue Exception => e # an expectation that is not met among them
        [:raised, e.full_message(highlight: false)]
      end
      writer.write(Marshal.dump(result))
      writer.close
      Process.exit!(0)
    end
    writer.close
    bytes = reader.read
    reader.close
    _, status = Process.wait2(pid)
    check(status, "")
    kind, result = Marshal.load(bytes)
    kind == :gave ? result : raise(Failed, "the fork raised: #{result}")
  end

  def self.check(status, messages)
    return if status.success?

    cause = status.signaled? ? "signal #{Signal.signame(status.termsig)}" : "status #{status.exitstatus}"
    raise Failed, "the child ended with #{cause}: #{messages[0, 3_000]}"
  end
  private_class_method :check
end
