# frozen_string_literal: true

# Sums up a profile on a page: by function and by class, beside the VM's own counter, and what it cost.
class Report
  WIDTH = 110
  ROWS = 8

  # @param profile [MemprofilerPprof::ProfileReader::Profile]
  # @param stats [Hash] Collector#stats at the end of the run
  # @param vm_allocated [Integer] growth of GC.stat(:total_allocated_objects) over the run
  # @param seconds [Float] CPU seconds of the run
  # @param seconds_without [Array<Float>] of runs without the profiler
  def initialize(profile, stats, vm_allocated:, seconds:, seconds_without:)
    @profile = profile
    @stats = stats
    @vm_allocated = vm_allocated
    @seconds = seconds
    @seconds_without = seconds_without
  end

  def print
    functions("Who allocates", "allocation_size")
    functions("Who allocated what is still alive", "retained_size")
    classes("What is still alive, by class")
    totals
    dropped
    cost
  end

  private

  def heading(text)
    puts "", text, "-" * text.length
  end

  def functions(title, type)
    total = @profile.total(type)
    flat = Hash.new(0)
    cumulative = Hash.new(0)
    @profile.samples.each do |sample|
      bytes = sample.values[type]
      names = sample.stack.map { |frame| [frame.name, frame.file] }
      flat[names.first] += bytes
      names.uniq.each { |name| cumulative[name] += bytes }
    end
    heading "#{title}: #{bytes(total)}"
    puts "      flat          cumulative         function"
    flat.max_by(ROWS) { |_, bytes| bytes }.each do |function, bytes|
      puts "#{amount(bytes, total)}  #{amount(cumulative[function], total)}  #{place(*function)[0, WIDTH - 40]}"
    end
    callers = cumulative.select { |(_, file), bytes| file.end_with?(".rb") && bytes < total / 2 }
    puts "on the way: " + callers.max_by(3) { |_, bytes| bytes }.map { |(name, _), bytes|
      "#{name} #{percent(bytes, total)}"
    }.join(", ")
  end

  def place(name, file)
    return name unless file.end_with?(".rb") # a C function has none

    "#{name} (#{File.basename(file)})"
  end

  def classes(title)
    total = @profile.total("retained_size")
    by_class = @profile.samples.group_by { |sample| sample.labels.fetch("class", "(unknown)") }.map do |name, samples|
      %w[retained_objects retained_size].map { |type| samples.sum { |sample| sample.values[type] } }.push(name)
    end
    heading title
    puts "           bytes          objects   class"
    by_class.max_by(ROWS) { |_, bytes| bytes }.each do |objects, bytes, name|
      puts "#{amount(bytes, total)}  #{number(objects).rjust(12)}   #{name}"
    end
  end

  def totals
    heading "Against the VM's own count"
    parts = @stats[:allocations]
    lines = {
      "objects that the profile counts, scaled up" => parts[:counted],
      "dropped" => parts[:dropped],
      "the VM's own (instruction sequences, environments and such)" => parts[:internal],
      "the profiler's own" => parts[:own],
      "of other threads and Ractors" => parts[:other_thread] + parts[:other_ractor] + parts[:unseen]
    }
    sum = lines.values.sum
    lines.each { |text, count| puts "#{number(count).rjust(12)}  #{text}" }
    puts "#{number(sum).rjust(12)}  together"
    puts "#{number(@vm_allocated).rjust(12)}  GC.stat(:total_allocated_objects): the profile is off by " \
         "#{percent(sum - @vm_allocated, @vm_allocated, 2)}"
  end

  def dropped
    drops = @stats[:dropped_samples].select { |_, count| count.positive? }
    heading "Dropped"
    puts drops.empty? ? "nothing" : drops.map { |reason, count| "#{number(count)} samples: #{reason}" }
    puts "#{number(@stats[:evicted_rows])} rows folded for want of room" if @stats[:evicted_rows].positive?
  end

  def cost
    heading "What profiling cost"
    time = @stats[:time]
    memory = @stats[:memory]
    without = @seconds_without.sum / @seconds_without.size
    puts format("%.2f s of CPU time: %+.1f %% over runs without the profiler (%s s)", @seconds,
                100.0 * (@seconds - without) / without,
                @seconds_without.map { |seconds| seconds.round(2) }.join(" and "))
    puts format("measured: %.2f s in the hook for %s samples, %.2f s at safe points, %.2f s in the flush",
                time[:hook], number(@stats[:samples]), time[:jobs], time[:flush])
    puts "#{bytes(memory[:peak])} of memory at most, now #{bytes(memory[:total])}:"
    puts "  " + %i[live stacks rows locations functions strings caches pending].map { |table|
      "#{table} #{bytes(memory[table])}"
    }.join(", ")
  end

  def amount(value, total)
    "#{bytes(value).rjust(10)} #{percent(value, total).rjust(7)}"
  end

  def percent(part, whole, digits = 1)
    whole.zero? ? "-" : format("%.#{digits}f %%", 100.0 * part / whole)
  end

  def number(value)
    value.to_s.gsub(/(\d)(?=(\d{3})+\z)/, '\1,')
  end

  def bytes(value)
    return "#{value} B" if value < 1_000

    unit = value < 1_000_000 ? ["kB", 1e3] : ["MB", 1e6]
    format("%.1f %s", value / unit[1], unit[0])
  end
end
