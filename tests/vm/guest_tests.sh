#!/bin/bash
# The tests of mounts that make sense on a kernel without passthrough, in an emulated machine that is slow.
#   guest_tests.sh TOP
set -uo pipefail
programs=$1/build/release/tests
export PREFIXFS_TEST_PASSTHROUGH=absent
failed=0

run() { # PROGRAM FILTER
  "$programs/$1" --gtest_brief=1 --gtest_filter="$2" || failed=1
}

echo "kernel $(uname -r)"
run mount/mount_version_test '*'
run mount/mount_posix_test '-*HoweverQuickly*:*5000Names*:*EmptiedWhile*'
run mount/mount_direct_test '*xfs4096*:*ext44096*'
run mount/mount_visibility_test '-*UnderLoad*:*Never*'
run mount/mount_crash_test '*AWriterThatWasOpen*:*RemovedIndex*'
run engine/engine_test '*Engine.*/vllm:*Engine.*/lmcache_gds_mmap:*EngineDirect.*/nixl*'
exit $failed
