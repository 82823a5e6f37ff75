# frozen_string_literal: true

module Bench
  # It has said itself why.
  class ChildFailed < StandardError; end

  module_function

  # Runs the block in a forked process, so that it inherits nothing of what others loaded, started or allocated, and
  # leaves nothing behind.
  #
  # @return [Object] what the block gave, which can be marshalled
  # @raise [ChildFailed]
  def in_child
    reader, writer = IO.pipe(binmode: true)
    child = fork do
      Thread.report_on_exception = false
      reader.close
      writer.write(Marshal.dump(yield))
      writer.close
      exit!(0) # nothing at_exit: a peer would write its profile there
    rescue Exception => error
      warn "#{error.class}: #{error.message}", *error.backtrace.first(3).map { |line| "  from #{line}" }
      exit!(1)
    end
    writer.close
    answer = reader.read
    reader.close
    Process.wait(child)
    $?.success? ? Marshal.load(answer) : raise(ChildFailed, "a child process failed: #{$?}")
  end
end
