# frozen_string_literal: true

require "json"

RSpec.describe "the format of a profile" do
  let(:collector) { exact }

  def program
    rows = (1..50).map { |i| { "id" => i, "text" => "x" * i } }
    JSON.parse(JSON.generate(rows)).map { |row| row.to_a.sort_by(&:first) }
  end

  def each_encoding
    %i[memprofiler go].product(%i[label frame off]).each do |sample_types, class_names|
      yield sample_types, class_names, collector.snapshot(sample_types: sample_types, class_names: class_names)
    end
  end

  before do
    collector.start!
    @kept = program
  end

  after { collector.stop! }

  it "keeps every rule of pprof in every way to encode it" do
    each_encoding do |*how, data|
      expect([how, ProfileRules.violations(data.pprof_data)]).to eq [how, []]
    end
  end

  it "is gzip in a frozen binary String" do
    data = collector.flush.pprof_data
    expect([data.encoding, data.frozen?, data[0, 3]]).to eq [Encoding::BINARY, true, "\x1F\x8B\b".b]
  end

  it "has the four values in order, their period type and default" do
    mine = read(collector.snapshot)
    expect(mine.sample_types).to eq [%w[allocations count], %w[allocation_size bytes], %w[retained_objects count],
                                     %w[retained_size bytes]]
    expect([mine.period_type, mine.default_sample_type]).to eq [%w[allocations count], "retained_size"]
    go = read(collector.snapshot(sample_types: :go))
    expect(go.sample_types).to eq [%w[alloc_objects count], %w[alloc_space bytes], %w[inuse_objects count],
                                   %w[inuse_space bytes]]
    expect([go.period_type, go.default_sample_type]).to eq [%w[space bytes], ""]
  end

  it "has the period that the rate means" do
    { 1 => 1, 0.01 => 100, Rational(3, 10) => 3, 0.4 => 3, 0.75 => 1, 1.0e-6 => 1_000_000 }.each do |rate, period|
      expect(read(MemprofilerPprof::Collector.new(sample_rate: rate).flush).period).to eq period
    end
  end

  it "has the times of its interval" do
    data = collector.flush
    profile = read(data)
    expect(profile.started_at).to eq data.started_at
    expect(profile.duration).to be_within(1e-9).of(data.duration)
  end

  it "says in comments what made it" do
    comments = read(collector.flush).comments
    version = "ruby_memprofiler_pprof #{MemprofilerPprof::VERSION}, ruby #{RUBY_VERSION[/\A\d+\.\d+/]}"
    expect(comments).to include(version, "sample rate: 1", "dropped samples: none",
                                match(/\Asamples: \d+ allocated, \d+ live\z/),
                                match(/\Aown memory: \d+ bytes of 67108864/),
                                match(/\Aliveness: free_hook, gc count: \d+/))
  end

  it "has one sample for a stack and a class" do
    keys = read(collector.flush).samples.map { |sample| [sample.stack.map(&:to_a), sample.labels] }
    expect(keys.uniq.size).to eq keys.size
  end

  describe "of classes" do
    let(:counts) do
      collector.stop!
      %i[label frame off].to_h { |mode| [mode, read(collector.snapshot(class_names: mode)).samples] }
    end

    it "has a label, a leaf frame, or nothing: with the same values" do
      by_label = counts[:label].group_by { |sample| sample.labels["class"] }
      by_frame = counts[:frame].group_by { |sample| sample.stack.first.name }
      expect(by_frame.keys).to match_array(by_label.keys)
      by_label.each do |name, samples|
        expect(by_frame[name].map(&:values)).to match_array(samples.map(&:values))
      end
      expect(counts[:frame].flat_map { |sample| sample.labels.keys }).to eq []
      expect(counts[:off].flat_map { |sample| sample.labels.keys }).to eq []
    end

    it "merges what differs in class alone where they are off" do
      merged = counts[:label].group_by { |sample| sample.stack.map(&:to_a) }
      expect(merged.size).to be < counts[:label].size
      expect(counts[:off].size).to eq merged.size
      counts[:off].each do |sample|
        expect(sample.values["allocations"]).to eq total(merged[sample.stack.map(&:to_a)])
      end
    end
  end

  it "has its mapping named after the program, whatever that is called" do
    was = $0
    ["worker", "größe", "broken \xFF", "x" * 5_000, "bytes"].each do |name|
      $0 = name
      data = collector.snapshot
      expect(ProfileRules.violations(data.pprof_data)).to eq []
    end
  ensure
    $0 = was
  end

  it "stays valid where the program's names are the format's own" do
    %w[class count bytes allocations retained_size].each_with_index do |name, i|
      eval("def self.#{name}_#{i} = Object.new", binding, name, 1)
      __send__("#{name}_#{i}")
    end
    each_encoding { |*_, data| expect(ProfileRules.violations(data.pprof_data)).to eq [] }
  end

  describe "with pseudo-frames" do
    it "tells dropped allocations, with their weight and nothing retained" do
      small = exact(memory_limit: 1024**2)
      small.start!
      kept = Array.new(10_000) { |i| eval("Object.new", nil, "file#{i}", i) }
      data = small.flush
      stats = small.stats
      small.stop!
      dropped = samples_in(data, "(dropped)")
      expect(dropped.size).to eq 1
      expect(dropped[0].stack.map(&:name)).to eq ["(dropped)"]
      expect(dropped[0].values["allocations"]).to eq stats[:allocations][:dropped]
      expect(dropped[0].values.values_at("retained_objects", "retained_size")).to eq [0, 0]
      expect(data.dropped_samples).to include(memory_limit: be_positive).or include(row_limit: be_positive)
      expect(read(data).comments).to include(match(/\Adropped samples:( \w+=\d+)+\z/))
      expect(kept.size).to eq 10_000
      expect(ProfileRules.violations(data.pprof_data)).to eq []
    end

    it "tells evicted rows" do
      small = exact(max_allocation_samples: 16)
      small.start!
      100.times { |i| eval("Object.new", nil, "f", i) }
      GC.start
      100.times { |i| eval("Object.new", nil, "f", i) }
      data = small.flush
      small.stop!
      evicted = samples_in(data, "(evicted)")
      expect(evicted.map { |sample| sample.stack.map(&:name) }).to eq [["(evicted)"]]
      expect(read(data).comments).to include(match(/\Aevicted rows: \d+/))
      expect(ProfileRules.violations(data.pprof_data)).to eq []
    end

    it "tells where a stack was cut, at its root" do
      small = exact(max_stack_depth: 4)
      data = small.profile { Array.new(3) { Object.new } }
      names = read(data).samples.map { |sample| sample.stack.map(&:name) }
      expect(names.map(&:last).uniq).to eq ["(truncated)"]
      expect(names.map(&:size).max).to eq 5
      expect(ProfileRules.violations(data.pprof_data)).to eq []
    end
  end

  describe "read by go tool pprof" do
    it "opens with -top, in every encoding, for every value" do
      each_encoding do |sample_types, class_names, data|
        read(data).sample_types.map(&:first).each do |type|
          next unless class_names == :label || type.end_with?("s")

          text = GoPprof.run(data.pprof_data, "-top", "-sample_index=#{type}")
          expect(text).to include("flat%"), [sample_types, type].inspect
        end
      end
    end

    it "opens with -traces and -tagfocus, and shows the value by default that should be" do
      data = collector.snapshot
      traces = GoPprof.run(data.pprof_data, "-traces")
      expect(traces).to include("Type: retained_size").and match(/^ *class:.*String/)
      focused = GoPprof.run(data.pprof_data, "-top", "-sample_index=allocations", "-tagfocus=class=String")
      expected = total(samples_of(data, "String"))
      shown = focused[/accounting for (\d+)/, 1].to_i
      expect(shown).to be_between(0.9 * expected, expected) # all but the smallest nodes
    end

    it "merges and diffs profiles" do
      first = collector.snapshot
      @more = program
      second = collector.snapshot
      Tempfile.create("base.pb.gz") do |file|
        file.binmode.write(first.pprof_data)
        file.close
        text = GoPprof.run(second.pprof_data, "-top", "-sample_index=allocations", "-base=#{file.path}")
        difference = read(second).total("allocations") - read(first).total("allocations")
        expect(text[/of (\d+) total/, 1].to_i).to eq difference
      end
    end
  end
end
