# frozen_string_literal: true

# A program in which nothing stays: each round makes classes, methods, files, strings, symbols, stacks, threads and fibers
# that were never seen before, and lets go of all but a ring of fixed length. The names of methods and constants alone come
# again, for Ruby keeps those for ever.
class Churn
  KEPT = 1_000
  NAMES = 50

  def initialize(seed)
    @random = Random.new(seed)
    @ring = Array.new(KEPT)
    @at = 0
    @serial = 0
  end

  # @return [void]
  def round
    4.times { classes }
    10.times { code }
    200.times { descend(4 + @random.rand(20)) { keep(Object.new) } }
    200.times { strings }
    2.times { threads }
    10.times { fibers }
  end

  private

  def fresh = @serial += 1

  def keep(object) = @ring[@at = (@at + 1) % KEPT] = object

  # With a name and without, with singleton classes, and with objects that outlive the name.
  def classes
    name = :"Churned#{fresh % NAMES}"
    klass = Object.const_set(name, Class.new(Struct.new(:a, :b)))
    keep(klass.new(1, [fresh]))
    3.times { klass.new(Class.new.new, Module.new) }
    klass.new.singleton_class
    Object.send(:remove_const, name)
    def klass.build = new(2, "built")
    keep(klass.build)
  end

  # Methods, blocks and files.
  def code
    n = fresh
    holder = Module.new
    holder.module_eval(<<~SOURCE, "churned/file_#{n}.rb", n % 10_000)
      def self.method_#{n % NAMES}(&block) = [block.call, "text of #{n}"]
      def self.table_#{n % NAMES} = { n: #{n}.to_s, list: Array.new(3) { Object.new } }
    SOURCE
    keep(holder.public_send(:"method_#{n % NAMES}") { holder.public_send(:"table_#{n % NAMES}") })
    holder.define_singleton_method(:"defined_#{n % NAMES}") { Object.new }
    holder.public_send(:"defined_#{n % NAMES}")
  end

  # One of 2^depth stacks.
  def descend(depth, &block)
    return block.call if depth.zero?

    @random.rand(2).zero? ? left(depth - 1, &block) : right(depth - 1, &block)
  end

  def left(depth, &block) = descend(depth, &block)

  def right(depth, &block) = descend(depth, &block)

  def strings
    text = +"text #{fresh} "
    text << "grows " * @random.rand(200)
    keep(:"symbol #{fresh}")
    keep(text) if @random.rand(4).zero?
    text.split(" ").tally
  end

  def threads
    Array.new(3) { |i| Thread.new { descend(i + 3) { Array.new(20) { |n| n.to_s } } } }.each(&:join)
    Thread.new { sleep }.tap { |thread| Thread.pass until thread.stop? }.kill.join
  end

  # Some are left in the middle.
  def fibers
    Enumerator.new { |list| loop { list << Object.new } }.take(5)
    fiber = Fiber.new { loop { Fiber.yield("#{fresh} from a fiber") } }
    3.times { fiber.resume }
  end
end
