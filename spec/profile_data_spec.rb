# frozen_string_literal: true

require "etc"
require "fileutils"
require "pathname"
require "tmpdir"

RSpec.describe MemprofilerPprof::ProfileData do
  # As a flush makes them.
  def make(**changes)
    values = { pprof_data: "\x1F\x8B profile".b, allocation_samples_count: 3, heap_samples_count: 2,
               dropped_samples: { memory_limit: 1 }, evicted_rows_count: 0, started_at: Time.at(0), duration: 1.5,
               sample_rate: 0.1, live_thinning: 1.0, **changes }
    described_class.allocate.tap do |data|
      values.each { |name, value| data.instance_variable_set("@#{name}", value.freeze) }
    end.freeze
  end

  let(:data) { make }

  around { |example| Dir.mktmpdir { |folder| Dir.chdir(folder) { example.run } } }

  def files = Dir.children(".").sort

  it "refuses an estimate of what is none, or of what nothing is known of" do
    raw = exact(raw_counts: true).profile { Object.new }
    expect { raw.estimate(/x/) }.to raise_error(MemprofilerPprof::StateError, /raw_counts/)
    [exact(liveness: :none).profile { Object.new }, exact(liveness: :none).flush].each do |blind|
      [nil, "retained_size", :retained_objects].each do |type|
        expect { blind.estimate(/x/, type: type) }.to raise_error(ArgumentError, /type must be .*, not "ret.*liveness: :none/)
      end
      expect(blind.estimate(/no such/, type: :allocations).value).to eq 0
    end
  end

  it "refuses a pattern that no name can be matched against" do
    data = exact.profile { MemprofilerPprof::Collector.instance_method(:stats) && eval("def größe = Object.new; größe", binding) }
    expect { data.estimate(/\xff/n) }.to raise_error(ArgumentError, /pattern must match UTF-8/)
    expect(data.estimate(/größe/, type: :allocations).value).to eq 1
  end

  it "is frozen to the bottom, and may be shared between Ractors" do
    data = exact.profile { Object.new }
    expect(data).to be_frozen
    expect([data.pprof_data, data.dropped_samples, data.started_at]).to all(be_frozen)
    expect(Ractor.shareable?(data)).to be true
  end

  it "shows its counts, not its bytes" do
    expect(data.inspect).to match(/3 allocation samples, 2 heap samples, 10 bytes/)
  end

  it "comes from a flush as documented" do
    before = Time.now
    collector = MemprofilerPprof::Collector.new(sample_rate: 1.0)
    kept = nil
    data = collector.profile { kept = Array.new(50) { Object.new } }
    expect(data.pprof_data.encoding).to eq Encoding::BINARY
    expect(data.allocation_samples_count).to be >= kept.size
    expect(data.heap_samples_count).to be >= kept.size
    expect(data.dropped_samples).to eq({})
    expect(data.evicted_rows_count).to eq 0
    expect(data.started_at).to be_between(before, Time.now)
    expect(data.duration).to be_a(Float).and be_between(0, Time.now - before)
    expect(data.sample_rate).to eq 1.0
    expect(data).to be_frozen
  end

  describe "#write" do
    it "writes the bytes and returns their number" do
      expect(data.write("a.pb.gz")).to eq 10
      expect(File.binread("a.pb.gz")).to eq data.pprof_data
      expect(files).to eq ["a.pb.gz"]
    end

    it "takes what has a to_path, and a path from the root" do
      data.write(Pathname("b"))
      data.write(File.expand_path("c"))
      expect(files).to eq %w[b c]
    end

    it "gives a new file the mode that File.write would" do
      old = File.umask(0o027)
      data.write("a")
      expect(File.stat("a").mode & 0o777).to eq 0o640
    ensure
      File.umask(old)
    end

    it "replaces a file as a whole and keeps its mode" do
      File.write("a", "old " * 100)
      File.chmod(0o646, "a")
      inode = File.stat("a").ino
      File.open("a") do |reader|
        data.write("a")
        expect(reader.read).to eq "old " * 100
      end
      expect(File.binread("a")).to eq data.pprof_data
      expect(File.stat("a").mode & 0o777).to eq 0o646
      expect(File.stat("a").ino).not_to eq inode
    end

    it "replaces what a symbolic link names, and leaves the link" do
      Dir.mkdir("there")
      File.write("there/old", "old")
      File.symlink("there/old", "link")
      File.symlink("there/new", "dangling")
      data.write("link")
      data.write("dangling")
      expect(File.readlink("link")).to eq "there/old"
      expect(File.binread("there/old")).to eq data.pprof_data
      expect(File.binread("there/new")).to eq data.pprof_data
      expect(Dir.children("there").sort).to eq %w[new old]
    end

    it "writes into a device or a pipe as it is" do
      File.mkfifo("pipe")
      reader = Thread.new { File.binread("pipe") }
      data.write("pipe")
      expect(reader.value).to eq data.pprof_data
      expect(File.pipe?("pipe")).to be true
      expect(data.write("/dev/null")).to eq 10
      expect(File.chardev?("/dev/null")).to be true
    end

    it "writes to what is open already, and leaves the file that it has" do
      File.write("log", "earlier\n")
      program = <<~RUBY
        data = MemprofilerPprof::Collector.new(sample_rate: 1).profile { Object.new }
        print "printed\\n"
        data.write("/dev/stdout")
        data.write("/dev/fd/1")
        data.write("/proc/self/fd/1")
        $stderr.write data.pprof_data.bytesize
      RUBY
      folders = $LOAD_PATH.map { |folder| "-I#{folder}" }
      pid = spawn({ "RUBYOPT" => nil }, RbConfig.ruby, "--disable=gems", *folders, "-rruby_memprofiler_pprof", "-e", program,
                  out: ["log", "a"], err: "size")
      Process.wait(pid)
      expect(File.binread("log")[0, 16]).to eq "earlier\nprinted\n"
      profiles = File.binread("log")[16..]
      expect(profiles.bytesize).to eq 3 * File.read("size").to_i
      expect(ProfileRules.violations(profiles[0, profiles.bytesize / 3])).to eq []
      reading = IO.pipe.first
      File.symlink("/dev/fd/#{reading.fileno}", "link")
      ["/dev/fd/999", "/dev/fd/#{1 << 40}", "/proc/#{Process.pid}/fd/#{reading.fileno}", "link"].each do |path|
        expect { data.write(path) }.to raise_error(Errno::EBADF)
      end
      expect(File.symlink?("link")).to be true
    end

    it "raises what a full disk gives" do
      expect { make(pprof_data: "x".b * 100_000).write("/dev/full") }.to raise_error(Errno::ENOSPC)
      expect { data.write("/dev/full") }.to raise_error(Errno::ENOSPC)
      expect(File.chardev?("/dev/full")).to be true
    end

    it "raises for a folder, for a name that cannot be, and leaves no file" do
      Dir.mkdir("folder")
      File.write("file", "old")
      { "folder" => Errno::EISDIR, "." => Errno::EISDIR, "/" => Errno::EISDIR, "missing/x" => Errno::ENOENT,
        "file/x" => Errno::ENOTDIR, "x" * 256 => Errno::ENAMETOOLONG, "" => Errno::ENOENT,
        "a\0b" => ArgumentError, 3 => TypeError, nil => TypeError, $stdout => TypeError }.each do |path, error|
        expect { data.write(path) }.to raise_error(error)
      end
      expect { data.write("missing/x") }.to raise_error(Errno::ENOENT, %r{ missing/x\z})
      expect(files).to eq %w[file folder]
      expect(Dir.children("folder")).to be_empty
      expect(File.read("file")).to eq "old"
    end

    it "writes to a name of the greatest length" do
      data.write("x" * 255)
      expect(files).to eq ["x" * 255]
    end

    it "leaves the old file and no other when a step fails" do
      File.write("a", "old")
      expect(File).to receive(:rename).and_raise(Errno::EIO)
      expect { data.write("a") }.to raise_error(Errno::EIO)
      expect_any_instance_of(File).to receive(:fsync).and_raise(Errno::ENOSPC)
      expect { data.write("a") }.to raise_error(Errno::ENOSPC)
      expect_any_instance_of(File).to receive(:write).and_raise(NoMemoryError)
      expect { data.write("a") }.to raise_error(NoMemoryError)
      expect(files).to eq ["a"]
      expect(File.read("a")).to eq "old"
    end

    it "is done once the file has its name, whatever comes of the folder" do
      [Errno::EMFILE, Errno::EIO, Errno::EACCES].each do |error|
        allow(File).to receive(:open).and_call_original
        allow(File).to receive(:open).with(".", binmode: true).and_raise(error)
        expect(data.write("a")).to eq 10
      end
      expect(files).to eq ["a"]
    end

    it "leaves the old file and no other when the disk is full or a limit met" do
      File.write("a", "old")
      big = make(pprof_data: Random.bytes(200_000))
      _, status = Process.wait2(fork do
        trap("XFSZ", "IGNORE")
        Process.setrlimit(Process::RLIMIT_FSIZE, 100_000)
        big.write("a")
        exit!(1)
      rescue Errno::EFBIG
        exit!(0)
      end)
      expect(status.exitstatus).to eq 0
      expect(files).to eq ["a"]
      expect(File.read("a")).to eq "old"
    end

    # Root may write anywhere, so these run as another user, with the rights of nobody.
    def as_nobody
      _, status = Process.wait2(fork do
        if Process.uid.zero?
          Process::Sys.setgid(Etc.getpwnam("nobody").gid)
          Process::Sys.setuid(Etc.getpwnam("nobody").uid)
        end
        yield
        exit!(1)
      rescue Errno::EACCES
        exit!(0)
      end)
      status.exitstatus
    end

    it "raises where the folder or the file is not writable" do
      FileUtils.chmod(0o555, ".")
      File.write("a", "old") if Process.uid.zero?
      expect(as_nobody { data.write("new") }).to eq 0
      expect(as_nobody { data.write("a") }).to eq 0 if Process.uid.zero?
      FileUtils.chmod(0o777, ".")
      File.write("read_only", "old")
      File.chmod(0o444, "read_only")
      expect(as_nobody { data.write("read_only") }).to eq 0
      expect(File.read("read_only")).to eq "old"
      expect(files - %w[a read_only]).to be_empty
    end
  end
end
