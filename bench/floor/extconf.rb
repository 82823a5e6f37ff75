# frozen_string_literal: true

# For the benchmarks alone: never packaged. support/floor.rb builds it under tmp/.

require "mkmf"

append_cflags(%w[-std=gnu11 -O3])
create_makefile("memprofiler_floor")
