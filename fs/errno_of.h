// The one table from Status to errno.
#pragma once

#include <cerrno>

#include "cache/base/status.h"

namespace prefixfs {

inline int ErrnoOf(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return 0;
    case Code::kExists:
      return EEXIST;
    case Code::kNotEmpty:
      return ENOTEMPTY;
    case Code::kNotDirectory:
      return ENOTDIR;
    case Code::kIsDirectory:
      return EISDIR;
    case Code::kStale:
      return ESTALE;
    case Code::kDenied:
      return EPERM;
    case Code::kNoSpace:
      return ENOSPC;
    case Code::kRejected:
      return EAGAIN;
    case Code::kNoMemory:
      return ENOMEM;
    // Not EMFILE: the limit is not the client's own.
    case Code::kNoDescriptors:
      return ENFILE;
    case Code::kInvalid:
      return EINVAL;
    case Code::kUnsupported:
      return EOPNOTSUPP;
    case Code::kTooLong:
      return ENAMETOOLONG;
    case Code::kIo:
      return EIO;
    // Damaged, out of reach and too late are all the same to a client: not here.
    case Code::kNotFound:
    case Code::kCorrupt:
    case Code::kUnavailable:
    case Code::kTimedOut:
      return ENOENT;
  }
  return EIO;
}

// For calls that write or make something: a drive that fails under them is an error, not an
// absence.
inline int ErrnoOfChange(const Status& status) {
  switch (status.code()) {
    case Code::kCorrupt:
    case Code::kUnavailable:
    case Code::kTimedOut:
      return EIO;
    default:
      return ErrnoOf(status);
  }
}

}  // namespace prefixfs
