# frozen_string_literal: true

# What happens at each limit: numbers stay true, the program goes on, and what was dropped is told.
RSpec.shared_examples "limits" do |liveness|
  include_context "with liveness", liveness

  # Runs `block` below n distinct methods, one after the other: n distinct stacks.
  def below(n, prefix: "site", &block)
    source = (1..n).map { |i| "def self.#{prefix}#{i} = yield\n" }.join
    holder = Module.new { module_eval(source) }
    (1..n).each { |i| holder.public_send("#{prefix}#{i}", &block) }
  end

  def names(data) = read(data).samples.flat_map { |sample| sample.stack.map(&:name) }.uniq

  describe "max_allocation_samples" do
    it "folds the coldest stacks into (evicted), and totals stay" do
      collector = exact(max_allocation_samples: 64)
      collector.start!
      made = 0
      datas = Array.new(4) do |i|
        # What is not known to be dead holds its row: collect before the rows run out.
        below(250, prefix: "round#{i}_") { ((made += 1) % 16).zero? ? GC.start : Object.new }
        collector.flush
      end
      collector.stop!
      datas << collector.flush
      stats = collector.stats
      expect(stats[:rows]).to be <= 64
      expect(stats[:evicted_rows]).to be > 500
      expect(balance(collector).reduce(:-)).to eq 0
      flushed = datas.sum { |data| read(data).total("allocations") }
      expect(stats[:allocations].values_at(:counted, :dropped).sum).to eq flushed
      evicted = read(collector.snapshot).samples.find { |sample| sample.stack.map(&:name) == ["(evicted)"] }
      expect(evicted.values["allocations"]).to be > 500
      expect(evicted.values["allocation_size"]).to be > 20_000
      expect(evicted.values["retained_objects"]).to eq 0
      expect(read(collector.snapshot).comments.join).to include("evicted rows: #{stats[:evicted_rows]}")
      expect(datas.map(&:evicted_rows_count)).to eq datas.map(&:evicted_rows_count).sort
      expect(datas.last.evicted_rows_count).to eq stats[:evicted_rows]
    end

    it "spares stacks with live objects, and drops what finds no place" do
      collector = exact(max_allocation_samples: 32)
      collector.start!
      kept = []
      below(200) { kept << Object.new }
      data = collector.flush(gc: true)
      collector.stop!
      expect(read(data).total("retained_objects")).to be >= 10
      expect(data.dropped_samples[:row_limit]).to be_positive
      expect(names(data)).to include("(dropped)")
      expect(balance(collector).reduce(:-)).to eq 0
      expect(kept.size).to eq 200
    end
  end

  describe "memory_limit" do
    it "is kept under a burst of distinct stacks; drops are counted, and memory comes back" do
      collector = exact(memory_limit: 1024 * 1024)
      collector.start!
      kept = []
      below(6_000, prefix: "a_rather_long_name_so_that_strings_take_their_part_") { kept << Object.new }
      data = collector.flush
      stats = collector.stats
      expect(stats[:memory][:total]).to be <= 1024 * 1024
      expect(stats[:memory][:peak]).to be <= 1024 * 1024
      expect(data.dropped_samples.fetch(:memory_limit, 0) + stats[:dropped_samples][:live_limit]).to be_positive
      expect(read(data).comments.join).to match(/dropped samples: .*(memory_limit|live_limit)=\d+/)
      expect(balance(collector).reduce(:-)).to eq 0
      kept.clear
      GC.start
      below(50, prefix: "later") { Object.new }
      later = collector.flush
      collector.stop!
      expect(names(later).grep(/later/).size).to be >= 45
      expect(balance(collector).reduce(:-)).to eq 0
    end

    it "keeps retained right by thinning live samples when they have spent it" do
      estimates = (1..12).map do |seed|
        collector = exact(memory_limit: 1024 * 1024, seed: seed)
        collector.start!
        kept = Array.new(40_000) { Object.new }
        data = collector.flush(gc: true)
        stats = collector.stats
        collector.stop!
        expect(stats[:memory][:peak]).to be <= 1024 * 1024
        expect(stats[:live_thinnings]).to be >= 1
        expect(stats[:dropped_samples][:live_limit]).to eq 0
        expect(balance(collector).reduce(:-)).to eq 0
        expect(kept.size).to eq 40_000
        dropped = data.dropped_samples.values.sum # whole, and known
        total(samples_of(data, "Object"), "retained_objects") + dropped
      end
      # One run has about 10,000 samples of one in 4: a standard error of 0.9 %, the mean of 12 of 0.25 %.
      expect(estimates.sum / 12.0).to be_within(0.0125 * 40_000).of(40_000)
    end

    it "bounds what ObjectSpace.memsize_of tells of the collector" do
      require "objspace"
      collector = exact(memory_limit: 2 * 1024 * 1024)
      collector.start!
      kept = Array.new(30_000) { Object.new }
      size = ObjectSpace.memsize_of(collector)
      total = collector.stats[:memory][:total]
      collector.stop!
      expect(size).to be_between(total * 0.8, 2.2 * 1024 * 1024)
      expect(kept.size).to eq 30_000
    end

    it "is split among the tables that stats shows" do
      collector = exact
      collector.start!
      below(300) { Object.new }
      memory = collector.stats[:memory]
      collector.stop!
      tables = memory.slice(:strings, :functions, :locations, :stacks, :rows, :live, :pending, :caches)
      expect(tables.values).to all(be_positive)
      expect(memory[:total]).to be_between(tables.values.sum, tables.values.sum * 1.05 + 4096)
      expect(memory[:limit]).to eq 64 * 1024 * 1024
    end
  end

  describe "max_stack_depth" do
    def deep(n, &block) = n.zero? ? block.call : deep(n - 1, &block)

    it "keeps the innermost frames, below (truncated)" do
      collector = exact(max_stack_depth: 5)
      data = collector.profile { deep(40) { Object.new } }
      stack = samples_in(data, "(truncated)", "Object").first.stack
      expect(stack.size).to eq 6
      expect(stack.last.name).to eq "(truncated)"
      expect(stack[0].name).to match(/new/)
      expect(stack[3].name).to end_with("deep")
    end

    it "leaves a stack of just that depth whole" do
      collector = exact(max_stack_depth: 10_000)
      whole = samples_of(collector.profile { deep(40) { Object.new } }, "Object").first
      expect(whole.stack.map(&:name)).not_to include("(truncated)")
      depth = whole.stack.size
      same = read(exact(max_stack_depth: depth).profile { deep(40) { Object.new } })
      cut = read(exact(max_stack_depth: depth - 1).profile { deep(40) { Object.new } })
      expect(same.samples.flat_map { |sample| sample.stack.map(&:name) }).not_to include("(truncated)")
      expect(cut.samples.flat_map { |sample| sample.stack.map(&:name) }).to include("(truncated)")
    end

    it "takes stacks of thousands of frames" do
      output = run_child(<<~'RUBY')
        collector = exact(max_stack_depth: 10_000)
        def deep(n) = n.zero? ? Object.new : deep(n - 1)
        data = collector.profile { deep(3_000) }
        $stdout.write [data.dropped_samples, data.pprof_data.bytesize.positive?].inspect
      RUBY
      expect(output).to eq "[{}, true]"
    end
  end

  describe "the pending buffer" do
    it "holds one call that makes 200,000 objects" do
      collector = exact
      text = "a " * 200_000
      data = collector.profile { text.split(" ") }
      expect(data.dropped_samples).to eq({})
      expect(sum_in(data, "String#split", "String")).to be >= 200_000
    end

    it "counts what is too much for it" do
      collector = exact
      text = "a " * 300_000
      data = collector.profile { text.split(" ") }
      expect(data.dropped_samples[:pending_full]).to be_between(37_000, 38_500)
      expect(read(data).total("allocations")).to be >= 300_000
      expect(balance(collector).reduce(:-)).to eq 0
    end
  end

  describe "max_heap_samples" do
    it "keeps retained right by letting every second sample go at double weight" do
      estimates = (1..12).map do |seed|
        collector = exact(max_heap_samples: 200, seed: seed)
        collector.start!
        kept = Array.new(3_000) { Object.new }
        data = collector.flush(gc: true)
        stats = collector.stats
        collector.stop!
        expect(stats[:live_samples]).to be <= 200
        expect(stats[:live_thinning]).to be <= 1.0 / 16
        expect(read(data).comments.join).to include("live thinning")
        expect(kept.size).to eq 3_000
        total(samples_of(data, "Object"), "retained_objects")
      end
      # One run has about 100 to 200 samples: a standard error of at most 10 %, the mean of 12 of 3 %.
      expect(estimates.sum / 12.0).to be_within(0.12 * 3_000).of(3_000)
    end
  end

  describe "of one collector" do
    it "is not another's: a burst that it drops from is whole elsewhere" do
      small, large = exact(memory_limit: 1024 * 1024), exact
      [small, large].each(&:start!)
      kept = []
      below(6_000) { kept << Object.new }
      [small, large].each(&:stop!)
      expect(small.stats[:dropped_samples].values.sum).to be_positive
      expect(large.stats[:dropped_samples].values.sum).to eq 0
      expect([small, large].map { |collector| balance(collector).reduce(:-) }).to eq [0, 0]
      expect(kept.size).to eq 6_000
    end

    it "does not bound a flush, which tells what it took and takes at most 4 MiB of scratch" do
      collector = exact
      collector.start!
      kept = []
      below(10_000) { kept << Object.new }
      collector.flush
      memory = collector.stats[:memory]
      collector.stop!
      expect(memory[:last_scratch]).to be_between(1, 4 * 1024 * 1024)
      expect(memory[:last_snapshot]).to be > 10_000 * 16
      expect(kept.size).to eq 10_000
    end
  end

  it "of the pending buffer keep what waits alive, and no longer" do
    output = run_child(<<~'RUBY')
      collector = exact
      collector.start!
      numbers = Array.new(150_000, 2**70)
      GC.start
      collections = GC.count
      numbers.sum # makes an Integer for each, which is garbage before the next safe point
      collections = GC.count - collections
      data = collector.flush(gc: true)
      collector.stop!
      dropped = data.dropped_samples.values.sum
      $stdout.binmode.write([collections, data.heap_samples_count, dropped].pack("Q3"), data.pprof_data)
    RUBY
    collections, live, dropped = output.b.unpack("Q3")
    sums = samples_in(ProfileReader.read(output.b.byteslice(24..)), "Array#sum")
    expect(collections).to be_positive
    expect(dropped).to eq 0 # no two of them were at one address
    expect(sums.map { |sample| sample.labels["class"] }).to eq %w[Integer]
    expect(sums.sum { |sample| sample.values["allocations"] }).to be_between(149_990, 150_000)
    expect(live).to be < 1_000
  end
end

Collecting::BACK_ENDS.each do |liveness|
  RSpec.describe "limits (liveness: #{liveness})" do
    include_examples "limits", liveness
  end
end
