# frozen_string_literal: true

# A pool of threads that take jobs from a queue and hand their results on, as a server's does.

Bench::Workloads.define("threads") do
  jobs = Queue.new
  results = Queue.new
  work = lambda do |number|
    text = Array.new(20) { |i| "part #{i} of #{number}" }.join(",")
    results << text.split(",").to_h { |part| [part, Object.new] }.size
  end
  descend = ->(levels, number) { levels.zero? ? work.(number) : descend.(levels - 1, number) }
  # Threads do not survive a fork: made where the work is first done.
  pool = nil
  lambda do
    pool ||= Array.new(32) { Thread.new { loop { descend.(40, jobs.pop) } } }
    64.times { |number| jobs << number }
    64.times { results.pop }
  end
end
