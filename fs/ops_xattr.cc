// setxattr, getxattr, listxattr, removexattr
//
// The client's own attributes (user.*) are kept on the backing file; user.prefixfs.* are answers of
// the daemon.
#include <sys/xattr.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "fs/filesystem.h"

namespace prefixfs::ops {
namespace {

constexpr std::string_view kUser = "user.";
constexpr std::string_view kOurs = "user.prefixfs.";

bool IsClients(std::string_view name) {
  return name.starts_with(kUser) && !name.starts_with(kOurs);
}

// xattr calls have errno values of their own, which must reach the client as they are.
template <typename Call>
int OnBackingFile(Filesystem& fs, fuse_ino_t ino, Call call) {
  int error = 0;
  const Status status = fs.cache().WithXattrFd(ino, [&](int fd) {
    error = call(fd) < 0 ? errno : 0;
    return Ok();
  });
  return status.ok() ? error : ErrnoOf(status);
}

void ReplyValue(Request request, size_t size, std::string_view value) {
  if (size == 0) {
    request.With([&](fuse_req_t req) { return fuse_reply_xattr(req, value.size()); });
  } else if (size < value.size()) {
    request.Error(ERANGE);
  } else {
    request.With([&](fuse_req_t req) { return fuse_reply_buf(req, value.data(), value.size()); });
  }
}

// `answer` (Deferred) on a worker: the backing file, or the record of a directory, has to be
// opened.
template <typename Answer>
void DeferXattr(Filesystem& fs, Request request, Answer answer) {
  fs.Defer(std::move(request), Queue::kNames, fs.LateChange(), std::move(answer));
}

// The value of an attribute that the client has set.
void ReplyClients(Filesystem& fs, Deferred& deferred, fuse_ino_t ino, const std::string& name,
                  size_t size) {
  std::vector<char> value(size);
  ssize_t length = 0;
  const int error = OnBackingFile(fs, ino, [&](int fd) {
    length = ::fgetxattr(fd, name.c_str(), size == 0 ? nullptr : value.data(), size);
    return length;
  });
  auto request = deferred.Take();
  if (!request) return;
  if (error != 0) {
    request->Error(error);
  } else if (size == 0) {
    request->With([&](fuse_req_t r) { return fuse_reply_xattr(r, static_cast<size_t>(length)); });
  } else {
    ReplyValue(std::move(*request), size, {value.data(), static_cast<size_t>(length)});
  }
}

void ReplyNames(Filesystem& fs, Deferred& deferred, fuse_ino_t ino, size_t size) {
  std::string names;
  std::vector<char> all(65'536);
  ssize_t length = 0;
  const int error = OnBackingFile(fs, ino, [&](int fd) {
    length = ::flistxattr(fd, all.data(), all.size());
    return length;
  });
  auto request = deferred.Take();
  if (!request) return;
  if (error != 0 && error != EPERM) {  // EPERM: a symlink or the like, which has none
    request->Error(error);
    return;
  }
  for (ssize_t at = 0; error == 0 && at < length;) {
    const std::string_view name(all.data() + at);
    if (IsClients(name)) names.append(name).push_back('\0');
    at += static_cast<ssize_t>(name.size()) + 1;
  }
  ReplyValue(std::move(*request), size, names);
}

}  // namespace

void Setxattr(fuse_req_t req, fuse_ino_t ino, const char* name, const char* value, size_t size,
              int flags) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kSetxattr, ino);
  if (Control::Owns(ino) || !IsClients(name)) {
    request.Error(Control::Owns(ino) || std::string_view(name).starts_with(kOurs) ? EPERM
                                                                                  : EOPNOTSUPP);
    return;
  }
  DeferXattr(fs, std::move(request),
             [&fs, ino, name = std::string(name), value = std::string(value, size),
              flags](Deferred& deferred) {
               const int error = OnBackingFile(fs, ino, [&](int fd) {
                 return ::fsetxattr(fd, name.c_str(), value.data(), value.size(), flags);
               });
               if (auto answered = deferred.Take()) answered->Error(error);
             });
}

void Getxattr(fuse_req_t req, fuse_ino_t ino, const char* name, size_t size) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kGetxattr, ino);
  if (std::string_view(name).starts_with(kOurs)) {
    const Result<std::string> answer =
        fs.control().Attribute(ino, std::string_view(name).substr(kOurs.size()), fs.CallerOf(req));
    if (!answer.ok()) {
      request.Error(ENODATA);
    } else {
      ReplyValue(std::move(request), size, *answer);
    }
    return;
  }
  if (Control::Owns(ino) || !IsClients(name)) {
    request.Error(Control::Owns(ino) || std::string_view(name).starts_with("security.")
                      ? ENODATA
                      : EOPNOTSUPP);
    return;
  }
  DeferXattr(fs, std::move(request),
             [&fs, ino, name = std::string(name), size](Deferred& deferred) {
               ReplyClients(fs, deferred, ino, name, size);
             });
}

void Listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kListxattr, ino);
  if (Control::Owns(ino)) {
    ReplyValue(std::move(request), size, {});
    return;
  }
  DeferXattr(fs, std::move(request),
             [&fs, ino, size](Deferred& deferred) { ReplyNames(fs, deferred, ino, size); });
}

void Removexattr(fuse_req_t req, fuse_ino_t ino, const char* name) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kRemovexattr, ino);
  if (Control::Owns(ino) || !IsClients(name)) {
    request.Error(std::string_view(name).starts_with(kOurs) ? EPERM : EOPNOTSUPP);
    return;
  }
  DeferXattr(fs, std::move(request), [&fs, ino, name = std::string(name)](Deferred& deferred) {
    const int error =
        OnBackingFile(fs, ino, [&](int fd) { return ::fremovexattr(fd, name.c_str()); });
    if (auto answered = deferred.Take()) answered->Error(error);
  });
}

}  // namespace prefixfs::ops
