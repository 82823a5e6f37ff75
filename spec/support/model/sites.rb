# frozen_string_literal: true

module Model
  Pair = Struct.new(:first, :second)

  # Methods that allocate a known number of objects of a known class, and an Array around them. A profile shows each as
  # "Model::Sites.name".
  module Sites
    TEXT = "a string"
    BIG = 2**70
    FLOAT = 1e300
    BODIES = {
      objects: ["Object", "Object.new"],
      strings: ["String", "TEXT.dup"],
      buffers: ["String", "TEXT * 400"],
      arrays: ["Array", "[i, 2, 3]"],
      hashes: ["Hash", "{ i => 2 }"],
      pairs: ["Model::Pair", "Pair.new(i, 2)"],
      integers: ["Integer", "BIG + i"],
      floats: ["Float", "FLOAT * (i + 1)"],
      ranges: ["Range", "Range.new(i, 2)"],
      procs: ["Proc", "proc { i }"],
      mutexes: ["Thread::Mutex", "Thread::Mutex.new"],
      exceptions: ["RuntimeError", "RuntimeError.allocate"]
    }.freeze
    NAMES = BODIES.keys.freeze
    FRAMES = NAMES.to_h { |name| ["Model::Sites.#{name}", name] }.freeze

    # Defines the method anew: what an earlier definition was compiled to becomes garbage.
    def self.define(name)
      $VERBOSE, was = nil, $VERBOSE
      module_eval("def self.#{name}(n) = Array.new(n) { |i| #{BODIES.fetch(name).last} }", __FILE__, 1)
    ensure
      $VERBOSE = was
    end

    # @return [Hash{Array(Symbol, String)=>Integer}] what a call that makes n objects allocates, by site and class
    def self.counts(name, n)
      { [name, BODIES.fetch(name).first] => n }.merge([name, "Array"] => 1) { |_, objects, one| objects + one }
    end

    def self.classes(name) = [BODIES.fetch(name).first, "Array"]

    NAMES.each { |name| define(name) }
  end

  # Objects that one call of a site has made and that are still held; what of them is kept is known exactly.
  class Batch
    # @return [Array<Run>] the runs that saw them allocated
    attr_reader :runs

    # @return [Range] the numbers of collections between which they were allocated
    attr_reader :born

    def initialize(site, objects, runs, born)
      @site = site
      @objects = objects
      @runs = runs
      @born = born
    end

    # @return [Hash{Array(Symbol, String)=>Integer}]
    def counts = Sites.counts(@site, @objects.size)

    def release(share)
      (@objects.size * share).ceil.times { @objects.pop } # pop(n) would share the memory
    end

    # Strings grow; they stay the objects that they are.
    def grow(bytes)
      @objects.each { |object| object << ("x" * bytes) if String === object }
    end

    # @return [Integer] bytes of the objects of that key
    def size(key)
      klass = key.last
      own = klass == "Array" ? ObjectSpace.memsize_of(@objects) : 0
      own + (klass == Sites::BODIES.fetch(@site).first ? @objects.sum { |object| ObjectSpace.memsize_of(object) } : 0)
    end
  end
end
