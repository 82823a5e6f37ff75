# frozen_string_literal: true

require_relative "../../rakelib/small_extension"

# What the floor is measured with:
#   MemprofilerFloor.install(walk_every, job, deaths)  walk_every 0: no walk; job, deaths: whether with them
#   MemprofilerFloor.remove
#   MemprofilerFloor.last_depth                        frames of the last walk
require SmallExtension.build(File.expand_path("../memprofiler_floor", __dir__))
