#!/usr/bin/env bash
# Builds PrefixFS in every way that is supported and runs its tests.
#
#   sudo tests/run.sh [--full]
#
# In this order, so that the summary of the main test run comes last:
#   clang     compiled, with the thread-safety analysis; not run
#   fuzz      the fuzzers of tests/fuzz, a few seconds each
#   asan      AddressSanitizer and UBSan: labels unit and stress
#   tsan      ThreadSanitizer: labels unit and stress
#   release   gcc: everything but label full
# --full adds label full of release (many more rounds, with PREFIXFS_FULL=1), two minutes for each fuzzer, and a tally
# at the end. Logs and results are in build/NAME/Testing. Exits with non-zero if anything failed, in whichever part.
set -uo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
readonly top
jobs=$(nproc)
readonly jobs

full=no
case ${1:-} in
  '') ;;
  --full) full=yes ;;
  *)
    echo "usage: tests/run.sh [--full]" >&2
    exit 2
    ;;
esac
readonly full
failures=()

say() { printf '\n==> %s\n' "$*"; }
die() {
  printf 'tests/run.sh: %s\n' "$*" >&2
  exit 1
}

check_machine() {
  [ "$(id -u)" = 0 ] || die "run as root (sudo): the tests mount filesystems"
  # A modprobe that fails is no verdict: the check after it is.
  [ -e /dev/fuse ] || modprobe fuse 2>/dev/null || true
  [ -e /dev/fuse ] || die "/dev/fuse is missing: load the kernel module fuse, or give the container the device"
  losetup --find >/dev/null 2>&1 || modprobe loop 2>/dev/null || true
  losetup --find >/dev/null 2>&1 || die "no loop device is to be had: load the kernel module loop, or give the container /dev/loop*"
}

# What earlier runs left behind is told, not removed: it may belong to a run that goes on.
report_strays() {
  local strays
  strays=$(
    findmnt -rno TARGET,SOURCE 2>/dev/null | grep prefixfs-test- | sed 's/^/  mount /'
    losetup --list --noheadings --output NAME,BACK-FILE | grep prefixfs-test- | sed 's/^/  loop device /'
  )
  [ -z "$strays" ] || printf 'Left behind by another run of the tests, or in use by it:\n%s\n' "$strays"
}

failed() {
  failures+=("$1")
  printf 'FAILED: %s\n' "$1" >&2
}

configure() {
  local preset=$1 log=$top/build/$1/Testing/configure.log
  mkdir -p "$(dirname "$log")"
  (cd "$top" && cmake --preset "$preset") >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    failed "configure $preset"
    return 1
  }
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  cmake --build "$top/build/$preset" -j "$jobs" ${1:+--target "$@"} || {
    failed "build $preset"
    return 1
  }
}

# ThreadSanitizer of gcc 12 cannot start where address spaces are laid out with more than 28 random bits.
with_fit_addresses() { # PRESET COMMAND [ARGUMENT...]
  local preset=$1
  shift
  if [ "$preset" = tsan ] && [ "$(sysctl -n vm.mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ]; then
    setarch -R "$@"
  else
    "$@"
  fi
}

# run_ctest PRESET NAME [CTEST ARGUMENT...]: results in build/PRESET/Testing/NAME.xml
run_ctest() {
  local preset=$1 name=$2
  shift 2
  with_fit_addresses "$preset" ctest --test-dir "$top/build/$preset" --output-on-failure --no-tests=error \
    --test-output-size-passed 1048576 --output-junit "Testing/$name.xml" --parallel "$jobs" "$@" ||
    failed "tests of $preset ($name)"
}

# The programs that the labels unit and stress need: all but the other tests against mounts, which take long to build.
sanitized_targets() {
  ninja -C "$top/build/$1" -t targets all |
    sed -n 's/^\([^:]*\): CXX_EXECUTABLE_LINKER__.*/\1/p' |
    grep -Ev '^tests/(mount|engine|posix)/' || true # none left is an answer too
  echo mount_stress_test
}

sanitizer() {
  local preset=$1 targets
  say "$preset"
  configure "$preset" || return
  mapfile -t targets < <(sanitized_targets "$preset")
  build "$preset" "${targets[@]}" || return
  run_ctest "$preset" unit -L '^unit$'
  run_ctest "$preset" stress -L '^stress$'
}

fuzzers() {
  say fuzz
  configure fuzz || return
  if [ "$full" = yes ]; then
    build fuzz all_fuzzers && PREFIXFS_FULL=1 run_ctest fuzz fuzz -L '^fuzz'
  else
    build fuzz fuzzers && run_ctest fuzz fuzz -L '^fuzz$'
  fi
}

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}

started=$SECONDS
check_machine
extra=()
[ "$full" = no ] || extra=(--full)
"$top/packaging/install-deps.sh" "${extra[@]}" || die "the dependencies are not there"
report_strays
rm -f "$top"/build/*/Testing/*.xml

say clang
configure clang && build clang
fuzzers
sanitizer asan
sanitizer tsan
say release
if configure release && build release; then
  run_ctest release all -LE '^full$'
  [ "$full" = no ] || PREFIXFS_FULL=1 run_ctest release full -L '^full$'
fi

[ "$full" = no ] || python3 "$top/tests/tally.py" "$top" $((SECONDS - started)) || failed "the tally"
if [ ${#failures[@]} -gt 0 ]; then
  printf '\nFailed: '
  printf '%s; ' "${failures[@]}"
  printf '\n'
  exit 1
fi
