#!/usr/bin/env bash
# Runs tests of the release build on another kernel, in a virtual machine with this machine's files as its root
# (read-only; what is written stays in the guest's memory).
#
#   sudo tests/vm/run.sh [-k PACKAGE] [-m MIB] [-t SECONDS] [-v] [-- COMMAND...]
#
#   -k  a kernel of the distribution, as the metapackage that depends on it (linux-image-amd64, which is 6.1 on
#       Debian 12: FUSE is a module there and has no passthrough)
#   -v  shows the guest's console
# Without COMMAND: the tests of mounts below, which is what the test `vm` of tests/run.sh --full does.
# The kernel is unpacked below build/vm and not installed. Exits with the command's status, 77 if something needed is
# not there, 125 if the guest never finished.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
here=$top/tests/vm
cache=${PREFIXFS_VM_CACHE:-$top/build/vm}
readonly top here cache
meta=linux-image-amd64
memory=5000
timeout=1500
verbose=no
while getopts k:m:t:v option; do
  case $option in
    k) meta=$OPTARG ;;
    m) memory=$OPTARG ;;
    t) timeout=$OPTARG ;;
    v) verbose=yes ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ "${1:-}" != -- ] || shift
[ $# -gt 0 ] || set -- bash "$here/guest_tests.sh" "$top"

skip() {
  printf 'tests/vm: skipped: %s\n' "$*" >&2
  exit 77
}

for tool in qemu-system-x86_64 busybox cpio depmod xz dpkg-deb; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done
[ "$(uname -m)" = x86_64 ] || skip "only for x86_64"

# The newest kernel that `meta` stands for, in $cache/VERSION.
version=$(apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: linux-image-\([0-9].*\)/\1/p' | head -n 1)
[ -n "$version" ] || skip "no kernel package $meta is known"
kernel=$cache/$version
readonly version kernel
if [ ! -e "$kernel/boot/vmlinuz-$version" ]; then
  rm -rf "$cache/new" && mkdir -p "$cache/new/deb"
  (cd "$cache/new/deb" && apt-get download -qq -o APT::Sandbox::User=root "linux-image-$version") ||
    skip "linux-image-$version cannot be fetched"
  dpkg-deb -x "$cache"/new/deb/*.deb "$cache/new/$version"
  rm -rf "$kernel" && mv "$cache/new/$version" "$kernel"
  rm -rf "$cache/new"
fi
modules=$kernel/lib/modules/$version
[ -e "$modules/modules.dep" ] || depmod -b "$kernel" "$version"
# Uncompressed it starts without running a decompressor under emulation.
image=$kernel/boot/vmlinux-$version
[ -e "$image" ] || python3 "$here/extract_vmlinux.py" "$kernel/boot/vmlinuz-$version" "$image"

initrd=$cache/initrd-$version.cpio
if [ ! -e "$initrd" ]; then
  stage=$(mktemp -d)
  mkdir -p "$stage"/{bin,mods,proc,sys,dev,ro,up,new}
  cp "$(command -v busybox)" "$stage/bin/busybox"
  cp "$here/init.sh" "$stage/init"
  for module in virtio_pci 9pnet_virtio 9p overlay; do
    modprobe -d "$kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
  done | awk '!seen[$0]++' | while read -r file; do
    name=$(basename "${file%.xz}")
    case $file in
      *.xz) xz -dc "$file" >"$stage/mods/$name" ;;
      *) cp "$file" "$stage/mods/$name" ;;
    esac
    echo "$name" >>"$stage/mods/order"
  done
  (cd "$stage" && find . | cpio -o -H newc --quiet) >"$initrd.new"
  mv "$initrd.new" "$initrd"
  rm -rf "$stage"
fi

# What goes into the guest and comes out of it.
control=$(mktemp -d)
machine=
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null || true; rm -rf "$control"' EXIT
trap 'exit 143' TERM INT
printf '%q ' "$@" >"$control/command"
printf '%s' "$top" >"$control/top"
cp "$here/guest.sh" "$control/guest.sh"
: >"$control/output"

share() { # TAG PATH [OPTION]
  disks+=(-fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap${3:+,$3}"
    -device "virtio-9p-pci,fsdev=$1,mount_tag=$1")
}
disks=()
share root / readonly=on
share modules "$kernel/lib/modules" readonly=on
share control "$control"
timeout -k 5 "$timeout" qemu-system-x86_64 -accel tcg,thread=multi,tb-size=512 -cpu max -M q35 -m "$memory" -smp 2 \
  -nographic -no-reboot -nodefaults -serial stdio -kernel "$image" -initrd "$initrd" \
  -append "console=ttyS0 quiet loglevel=4 panic=-1 rdinit=/init mitigations=off no_timer_check audit=0 apparmor=0" \
  "${disks[@]}" </dev/null >"$control/console" 2>&1 &
machine=$!
tail -n +1 -f --pid="$machine" "$control/output" &
tail=$!
wait "$machine" || true
machine=
sleep 0.3
kill "$tail" 2>/dev/null || true
[ "$verbose" = no ] || sed 's/^/console: /' "$control/console" >&2
if [ ! -e "$control/status" ]; then
  echo "tests/vm: the guest never finished; the end of its console:" >&2
  tail -n 40 "$control/console" >&2
  exit 125
fi
exit "$(cat "$control/status")"
