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
    def burn(seconds) # of CPU time, allocating: what the block does, or strings
      ends = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
      (block_given? ? yield : 50.times { "x" * 9 }) while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < ends
    end
    def imbalance(collector) = collector.stats[:allocations].then { |all| all.except(:vm).values.sum - all[:vm] }
    def allocations_in(data, name = nil) # of the sites whose names end so, or all
      samples = MemprofilerPprof::ProfileReader.read(data.pprof_data).samples
      samples = samples.select { |sample| sample.stack.any? { |frame| frame.name.match?(/\b#{name}\z/) } } if name
      samples.sum { |sample| sample.values.fetch("allocations") }
    end
    def take(ractor) = ractor.respond_to?(:take) ? ractor.take : ractor.value
  RUBY

  # Beside other Ractors the VM's own end may fail, so it is not waited for.
  AT_ONCE = "; $stdout.flush; exit!(0)"

  # @param code [String] Ruby, with the gem loaded; a line that it raises in is told by its number in the code
  # @param options [Array<String>] for the Ruby that runs it
  # @param at_once [Boolean] end with `exit!` after the code
  # @return [String] what it prints
  # @raise [Failed] if it exits with anything but 0
  def self.run(code, *options, environment: {}, at_once: false)
    program = "#{PRELUDE}eval($stdin.read, TOPLEVEL_BINDING, \"child\", 1)#{AT_ONCE if at_once}"
    output, messages, status = capture(*options, "-e", program, environment: environment, stdin_data: code)
    check(status, messages)
    output.force_encoding(Encoding::UTF_8)
  end

  # @param arguments [Array<String>] of a Ruby that finds what this one does
  # @return [Array(String, String, Process::Status)] what it printed and complained of, and how it ended
  def self.capture(*arguments, environment: {}, **streams)
    folders = $LOAD_PATH.map { |folder| "-I#{folder}" }
    Open3.capture3({ "RUBYOPT" => nil, **environment }, "timeout", "-s", "KILL", SECONDS.to_s,
                   RbConfig.ruby, "--disable=gems", *folders, *arguments, binmode: true, **streams)
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
