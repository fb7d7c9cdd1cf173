#!/usr/bin/env bash
# From a clean clone to a working mount: installs what the build needs, builds, mounts, writes and reads a few
# hundred KV blocks the way inference engines do, and shows how that compares with the disk below.
#
#   sudo packaging/quickstart.sh [--once] [MOUNT]
#
# MOUNT defaults to /mnt/prefixfs. The blocks live in /var/lib/prefixfs/nvme, or in $PREFIXFS_NVME: a directory on
# XFS or ext4. The mount is left up; with --once it is unmounted again. Running it once more does no harm.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
readonly top
readonly build=$top/build/release
readonly tool=$build/tools/prefixfs
readonly tier=${PREFIXFS_NVME:-/var/lib/prefixfs/nvme}
readonly gib=$((1 << 30))
readonly clients=(vllm sglang lmcache-fs) sizes=(2097152 8388608 1124352)

step() { printf '\n==> %s\n' "$*"; }
die() {
  printf 'quickstart: %s\n' "$*" >&2
  exit 1
}
in_gib() { awk -v bytes="$1" 'BEGIN { printf "%.1f GiB", bytes / 1073741824 }'; }
least() { printf '%s\n' "$@" | sort -n | awk 'NR == 1'; }

usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; }

once=no
mount=
for argument in "$@"; do
  case $argument in
    --once) once=yes ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) die "unknown option $argument; see --help" ;;
    *)
      [ -z "$mount" ] || die "one MOUNT only; see --help"
      mount=$argument
      ;;
  esac
done
mount=$(realpath -m "${mount:-/mnt/prefixfs}")
readonly once mount

check_machine() {
  [ "$(id -u)" = 0 ] || die "run as root (sudo): it installs packages and mounts a filesystem"
  [ -e /dev/fuse ] || modprobe fuse 2>/dev/null || true
  [ -e /dev/fuse ] || die "/dev/fuse is missing: the kernel module fuse is not there, or this container may not use it"
  mkdir -p "$tier"
  local type
  type=$(findmnt -n -o FSTYPE -T "$tier")
  case $type in
    xfs | ext4) ;;
    *) die "$tier is on $type: the tier needs XFS or ext4; name such a directory in PREFIXFS_NVME" ;;
  esac
}

build_release() {
  local log=$build/quickstart.log
  mkdir -p "$build"
  (cd "$top" && cmake --preset release) >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    die "configuring failed; all of it is in $log"
  }
  cmake --build "$build" --target prefixfs prefixfsd engine_replay || die "the build failed"
}

free_bytes() { df -B1 --output=avail "$tier" | awk 'NR == 2'; }
tier_bytes() { du -s -B1 "$tier" | awk '{ print $1 }'; }

mounted_type() { findmnt -n -o FSTYPE -M "$mount" 2>/dev/null || true; }
alive() { timeout 10 "$tool" stat --json "$mount" >/dev/null 2>&1; }

# A quarter of what is free (and of what the tier has already), 64 GiB at most.
mount_it() {
  case $(mounted_type) in
    '') ;;
    fuse.prefixfs)
      if alive; then
        echo "$mount is mounted already"
        return
      fi
      echo "$mount is mounted but does not answer: mounting it anew"
      "$tool" umount --force "$mount"
      ;;
    *) die "$mount is a mount of another kind ($(mounted_type))" ;;
  esac
  local room capacity
  room=$(($(free_bytes) + $(tier_bytes)))
  capacity=$(least $((room / 4)) $((64 * gib)))
  [ "$capacity" -ge $((2 * gib)) ] ||
    die "$tier has $(in_gib "$room") to spare; 8 GiB are the least. Name a larger place in PREFIXFS_NVME"
  mkdir -p "$mount"
  "$tool" mount --nvme "$tier" --capacity "$capacity" "$mount"
  echo "$mount is mounted: $(in_gib "$capacity") in $tier"
}

# How many blocks of each size a client writes: a hundred, or as many as take a sixteenth of what is free.
block_count() {
  local size total=0 count
  for size in "${sizes[@]}"; do total=$((total + size)); done
  count=$(($(free_bytes) / 16 / total / ${#clients[@]}))
  [ "$count" -ge 8 ] || die "too little space is free behind $tier"
  least "$count" 100
}

# replay CLIENT SIZE BLOCKS DIRECTORY [ARGUMENT...]: prints engine_replay's JSON, shows its progress bar.
replay() {
  "$build/tests/engine/engine_replay" --client "$1" --size "$2" --blocks "$3" --dir "$4" --verify --json "${@:5}" ||
    die "writing and reading as $1 failed"
}

# One row of the table from the JSON of two runs: the mount first, then the disk first. The better figure of each is
# shown, because whoever comes first pays for finding memory.
row() {
  python3 -c '
import json, sys
first, second = (json.loads(text) for text in sys.argv[1:])
best = [{key: max(a[key], b[key]) for key in ("write_mib_s", "read_mib_s")}
        for a, b in zip(first["results"], reversed(second["results"]))]
print("{:11} {:>9} {:>7} {:>9.0f} {:>8.0f} {:>9.0f} {:>8.0f}".format(
    first["client"], first["bytes"], first["blocks"], *(side["write_mib_s"] for side in best),
    *(side["read_mib_s"] for side in best)))' "$1" "$2"
}

compare_with_disk() {
  local beside=$1 count client size first second
  count=$(block_count)
  rm -rf "$mount"/engine-replay-*
  printf '%-11s %9s %7s %18s %18s\n' '' '' '' 'write MiB/s' 'read MiB/s'
  printf '%-11s %9s %7s %9s %8s %9s %8s\n' client bytes blocks PrefixFS disk PrefixFS disk
  for client in "${clients[@]}"; do
    for size in "${sizes[@]}"; do
      first=$(replay "$client" "$size" "$count" "$mount" --compare "$beside" --keep)
      rm -rf "${beside:?}"/engine-replay-*
      second=$(replay "$client" "$size" "$count" "$beside" --compare "$mount")
      row "$first" "$second"
      sync -f "$tier"
    done
  done
  echo "Every byte was compared. The better of two runs each; both sides have the page cache."
}

# A directory on the tier's filesystem: beside the tier, or in it if it is a mount point of its own.
make_beside() {
  local above
  above=$(dirname "$(realpath "$tier")")
  [ "$(stat -c %d "$above")" = "$(stat -c %d "$tier")" ] || above=$tier
  mktemp -d "$above/quickstart.XXXXXX"
}

finish() {
  local status=$?
  [ -z "${beside:-}" ] || rm -rf "$beside"
  if [ "$once" = yes ] && [ "$(mounted_type)" = fuse.prefixfs ]; then
    "$tool" umount "$mount" || status=1
  fi
  exit "$status"
}

beside=
check_machine
step "1/5 Dependencies"
"$top/packaging/install-deps.sh" --no-test
step "2/5 Building"
build_release
trap finish EXIT
trap 'exit 130' INT TERM
step "3/5 Mounting"
mount_it
step "4/5 KV blocks through the mount, and the same on the disk below it"
beside=$(make_beside)
compare_with_disk "$beside"
step "5/5 What the mount says of itself: prefixfs stat $mount"
"$tool" stat "$mount"

echo
if [ "$once" = yes ]; then
  echo "Unmounting $mount; the blocks stay in $tier for the next mount."
else
  echo "PrefixFS is up: point an engine's KV offload at $mount (README.md says how)."
  echo "Unmount with: $tool umount $mount"
fi
