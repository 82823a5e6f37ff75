# frozen_string_literal: true

# Each request of the core for memory fails in turn, alone or with all after it, while Ruby runs: the program notices
# nothing, every allocation is accounted for, and once there is memory again all is as before. In builds that can do it:
# see MPP_SANITIZE in extconf.rb.
RSpec.describe "failing allocations", if: MemprofilerPprof.respond_to?(:fail_allocations_native, true) do
  program = <<~'RUBY'
    MemprofilerPprof::ProfileReader
    def fail_from(n, count = 1) = MemprofilerPprof.__send__(:fail_allocations_native, n, count)
    def never = fail_from(0, 0)

    SITES = (1..30).map { |i| :"site#{i}" }
    CLASSES = (1..10).map { |i| Object.const_set(:"Of#{i}", Class.new) }
    SITES.each { |name| eval("def #{name} = yield", binding, "file of #{name}.rb") }
    def again = Array.new(100) { Object.new }

    # What the program does: objects that stay and that do not, of stacks and classes that are new to a collector.
    def work(kept)
      SITES.each { |name| send(name) { kept << CLASSES.sample.new << "text of #{name}" << [name] } }
      GC.start
      kept.shift(kept.size / 2)
      ("some words " * 20).split
      nil
    end

    # The profile, unless there is no memory for it.
    def unless_short
      yield
    rescue NoMemoryError
      nil
    end

    def expect(what, holds)
      raise "#{what} (request #{$n}, #{$count} of them)" unless holds
    end

    # One try: requests from n on fail, `count` of them. Gives how many requests there were.
    def try(n, count)
      $n, $count = n, count
      fail_from(n, count)
      collector = unless_short { exact(seed: n) }
      started = collector && unless_short { collector.start! }
      kept = []
      work(kept)
      datas = [started && unless_short { collector.flush }]
      unless_short { collector.snapshot(gc: true) } if started
      work(kept)
      datas << unless_short { collector.flush(class_names: :frame) } if started
      requests = never
      collector ||= exact
      collector.start!
      work(kept) if started
      again
      datas << collector.flush
      collector.stop!
      stats = collector.stats
      parts = stats[:allocations]
      expect "off by #{parts.except(:vm).values.sum - parts[:vm]}", parts.except(:vm).values.sum == parts[:vm]
      seen = allocations_in(datas.last, :again)
      expect "#{seen} objects seen, not 101", seen >= 101
      flushed = datas.compact.sum { |data| allocations_in(data) }
      expect "#{flushed} flushed", flushed == parts.values_at(:counted, :dropped).sum
      drops = stats[:dropped_samples].select { |_, n| n.positive? }
      expect "dropped for #{drops}", (drops.keys - %i[no_memory live_limit]).empty?
      requests
    end
  RUBY

  Collecting::BACK_ENDS.each do |liveness|
    context "with liveness #{liveness}" do
      include_context "with liveness", liveness

      # In parts, for a try takes long where everything is instrumented.
      4.times do |part|
        it "cost samples, which are counted, and no more (part #{part + 1} of 4)" do
          output = run_child(<<~RUBY)
            #{program}
            3.times { try(0, 0) }
            most = try(0, 0)
            (1..most).each { |n| try(n, 1) if n % 4 == #{part} }
            (1..most).each { |n| try(n, 1 << 40) if n % 16 == #{part} }
            print most > 200, " ", try(0, 0).between?(most / 2, most * 2)
          RUBY
          expect(output).to eq "true true"
        end
      end
    end
  end

  it "of a start leave the run before to be read, in the mode that it had" do
    output = Child.run(<<~RUBY)
      #{program}
      collector = MemprofilerPprof::Collector.new(mode: :burst)
      collector.profile { 20_000.times { Object.new } } # at a fixed rate
      read = -> { [allocations_in(collector.snapshot), *collector.stats.values_at(:mode, :samples, :state)] }
      before = read.call
      fail_from(1, 1 << 40)
      started = unless_short { collector.start! }
      never
      print started.inspect, " ", read.call == before, " ", before[0].positive?, " "
      collector.start!
      print collector.stats[:mode]
    RUBY
    expect(output).to eq "nil true true burst"
  end
end
