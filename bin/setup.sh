# Sourced by the commands beside it, after `set -euo pipefail`: brings what is missing of Debian's packages and of the
# gems, and says so. What is there already costs a moment.
#
# GOOGLE_PROTOBUF_VERSION: everything with that version of google-protobuf, in a bundle of its own.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
cd "$root"

# Another bundle may be active around us.
unset RUBYOPT RUBYLIB GEM_PATH BUNDLE_BIN_PATH BUNDLER_SETUP BUNDLER_ORIG_RUBYOPT
export BUNDLE_PATH=$root/vendor/bundle # Bundler adds the Ruby's version
export BUNDLE_GEMFILE=$root/Gemfile
export BUNDLE_SILENCE_ROOT_WARNING=1
export LC_ALL=C.UTF-8

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

fuzzing_works() {
  echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -fsanitize=fuzzer,address -x c - -o /dev/null
}

# Whether what a Debian package is needed for is here, however it came.
present() {
  case $1 in
    ruby) command -v ruby ;;
    ruby-dev) ruby -rrbconfig -e 'exit File.exist?(File.join(RbConfig::CONFIG["rubyhdrdir"], "ruby.h"))' ;;
    bundler) command -v bundle ;;
    build-essential) command -v gcc && command -v make && echo '#include <stdio.h>' | gcc -E - ;;
    zlib1g-dev) echo '#include <zlib.h>' | gcc -E - ;;
    clang) command -v clang ;;
    libclang-rt-dev) fuzzing_works ;;
    pkg-config) command -v pkg-config ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    valgrind) command -v valgrind && echo '#include <valgrind/callgrind.h>' | gcc -E - ;;
    golang-go) command -v go && go tool -n pprof ;;
    *) die "no test for the package $1" ;;
  esac >/dev/null 2>&1
}

# Installs those of the Debian packages that are missing.
need_packages() {
  local package missing=() as_root=()
  for package in "$@"; do present "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null ||
    die "Missing: ${missing[*]} (Debian's names). There is no apt-get here: install them in this system's way."
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      die "Missing: ${missing[*]}. Neither root nor sudo here: have an administrator run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "Installing Debian packages: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update >/dev/null || say "apt-get update failed: going on with the lists there are"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
  for package in "${missing[@]}"; do
    present "$package" || die "$package is installed, but what it is needed for does not work"
  done
}

# Installs the gems of the Gemfile into vendor/bundle, and makes this shell use them.
need_gems() {
  if [ -n "${GOOGLE_PROTOBUF_VERSION:-}" ]; then
    export BUNDLE_GEMFILE=$root/build/bundle-protobuf-$GOOGLE_PROTOBUF_VERSION/Gemfile
    mkdir -p "${BUNDLE_GEMFILE%/*}"
    printf 'eval_gemfile "%s/Gemfile"\n' "$root" >"$BUNDLE_GEMFILE"
  fi
  # So that `bundle exec` in this folder finds them too.
  [ -e .bundle/config ] || BUNDLE_GEMFILE=$root/Gemfile bundle config set --local path vendor/bundle
  bundle check >/dev/null 2>&1 && return
  say "Installing gems into ${BUNDLE_PATH#"$root/"}"
  bundle install --quiet --jobs 2 || die "bundle install failed"
}
