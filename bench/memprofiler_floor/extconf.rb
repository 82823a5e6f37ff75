# frozen_string_literal: true

# For the benchmarks alone: never packaged. support/floor.rb builds it.

require "mkmf"

append_cflags(%w[-std=gnu11 -O3])
have_func("rb_postponed_job_preregister", "ruby/debug.h")
create_makefile("memprofiler_floor")
