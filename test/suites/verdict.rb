# frozen_string_literal: true

require_relative "../../spec/support/go_pprof"
require_relative "../../spec/support/profile_reader"

module Suites
  # What is wrong with a profiled run.
  module Verdict
    MOST = 5 # lines for one thing

    module_function

    # @param references [Array<Outcome>] unprofiled runs: what one of them did is no difference
    # @return [Array<String>] one for each thing that the profiled run did otherwise
    def differences(outcome, references)
      seen = references.map(&:tests)
      tests = outcome.tests.reject { |name, results| seen.any? { |known| known[name] == results } }
      missing = seen.first.keys.select { |name| seen.all? { |known| known.key?(name) } } - outcome.tests.keys
      messages = outcome.messages - references.flat_map(&:messages)
      [*("ended with #{outcome.status}" unless references.map(&:status).include?(outcome.status)),
       *tests.map { |name, results| "#{name}: #{results.join}" },
       *missing.map { |name| "#{name} did not run" },
       *messages.map { |line| "printed: #{line}" }]
    end

    # @param exact [Boolean] whether every allocation was sampled
    # @param compact [Boolean] whether the VM moved objects: from 3.4 on it counts those that it puts back as allocated
    # @return [Array<String>] what is wrong with what the run recorded
    def defects(outcome, exact:, compact:)
      return ["no profile was written"] if outcome.records.empty?

      outcome.records.each_with_index.flat_map do |record, number|
        process = number.zero? ? "" : "child #{number}: "
        [*record[:errors], *profiles(record), *(conservation(record, compact) if exact)].map { |line| process + line }
      end
    end

    def profiles(record)
      record[:flushes].each { |bytes| GoPprof.run(bytes, "-top") if bytes.equal?(record[:flushes].last) }
      record[:flushes].flat_map { |bytes| ProfileRules.violations(bytes).first(MOST) }
    rescue GoPprof::Failed => e
      [e.message]
    end

    def conservation(record, compact)
      allocations, live = record[:stats].values_at(:allocations, :live_samples)
      profiles = record[:flushes].map { |bytes| ProfileReader.read(bytes) }
      sums = allocations.except(:vm).values.sum
      flushed = profiles.sum { |profile| profile.total("allocations") }
      retained = profiles.last.total("retained_objects")
      thinned = record[:stats][:live_thinnings].positive?
      [*("#{sums} allocations, the VM counted #{allocations[:vm]}" if sums != allocations[:vm]),
       *("#{flushed} allocations in the profiles of #{allocations.values_at(:counted, :dropped).sum}" unless
         flushed == allocations.values_at(:counted, :dropped).sum),
       *("#{retained} retained of #{live} live" unless thinned || retained == live),
       *("#{allocations[:unseen]} unseen" if allocations[:unseen].positive? && !compact)]
    end
  end
end
