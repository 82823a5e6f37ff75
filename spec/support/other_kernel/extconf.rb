# frozen_string_literal: true

# For the specs alone: never packaged.

require "mkmf"

create_makefile("other_kernel")
