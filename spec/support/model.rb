# frozen_string_literal: true

# A model of the Ruby API and random programs that are run against both:
#   program     what a seed gives: steps, of which some hold others
#   operations  what a step may be, and what the model makes of it
#   waiting     for threads and processes, wherever a step is made
#   sites       methods that allocate known amounts
#   expected    what is known of a collector and its run
#   checks      what it says, compared with that
#   world       where a program runs: collectors, objects, readings
#   statistics  what chance may do, in one program and in many
#   nursery     runs programs in processes of their own
#   shrinker    the shortest part that still fails
#   campaign    many programs, and the report
%w[waiting sites program statistics expected checks operations world nursery shrinker campaign].each do |part|
  require_relative "model/#{part}"
end
