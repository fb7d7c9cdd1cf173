// fusectl: ends a FUSE connection from outside (kernel documentation, filesystems/fuse.rst).
#pragma once

#include "cache/base/status.h"
#include "tools/mounts.h"

namespace prefixfs {

// Aborts the connection of `mount`: every call that waits for its daemon fails with ENOTCONN.
// Mounts fusectl if that has not been done. kNotFound if the connection is gone already.
Status AbortConnection(const Mount& mount);

}  // namespace prefixfs
