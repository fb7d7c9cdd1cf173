#!/usr/bin/env bash
# The package, in a clean system of the same Debian: made, installed with its dependencies, used from the installed
# files, and removed again. Then the same system is booted in a container, where systemd runs the service.
#
#   sudo tests/packaging/install_test.sh [BUILD]
#
# Exits with 77 if something needed is not there. Everything is mounted in a namespace of this script, so nothing of it
# outlives the script. Where no container can be booted the service is not run, and the last line says so.
set -euo pipefail

[ -n "${PREFIXFS_TEST_NAMESPACE:-}" ] ||
  exec env PREFIXFS_TEST_NAMESPACE=1 unshare --mount --propagation private "$0" "$@"

top=$(cd "$(dirname "$0")/../.." && pwd)
readonly top
readonly build=${1:-$top/build/release}
readonly point=/mnt/kv
readonly tools=(debootstrap help2man mkfs.xfs man lintian systemd-nspawn)

say() { printf 'packaging: %s\n' "$*"; }
fail() {
  printf 'packaging: FAILED: %s\n' "$*" >&2
  exit 1
}
skip() {
  printf 'packaging: skipped: %s\n' "$*" >&2
  exit 77
}
# await SECONDS COMMAND...: until it succeeds.
await() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.2
  done
}
gone() { ! kill -0 "$1" 2>/dev/null; }

[ "$(id -u)" = 0 ] || skip "not root"
for tool in "${tools[@]}"; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done

work=$(mktemp -d /tmp/prefixfs-test-package.XXXXXX)
readonly work root=$work/root drive=$work/drive
daemon=   # the foreground process of the chroot
machine=  # systemd-nspawn
init=     # the container's init, as it is numbered here
by_hand=  # whether a mount without the service has passthrough

cleanup() {
  local status=$? pid
  trap - EXIT
  for pid in $init $machine $daemon; do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  # The daemon of a mount by mount(8) is nobody's child.
  pid=$(cat "$drive/kv/daemon.pid" 2>/dev/null || true)
  [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
  await 10 umount -R "$root" || ! mountpoint -q "$root" || echo "packaging: $root stays mounted" >&2
  await 10 umount "$drive" || ! mountpoint -q "$drive" || echo "packaging: $drive stays mounted" >&2
  rm -rf --one-file-system "$work"
  rmdir "/run/systemd/nspawn/propagate/prefixfs-test-$$" 2>/dev/null || true
  exit "$status"
}
trap cleanup EXIT
trap 'exit 143' TERM INT

# From the mirror that this machine has its own packages from.
make_root() {
  local site codename
  # shellcheck disable=SC2016 # a template of apt's, no variable
  site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' | awk 'NR == 1')
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  [ -n "$site" ] || skip "no Debian package source is configured"
  mkdir "$root"
  mount --bind "$root" "$root"
  debootstrap --variant=minbase --include=systemd,dbus --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
    "$codename" "$root" "$site" >"$work/debootstrap.log" 2>&1 || {
    tail -n 20 "$work/debootstrap.log" >&2
    fail "debootstrap"
  }
}

make_drive() {
  truncate -s 1G "$work/drive.img"
  mkfs.xfs -q "$work/drive.img"
  mkdir "$drive"
  mount -o loop "$work/drive.img" "$drive"
}

# A command in the system that was made: in the container if it is up, in a chroot otherwise.
inside() {
  if [ -n "$init" ]; then
    nsenter --target "$init" --all -- "$@"
  else
    chroot "$root" "$@"
  fi
}

enter_chroot() {
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mkdir -p "$root/nvme"
  mount --bind "$drive" "$root/nvme"
}
leave_chroot() {
  umount "$root/nvme"
  umount -R --lazy "$root/proc" "$root/sys" "$root/dev" # what apt has started may still be at its end
}

install_package() {
  local before after start
  cp "$work/$package" "$root/$package"
  inside apt-get update -qq >"$work/apt.log" 2>&1 || fail "apt-get update: $(tail -n 5 "$work/apt.log")"
  # Without what it depends on it must not be installed.
  ! inside dpkg -i "/$package" >/dev/null 2>&1 || fail "the package asks for no library of a clean system"
  inside dpkg --purge prefixfs >/dev/null 2>&1
  before=$(inside dpkg-query -f '.' -W)
  start=$(date +%s.%N)
  inside env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "/$package" \
    >"$work/apt.log" 2>&1 || fail "apt-get install: $(tail -n 20 "$work/apt.log")"
  after=$(inside dpkg-query -f '.' -W)
  say "installed in $(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }') s," \
    "$((${#after} - ${#before})) packages in all; $package has $(stat -c %s "$root/$package") bytes"
}

check_files() {
  local page text keys
  for page in "$root"/usr/share/man/man[18]/*prefixfs*; do
    text=$(man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null)
    [ -z "$text" ] || fail "$page: $text"
    text=$(MANWIDTH=100 man -l "$page" | col -b)
    grep -q '^SYNOPSIS' <<<"$text" || fail "$page has no synopsis"
  done
  [ -e "$root/usr/share/man/man8/prefixfs-mount.8.gz" ] || fail "there is no page of prefixfs mount"
  grep -q -- --stop-wait <<<"$(MANWIDTH=100 man -l "$root/usr/share/man/man8/prefixfs-mount.8.gz")" ||
    fail "the page of prefixfs mount lacks an option"
  # What the example says are defaults is a configuration that holds, and has every key.
  sed -e 's/^#\([a-z_]* = \)/\1/' -e 's|^nvme = .*|nvme = "/nvme/kv"|' "$root/etc/prefixfs/prefixfs.toml" \
    >"$root/tmp/all.toml"
  inside mount.prefixfs -f /tmp/all.toml "$point" || fail "the example holds a default that is refused"
  rm "$root/tmp/all.toml"
  keys=$(inside prefixfs mount --help | sed -n '/^Configuration keys/,/^Sizes take/p' | grep -c '^  [a-z]')
  [ "$(grep -c -E '^#[a-z_]+ = |^# [a-z]+: ' "$root/etc/prefixfs/prefixfs.toml")" = "$keys" ] ||
    fail "the example does not have the $keys keys that there are"
  inside systemd-analyze verify --man=no prefixfs@kv.service >"$work/verify" 2>&1 || fail "the unit: $(cat "$work/verify")"
  [ ! -s "$work/verify" ] || fail "the unit: $(cat "$work/verify")"
}

write_configuration() {
  sed -e 's|^#nvme = .*|nvme = ["/nvme/kv"]|' -e 's|^#capacity = .*|capacity = "400M"|' \
    -e 's|^#min_free = .*|min_free = "272M"|' "$root/etc/prefixfs/prefixfs.toml" >"$root/etc/prefixfs/kv.toml"
}

answers() { inside prefixfs stat "$point"; }
mounted() { inside findmnt -n -M "$point"; }
passthrough() { inside prefixfs stat --json "$point" | grep -o '"passthrough": *[a-z]*'; }
same_block() { inside cmp /root/block "$point/vllm/block.bin"; }
# Written as engines do: under another name, then renamed.
write_block() {
  inside dd if=/dev/urandom of=/root/block bs=1M count=4 status=none
  inside mkdir -p "$point/vllm"
  inside cp /root/block "$point/vllm/block.tmp"
  inside mv "$point/vllm/block.tmp" "$point/vllm/block.bin"
  same_block || fail "what was written is not what is read"
}

main_job() {
  local status=0
  mkdir -p "$root$point"
  setsid chroot "$root" prefixfs mount --foreground -c /etc/prefixfs/kv.toml "$point" </dev/null 2>"$work/log" &
  daemon=$!
  await 30 answers || fail "the mount does not answer: $(cat "$work/log")"
  [ "$(readlink "/proc/$daemon/exe")" = "$root/usr/sbin/prefixfsd" ] || fail "the daemon is not the installed one"
  write_block
  by_hand=$(passthrough)
  [ -n "$by_hand" ] || fail "prefixfs stat"
  kill -TERM "$daemon"
  await 30 gone "$daemon" || fail "SIGTERM does not end it: $(cat "$work/log")"
  wait "$daemon" || status=$?
  daemon=
  [ "$status" = 0 ] || fail "after SIGTERM it exits with $status: $(cat "$work/log")"
  ! mounted >/dev/null || fail "after SIGTERM it is still mounted"
  say "mounted in the foreground, a block written and read, unmounted by SIGTERM"
  inside mount -t prefixfs /etc/prefixfs/kv.toml "$point" || fail "mount -t prefixfs"
  same_block || fail "the block is not there after another mount"
  inside prefixfs umount "$point" || fail "prefixfs umount"
  say "mounted by mount(8), the block read, unmounted by prefixfs umount"
}

# Boots the root. False where that cannot be done.
boot() {
  systemd-nspawn --boot --directory="$root" --machine="prefixfs-test-$$" --register=no --keep-unit --console=pipe \
    --capability=all --bind=/dev/fuse --bind="$drive:/nvme" </dev/null >"$work/console" 2>&1 &
  machine=$!
  await 10 pgrep -P "$machine" || return 1
  init=$(pgrep -P "$machine")
  await 60 booted || return 1
}
booted() { case $(inside systemctl is-system-running 2>/dev/null) in running | degraded) ;; *) return 1 ;; esac }

property() { inside systemctl show -P "$1" prefixfs@kv; }
stop_service() {
  inside systemctl stop prefixfs@kv || fail "systemctl stop"
  ! mounted >/dev/null || fail "systemctl stop leaves the mount behind"
  [ "$(property Result)" = success ] || fail "after systemctl stop the service has failed: $(property Result)"
}
restarted() { [ "$(property NRestarts)" = 1 ] && [ "$(property ActiveState)" = active ]; }

service_job() {
  local holder
  inside rmdir "$point"
  inside systemctl enable --now --quiet prefixfs@kv || fail "systemctl start: $(inside journalctl -u prefixfs@kv --no-pager)"
  # Type=notify: no waiting, it answers now.
  same_block || fail "the block is not there when the service has started"
  [ "$(passthrough)" = "$by_hand" ] || fail "the data path as a service differs from that by hand"
  [ "$(property StatusText)" = "serving $point from /nvme/kv" ] || fail "its status: $(property StatusText)"
  write_block
  stop_service
  inside systemctl start prefixfs@kv || fail "systemctl start"
  same_block || fail "the block is not there after a restart"

  inside systemctl kill --signal=KILL prefixfs@kv
  await 30 restarted || fail "a daemon that died is not started again: $(property ActiveState)"
  same_block || fail "the block is not there after the daemon died"

  inside sh -c "exec sleep 1000 <$point/vllm/block.bin" &
  holder=$!
  sleep 0.5
  stop_service
  kill "$holder" 2>/dev/null || true
  wait "$holder" 2>/dev/null || true
  inside journalctl -u prefixfs@kv --no-pager | grep -q 'still in use' || fail "the holder of an open file is not in the journal"

  echo MOUNT_POINT=/srv/cache >"$root/etc/prefixfs/kv.env"
  inside systemctl start prefixfs@kv || fail "systemctl start with another mount point"
  inside findmnt -n -M /srv/cache >/dev/null || fail "MOUNT_POINT does not say where"
  say "the service: started, a block written, stopped, killed and started again, stopped with an open file"
}

# Also with the service up, if there is one.
remove_package() {
  local left expected=etc/prefixfs/kv.toml
  inside apt-get remove -y -qq prefixfs >"$work/apt.log" 2>&1 || fail "apt-get remove: $(tail -n 20 "$work/apt.log")"
  [ -z "$(inside findmnt -n -t fuse.prefixfs)" ] || fail "the package is removed and still mounted"
  [ -e "$root/etc/prefixfs/prefixfs.toml" ] || fail "removal without purge took the configuration"
  inside apt-get purge -y -qq prefixfs >"$work/apt.log" 2>&1 || fail "apt-get purge: $(tail -n 20 "$work/apt.log")"
  [ -z "$init" ] || expected="etc/prefixfs/kv.env $expected"
  rm "$root/$package"
  left=$(cd "$root" && find . -xdev -iname '*prefixfs*' ! -path './proc/*' ! -path './etc/prefixfs' ! -path './var/lib/systemd/*' \
    ! -path './var/log/*' ! -path './run/*' ! -path './dev/*' | sort)
  [ -z "$left" ] || fail "what purge leaves behind: $left"
  left=$(cd "$root" && find etc/prefixfs -type f | sort | tr '\n' ' ')
  [ "$left" = "$expected " ] || fail "of the operator's configuration is left: $left"
  [ "$(find "$drive/kv/blocks" -type f | wc -l)" -ge 1 ] || fail "the data is gone"
  say "removed and purged: left are the operator's configuration and the data"
}

package=$(basename "$("$top/packaging/build.sh" --build "$build" --no-build --out "$work")")
readonly package
lintian --allow-root --fail-on error,warning "$work/$package" || fail "lintian"
make_root
make_drive
enter_chroot
install_package
check_files
write_configuration
main_job
leave_chroot
if boot; then
  service_job
  remove_package
  inside systemctl poweroff --force --force 2>/dev/null || true # at once: nothing of it is kept
  await 30 gone "$machine" || fail "the container does not end"
  wait "$machine" || true
  init='' machine=''
  say "passed"
else
  tail -n 20 "$work/console" >&2
  [ -z "$init" ] || kill -KILL "$init" 2>/dev/null || true
  kill -KILL "$machine" 2>/dev/null || true
  init='' machine=''
  enter_chroot
  remove_package
  say "passed, but the service was not run: no container can be booted here"
fi
