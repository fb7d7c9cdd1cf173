// fusectl: ends a FUSE connection from outside (kernel documentation, filesystems/fuse.rst).
#pragma once

#include <utility>

#include "cache/base/fd.h"
#include "cache/base/status.h"
#include "tools/mounts.h"

namespace prefixfs {

// The connection behind one mount, whatever becomes of the mount. It has to be taken while the
// mount is there: the kernel gives its device number, by which fusectl knows it, to the next mount
// of the machine as soon as it is gone.
class FuseConnection {
 public:
  // Mounts fusectl if that has not been done. kNotFound if the mount has gone.
  static Result<FuseConnection> Of(const Mount& mount);

  // Every call that waits for its daemon fails with ENOTCONN or ECONNABORTED. Nothing happens if
  // the connection has ended.
  Status Abort() const;

 private:
  explicit FuseConnection(Fd abort) : abort_(std::move(abort)) {}
  Fd abort_;
};

}  // namespace prefixfs
