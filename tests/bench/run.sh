#!/usr/bin/env bash
# Prints tables, side by side from one run.
#
#   sudo tests/bench/run.sh [--rounds N] [--set KEY=VALUE]... [--no-build] [--help]
#   sudo tests/bench/run.sh verify [--rounds N] [--no-build] [--help]
#   sudo tests/bench/run.sh scale [--sizes 1000,10000] [--layout flat] [--no-build] [--help]
#
# The first: native XFS, libfuse's passthrough_hp and PrefixFS (bench.py). The second: what comparing blocks with their
# checksums costs (verify.py). The third: how the cost of each operation, memory and start grow from a thousand to a
# million blocks (scale.py); with a million in both layouts it takes about half an hour and 10 GiB of memory. Builds
# what that needs of the preset release; the programs know all options.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
readonly top

what=bench
case ${1:-} in
  scale | verify)
    what=$1
    shift
    ;;
esac
readonly what

build=yes
for argument in "$@"; do
  case $argument in
    --no-build | --help | -h) build=no ;;
  esac
done

if [ "$build" = yes ]; then
  "$top/packaging/install-deps.sh"
  (cd "$top" && cmake --preset release >/dev/null)
  programs=(prefixfs prefixfsd)
  [ "$what" = verify ] || programs+=("${what}_io")
  cmake --build "$top/build/release" --target "${programs[@]}" >&2
fi
exec python3 "$top/tests/bench/$what.py" "$@"
