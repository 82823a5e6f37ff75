# encoding: UTF-8
# frozen_string_literal: true

require_relative "estimator"

module MemprofilerPprof
  # A profile, encoded: what {Collector#flush}, {Collector#snapshot} and {Collector#profile} give. It is frozen, holds
  # nothing of the collector and no native memory.
  class ProfileData
    # @return [String] the profile: a gzip'd Profile message of pprof, binary, frozen
    attr_reader :pprof_data

    # @return [Integer] sampled allocations that the profile counts (samples, not scaled up)
    attr_reader :allocation_samples_count

    # @return [Integer] sampled objects that it counts as retained (samples, not scaled up)
    attr_reader :heap_samples_count

    # @return [Hash{Symbol=>Integer}] samples dropped in the interval, by reason; frozen, empty where none was
    attr_reader :dropped_samples

    # @return [Integer] rows (stack, class, labels) folded into +(evicted)+ since the collector's start
    attr_reader :evicted_rows_count

    # @return [Time] start of the interval that the profile covers
    attr_reader :started_at

    # @return [Float] length of that interval in seconds
    attr_reader :duration

    # @return [Float] probability with which an allocation was sampled
    attr_reader :sample_rate

    private_class_method :new # a flush makes them, and sets the above

    # Writes the profile to a file, whole or not at all: it goes to a new file in the same folder, which takes the name
    # once it is on disk. A file that had the name keeps its permissions, and on any error stays as it was; of a symbolic
    # link, the file that it names is replaced. A device, a pipe, and what is open already (+/dev/stdout+, +/dev/fd/3+) is
    # written to as it is. Where the folder is not ours to write to, or other names of the file are to stay names of it, write
    # {#pprof_data}.
    #
    # @param path [String, #to_path] the file's name, by custom ending in +.pb.gz+
    # @return [Integer] bytes written
    # @raise [SystemCallError] as the system call that failed has it: Errno::ENOENT, Errno::EACCES, Errno::ENOSPC,
    #   Errno::EISDIR …
    # @raise [TypeError, ArgumentError] if path is not a path
    # @example
    #   collector.flush.write("heap.pb.gz")
    def write(path)
      raise TypeError, "path must be a path, not #{path.inspect}" if IO === path && !(File === path) # named "<STDOUT>"

      path = File.path(path)
      descriptor = descriptor_of(path)
      return write_open(descriptor, path) if descriptor

      mode = nil
      begin
        File.open(path, File::WRONLY, binmode: true) do |file|
          return file.write(pprof_data).tap { file.flush } unless file.stat.file?

          mode = file.stat.mode & 0o777
        end
      rescue Errno::ENOENT
        nil # a new file
      end
      replace(File.symlink?(path) ? File.realdirpath(path) : path, mode)
      pprof_data.bytesize
    end

    # How much the stacks with a matching frame have of a value, and how well that is known: retained bytes, unless another
    # type is asked for. What was dropped is not in it. Where nothing was sampled there may still be as much as the interval
    # says.
    #
    # @param pattern [Regexp] matched against the names of functions
    # @param type [String, Symbol, nil] one of the profile's sample types, such as +"retained_size"+ or +"alloc_space"+;
    #   nil: the last, retained bytes
    # @return [Estimate]
    # @raise [TypeError] if pattern is not a Regexp
    # @raise [ArgumentError] if the profile has no such type, or nothing is known of it: of what is retained with
    #   +liveness: :none+
    # @raise [StateError] with +raw_counts+, where nothing is an estimate of the whole
    # @example
    #   collector.flush.estimate(/Product#to_json/).to_s # => "3.1 MB (2.7 – 3.5)"
    def estimate(pattern, type: nil)
      raise TypeError, "pattern must be a Regexp, not #{pattern.inspect}" unless Regexp === pattern

      raise StateError, "there is no estimate of anything where raw_counts is true" if @raw_counts

      Estimator.new(self, @live_thinning, @spread).estimate(pattern, type)
    rescue Encoding::CompatibilityError
      raise ArgumentError, "pattern must match UTF-8, not #{pattern.encoding} alone: #{pattern.inspect}"
    end

    # @return [String] the counts, without the profile itself
    def inspect
      "#<#{self.class} #{allocation_samples_count} allocation samples, #{heap_samples_count} heap samples, " \
        "#{pprof_data.bytesize} bytes, from #{started_at} for #{duration.round(3)} s>"
    end

    # Names of what the process has open: links to its file, if it has one, which is not to be replaced.
    OPEN_ALREADY = %r{\A/(?:dev|proc/(?:self|(?<process>\d+)))/(?:fd/(?<number>\d+)|(?<stream>stdout|stderr))\z}
    MOST_LINKS = 40 # as the kernel follows
    private_constant :OPEN_ALREADY, :MOST_LINKS

    private

    # @return [Integer, nil] of what is open already by that name, or by one that a symbolic link leads to
    def descriptor_of(path)
      path = path.b # whatever encoding names are said to have
      MOST_LINKS.times do
        found = OPEN_ALREADY.match(path)
        return found[:number]&.to_i || { "stdout" => 1, "stderr" => 2 }[found[:stream]] if found && ours?(found[:process])
        return unless File.symlink?(path)

        target = File.readlink(path).b
        path = target.start_with?("/") ? target : File.join(File.dirname(path), target)
      end
      nil
    end

    def ours?(process) = process.nil? || process.to_i == Process.pid

    # After what the program has printed there.
    def write_open(descriptor, path)
      [STDOUT, STDERR].each { |stream| stream.flush unless stream.closed? }
      IO.for_fd(descriptor, "wb", autoclose: false).tap { |io| io.sync = true }.write(pprof_data)
    rescue IOError, RangeError, Errno::EINVAL # not open for writing, not open at all
      raise Errno::EBADF, path
    end

    # A new file is created with the mode it will have, so it is never open to more readers than the one it replaces.
    def replace(path, mode)
      folder = File.dirname(path)
      temporary = File.join(folder, ".ruby_memprofiler_pprof-#{Random.urandom(16).unpack1("H*")}.tmp")
      File.open(temporary, File::WRONLY | File::CREAT | File::EXCL, mode || 0o666, binmode: true) do |file|
        file.chmod(mode) if mode
        file.write(pprof_data)
        file.fsync
      end
      File.rename(temporary, path)
      temporary = nil
      sync_folder(folder)
    rescue SystemCallError => e
      raise SystemCallError.new(path, e.errno) # names the file that was asked for
    ensure
      remove(temporary) if temporary
    end

    def remove(temporary)
      File.unlink(temporary)
    rescue Errno::ENOENT # it could not be created
      nil
    end

    # The file is in place, so where a folder cannot be opened (it may be closed to us, or other threads have taken the last
    # descriptor) or synced, that is no failure.
    def sync_folder(folder)
      File.open(folder, binmode: true, &:fsync)
    rescue SystemCallError
      nil
    end
  end
end
