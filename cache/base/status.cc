#include "cache/base/status.h"

#include <cerrno>
#include <cstring>

namespace prefixfs {
namespace {

Code CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return Code::kNotFound;
    case EEXIST:
      return Code::kExists;
    case ENOTEMPTY:
      return Code::kNotEmpty;
    case ENOTDIR:
      return Code::kNotDirectory;
    case EISDIR:
      return Code::kIsDirectory;
    case ESTALE:
      return Code::kStale;
    case EPERM:
    case EACCES:
      return Code::kDenied;
    case ENOSPC:
    case EDQUOT:
      return Code::kNoSpace;
    case EAGAIN:
    case EBUSY:
      return Code::kRejected;
    case ENOMEM:
      return Code::kNoMemory;
    case EMFILE:
    case ENFILE:
      return Code::kNoDescriptors;
    case EROFS:
    case ENODEV:
    case ENXIO:
    case ENOTCONN:
    case ECONNABORTED:  // a FUSE mount whose daemon has gone, over io_uring
    case ECANCELED:     // and a request that was under way then
      return Code::kUnavailable;
    case ETIMEDOUT:
      return Code::kTimedOut;
    case EINVAL:
      return Code::kInvalid;
    case EOPNOTSUPP:
    case ENOSYS:
    case ENOTTY:
      return Code::kUnsupported;
    case ENAMETOOLONG:
    case ERANGE:
    case EFBIG:
      return Code::kTooLong;
    default:
      return Code::kIo;
  }
}

}  // namespace

Status Status::FromErrno(int error, std::string_view what) {
  std::string message(what);
  message += ": ";
  message += std::strerror(error);
  return Status(CodeOf(error), std::move(message));
}

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kNotFound:
      return "not found";
    case Code::kExists:
      return "exists";
    case Code::kNotEmpty:
      return "not empty";
    case Code::kNotDirectory:
      return "not a directory";
    case Code::kIsDirectory:
      return "is a directory";
    case Code::kStale:
      return "stale";
    case Code::kDenied:
      return "denied";
    case Code::kNoSpace:
      return "no space";
    case Code::kRejected:
      return "rejected";
    case Code::kNoMemory:
      return "no memory";
    case Code::kNoDescriptors:
      return "no descriptors";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kTimedOut:
      return "timed out";
    case Code::kInvalid:
      return "invalid";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kTooLong:
      return "too long";
    case Code::kIo:
      return "input/output error";
  }
  return "unknown";
}

std::string Status::ToString() const {
  std::string text(CodeName(code_));
  if (!message_.empty()) text += ": " + message_;
  return text;
}

}  // namespace prefixfs
