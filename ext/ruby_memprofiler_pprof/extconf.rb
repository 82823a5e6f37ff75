# frozen_string_literal: true

# Builds the core, the Ruby adapter and upb (C source that the gem google-protobuf carries) into one extension.
#
#   CC=clang                        another compiler
#   MPP_WERROR=1                    strict warnings as errors, for our own files
#   MPP_SANITIZE=address,undefined  an instrumented build with assertions, in which allocations can be made to fail

require "mkmf"
require_relative "../../lib/ruby_memprofiler_pprof/version"

EXTENSION = "ruby_memprofiler_pprof_native"
FOLDERS = %w[core vm proto].freeze
PROTOBUF_VERSIONS = [">= 4.28", "< 5"].freeze
UPB_WRAPPER = "proto/upb.c" # includes upb's source, which warns
STRICT_WARNINGS = %w[
  -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wcast-qual -Wwrite-strings -Wvla -Wundef -Wpedantic -Werror
].freeze

# Under `gem install` no gem is loaded, under Bundler none but the bundle's can be found.
def protobuf_folder
  gem = Gem.loaded_specs["google-protobuf"] || Gem::Specification.find_by_name("google-protobuf", *PROTOBUF_VERSIONS)
  folder = File.join(gem.full_gem_path, "ext", "google", "protobuf_c")
  checking_for("upb in google-protobuf #{gem.version}") { File.file?(File.join(folder, "ruby-upb.c")) } or
    abort "google-protobuf #{gem.version} has no C source of upb: install a version #{PROTOBUF_VERSIONS.join(", ")}"
  folder
rescue Gem::MissingSpecError
  abort "google-protobuf (#{PROTOBUF_VERSIONS.join(", ")}) is not installed"
end

sanitizers = ENV["MPP_SANITIZE"].to_s
sanitize = sanitizers.empty? ? "" : "-fsanitize=#{sanitizers} -fno-sanitize-recover=undefined"
[RbConfig::CONFIG, RbConfig::MAKEFILE_CONFIG].each { |config| config["CC"] = ENV["CC"] } if ENV["CC"] # probes, Makefile

(have_header("zlib.h") && have_library("z", "deflateInit2_")) or
  abort "zlib's headers are missing: install zlib1g-dev (Debian), zlib-devel (Fedora) or zlib-dev (Alpine)"
have_library("m", "log1p", "math.h")

# The first four are exported, but no header declares them.
have_func("rb_obj_memsize_of")
have_func("rb_objspace_garbage_object_p")
have_func("rb_objspace_marked_object_p")
have_func("rb_gc_set_pending_interrupt") # and its counterpart
have_func("rb_postponed_job_preregister", "ruby/debug.h")
have_func("getrandom", "sys/random.h")
have_library("rt", "timer_create", "time.h") # a library of its own in older C libraries
have_func("timer_create", "time.h")

upb = protobuf_folder

$warnflags = "" # Ruby's own set; ours is below
$defs << "-DMPP_VERSION=\\\"#{MemprofilerPprof::VERSION}\\\""
append_cflags(%w[-std=gnu11 -fvisibility=hidden -ffunction-sections -fdata-sections])
if sanitize.empty?
  $defs << "-DNDEBUG"
  append_cflags("-O3")
else
  $defs << "-DMPP_CHECK_HOOKS" # see vm/contract.h
  $defs << "-DMPP_FAIL_ALLOCATIONS"
  $CFLAGS << " -O1 -g -fno-omit-frame-pointer #{sanitize}"
  append_cflags("--param=asan-stack=0") # Ruby's longjmp leaves the redzones of the frames that it skips
  $DLDFLAGS << " #{sanitize}"
end
exports = "-Wl,--version-script=%s/exports.map"
$DLDFLAGS << " -Wl,--gc-sections" if try_ldflags("-Wl,--gc-sections")
$DLDFLAGS << " #{exports % "$(srcdir)"}" if try_ldflags(exports % $srcdir)

sources = Dir.glob("{#{FOLDERS.join(",")}}/*.c", base: $srcdir).sort
headers = Dir.glob("{#{FOLDERS.join(",")}}/*.h", base: $srcdir).sort
# Objects are named after folder and file, and each has its own rule: files of the same name do not meet, and with an
# empty VPATH no object is looked for in the source folders.
objects = sources.to_h { |source| [source, "#{source.delete_suffix(".c").tr("/", "-")}.#{$OBJEXT}"] }
$srcs = sources
$objs = objects.values

create_makefile(EXTENSION) do |lines|
  lines << <<~MAKE
    MPP_HEADERS = #{headers.map { |header| "$(srcdir)/#{header}" }.join(" ")}
    MPP_INCLUDES = -I. -I$(srcdir)/core -I$(srcdir)/proto -isystem $(arch_hdrdir) -isystem $(hdrdir)/ruby/backward \\
      -isystem $(hdrdir) -idirafter #{upb} -idirafter #{upb}/third_party/utf8_range
    MPP_WARNINGS = #{STRICT_WARNINGS.join(" ") if ENV["MPP_WERROR"] == "1"}
  MAKE
end

# After mkmf's own rules, for the first target of a makefile is the one that is built.
File.open("Makefile", "a") do |makefile|
  objects.each do |source, object|
    warnings = source == UPB_WRAPPER ? "-w" : "$(MPP_WARNINGS)"
    makefile.puts <<~MAKE

      #{object}: $(srcdir)/#{source} $(MPP_HEADERS) Makefile
      \t$(ECHO) compiling $(<)
      \t$(Q) $(CC) $(MPP_INCLUDES) $(CPPFLAGS) $(CFLAGS) #{warnings} $(COUTFLAG)$@ -c $(CSRCFLAG)$<
    MAKE
  end
  makefile.puts "\nVPATH ="
end
