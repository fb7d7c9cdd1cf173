#!/usr/bin/env bash
# Prints how the cost of each operation, memory and start grow from a thousand to a million blocks.
#
#   sudo tests/bench/scale.sh [--sizes 1000,10000] [--layout flat] [--no-build] [--help]
#
# Builds what it needs of the preset release, then hands over to scale.py, which knows all options. With a million
# blocks in both layouts it takes about half an hour and 10 GiB of memory.
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
  cmake --build "$top/build/release" --target scale_io prefixfs prefixfsd >&2
fi
exec python3 "$top/tests/bench/scale.py" "$@"
