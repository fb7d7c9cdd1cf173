#!/usr/bin/env bash
# Prints one table, side by side from one run: native XFS, libfuse's passthrough_hp and PrefixFS.
#
#   sudo tests/bench/run.sh [--rounds N] [--set KEY=VALUE]... [--no-build] [--help]
#
# Builds what it needs of the preset release, then hands over to bench.py, which knows all options.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
readonly top

build=yes
for argument in "$@"; do
  case $argument in
    --no-build | --help | -h) build=no ;;
  esac
done

if [ "$build" = yes ]; then
  "$top/packaging/install-deps.sh"
  (cd "$top" && cmake --preset release >/dev/null)
  cmake --build "$top/build/release" --target bench_io prefixfs prefixfsd >&2
fi
exec python3 "$top/tests/bench/bench.py" "$@"
