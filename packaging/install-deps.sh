#!/usr/bin/env bash
# Installs what PrefixFS needs to build and test on Debian, and makes sure of a libfuse that is new enough.
#
#   sudo packaging/install-deps.sh [--no-test | --package | --full]
#
# Without an option also what the tests need; --full adds what only `tests/run.sh --full` does. --package is for
# packaging/build.sh: what the build needs, and what makes the package, without the tests.
#
# libfuse >= 3.18.3 is taken from the system if it is there. Otherwise it is built from the distribution's own
# source package (the rolling suite of the mirror this machine already uses) as a static library under
# build/deps/libfuse, so that the binaries also run where the system's libfuse is older. That copy has the patches
# of packaging/patches, without which FUSE over io_uring is not turned on by itself.
#
# Does nothing, within a second and without the network, where everything is there.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
readonly top
readonly prefix=${PREFIXFS_DEPS:-$top/build/deps}/libfuse
readonly patches=$top/packaging/patches
readonly fuse_min=3.18.3
readonly suite=sid

say() { printf 'install-deps: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

build_packages=(
  g++ cmake ninja-build pkg-config meson python3 dpkg-dev patch xz-utils ca-certificates
  liburing-dev libnuma-dev libxxhash-dev liblmdb-dev libspdlog-dev
  libcli11-dev libtomlplusplus-dev libre2-dev nlohmann-json3-dev prometheus-cpp-dev libsystemd-dev
  libgtest-dev libgmock-dev # the quick start's workload program is built among the tests
)
test_packages=(
  libbenchmark-dev xfsprogs e2fsprogs attr fio stress-ng kmod util-linux
  clang lld libclang-rt-14-dev llvm clang-format procps
)
package_packages=(help2man)
full_packages=(
  qemu-system-x86 seabios busybox-static cpio # tests on another kernel
  debootstrap systemd-container man-db groff-base lintian # the package in a system of its own
)

# Prints those of its arguments that are not installed.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | awk '$2 == "installed" { print $1 }') || true
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<<"$installed")
}

install_packages() {
  local want=("${build_packages[@]}") missing
  case ${1:-} in
    --no-test) ;;
    --package) want+=("${package_packages[@]}") ;;
    --full) want+=("${test_packages[@]}" "${package_packages[@]}" "${full_packages[@]}") ;;
    *) want+=("${test_packages[@]}") ;;
  esac
  mapfile -t missing < <(missing_packages "${want[@]}")
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die "run as root to install: ${missing[*]}"
  say "installing ${#missing[@]} packages"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq || say "apt-get update reported errors; going on with the lists at hand"
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    die "these packages could not be installed: ${missing[*]}"
}

have_libfuse() { # [directory for PKG_CONFIG_PATH; without it the system's own]
  PKG_CONFIG_PATH=${1:-} pkg-config --atleast-version="$fuse_min" fuse3 2>/dev/null
}

# Whether our own copy is there, with the patches as they are now.
have_own_libfuse() {
  have_libfuse "$prefix/lib/pkgconfig" && [ "$(cat "$prefix/PATCHES" 2>/dev/null)" = "$(patches_digest)" ]
}

patches_digest() { cat "$patches"/*.patch | sha256sum; }

# Prints the mirror that the machine itself uses for its Debian suite.
debian_mirror() {
  # shellcheck disable=SC2016 # a template of apt's, no variable
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' | awk 'NR == 1'
}

# Unpacks the distribution's source package of libfuse into $1/src, with apt lists and keys of its own, so that
# nothing of the machine's configuration changes.
fetch_libfuse() {
  local work=$1 uri keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  uri=$(debian_mirror)
  [ -n "$uri" ] || die "no Debian package source is configured: install libfuse >= $fuse_min yourself"
  mkdir -p "$work/lists/partial" "$work/cache" "$work/src"
  printf 'deb-src [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite" >"$work/sources.list"
  local apt=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o "Dir::Etc::sourceparts=/dev/null"
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=root"
    -o "APT::Get::List-Cleanup=0")
  apt-get "${apt[@]}" update || die "the source lists of $suite could not be fetched"
  (cd "$work/src" && apt-get "${apt[@]}" source fuse3 >/dev/null) ||
    die "the source package fuse3 could not be fetched"
}

build_libfuse() {
  local work src
  work=$(mktemp -d)
  # shellcheck disable=SC2064 # the directory of now, also when a failure ends the script
  trap "rm -rf '$work'" EXIT
  say "building libfuse from the $suite source package"
  fetch_libfuse "$work"
  src=$(find "$work/src" -mindepth 1 -maxdepth 1 -type d | awk 'NR == 1')
  [ -n "$src" ] || die "the source package fuse3 holds no directory"
  cat "$patches"/*.patch | patch -p1 -d "$src" >"$work/log" || {
    tail -n 30 "$work/log" >&2
    die "a patch of $patches does not fit the source of libfuse"
  }
  # The example first: the .pc file, which says that all is there, comes with the installation.
  { meson setup "$work/build" "$src" --prefix "$prefix" --libdir lib --buildtype release \
    -Ddefault_library=static -Dexamples=true -Dtests=false -Dutils=false -Denable-io-uring=true &&
    ninja -C "$work/build" &&
    install -D -m 755 "$work/build/example/passthrough_hp" "$prefix/bin/passthrough_hp" &&
    ninja -C "$work/build" install; } >"$work/log" 2>&1 || {
    tail -n 30 "$work/log" >&2
    die "libfuse did not build"
  }
  have_libfuse "$prefix/lib/pkgconfig" || die "the libfuse that was built is older than $fuse_min"
  patches_digest >"$prefix/PATCHES"
}

case ${1:-} in
  '' | --no-test | --package | --full) ;;
  *) die "usage: install-deps.sh [--no-test | --package | --full]" ;;
esac
command -v dpkg-query >/dev/null || die "this script knows Debian only; README.md lists what is needed elsewhere"

install_packages "$@"
if have_libfuse; then
  say "libfuse $(pkg-config --modversion fuse3) of the system is new enough"
elif have_own_libfuse; then
  say "libfuse $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --modversion fuse3) is in $prefix"
else
  build_libfuse
  say "libfuse $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --modversion fuse3) is now in $prefix"
fi
