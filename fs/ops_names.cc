// lookup, forget, mknod, mkdir, symlink, readlink, unlink, rmdir, rename, link
#include <sys/stat.h>

#include "fs/filesystem.h"

namespace prefixfs::ops {
namespace {

void ReplyNode(Request request, const Result<Entry>& entry) {
  if (!entry.ok()) {
    request.Fail(entry.status());
    return;
  }
  const fuse_entry_param param = ToEntryParam(*entry);
  request.With([&](fuse_req_t req) { return fuse_reply_entry(req, &param); });
}

void MakeNode(fuse_req_t req, Op op, fuse_ino_t parent, const char* name, uint32_t mode,
              const char* target) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, op);
  if (Control::Owns(parent)) {
    request.Error(EPERM);
    return;
  }
  const Caller caller = fs.CallerOf(req);
  const Result<Entry> entry = fs.cache().MakeNode(parent, name, mode, target, caller, false);
  if (!entry.status().Is(Code::kRejected)) {
    ReplyNode(std::move(request), entry);
    return;
  }
  // Waits for a block that can be evicted, so elsewhere.
  auto shared = std::make_shared<Request>(std::move(request));
  fs.Defer([&fs, shared, parent, name = std::string(name), mode, target = std::string(target),
            caller] {
    ReplyNode(std::move(*shared), fs.cache().MakeNode(parent, name, mode, target, caller, true));
  });
}

}  // namespace

void Lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kLookup);
  if (Control::Owns(parent) || (parent == kRootIno && Control::IsDirectoryName(name))) {
    ReplyNode(std::move(request), fs.control().Lookup(parent, name));
    return;
  }
  double negative_timeout_s = 0;
  Result<Entry> entry = fs.cache().Lookup(parent, name, fs.CallerOf(req), &negative_timeout_s);
  if (!entry.ok() && entry.status().Is(Code::kNotFound) && negative_timeout_s > 0) {
    fuse_entry_param absent{};
    absent.entry_timeout = negative_timeout_s;
    request.With([&](fuse_req_t r) { return fuse_reply_entry(r, &absent); });
    return;
  }
  ReplyNode(std::move(request), entry);
}

void Forget(fuse_req_t req, fuse_ino_t ino, uint64_t) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kForget);
  fs.nodes().Drop(ino);
  fs.cache().Forgotten(ino);
  request.With([](fuse_req_t r) { return fuse_reply_none(r), 0; });
}

void ForgetMulti(fuse_req_t req, size_t count, fuse_forget_data* forgets) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kForget);
  for (size_t i = 0; i < count; ++i) {
    fs.nodes().Drop(forgets[i].ino);
    fs.cache().Forgotten(forgets[i].ino);
  }
  request.With([](fuse_req_t r) { return fuse_reply_none(r), 0; });
}

void Mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t) {
  if (!S_ISREG(mode)) {
    MakeNode(req, Op::kMknod, parent, name, mode, "");
    return;
  }
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kMknod);
  if (Control::Owns(parent)) {
    request.Error(EPERM);
    return;
  }
  // A regular file without a handle: created and closed at once.
  const Caller caller = fs.CallerOf(req);
  Result<Created> created = fs.cache().Create(parent, name, mode, O_EXCL | O_WRONLY, caller, true);
  if (!created.ok()) {
    request.Fail(created.status());
    return;
  }
  const Status flushed = fs.cache().Flush(*created->handle, caller);
  fs.cache().Release(std::move(created->handle));
  ReplyNode(std::move(request),
            flushed.ok() ? Result<Entry>(created->entry) : Result<Entry>(flushed));
}

void Mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  MakeNode(req, Op::kMkdir, parent, name, S_IFDIR | (mode & 07777), "");
}

void Symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  MakeNode(req, Op::kSymlink, parent, name, S_IFLNK | 0777, target);
}

void Readlink(fuse_req_t req, fuse_ino_t ino) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kReadlink);
  const Result<std::string> target = fs.cache().ReadLink(ino);
  if (!target.ok()) {
    request.Fail(target.status());
    return;
  }
  request.With([&](fuse_req_t r) { return fuse_reply_readlink(r, target->c_str()); });
}

void Unlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kUnlink);
  request.Done(Control::Owns(parent) ? Status(Code::kDenied)
                                     : fs.cache().Unlink(parent, name, fs.CallerOf(req)));
}

void Rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kRmdir);
  const bool control =
      Control::Owns(parent) || (parent == kRootIno && Control::IsDirectoryName(name));
  request.Done(control ? Status(Code::kDenied) : fs.cache().RemoveDirectory(parent, name));
}

void Rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kRename);
  const bool control = Control::Owns(parent) || Control::Owns(new_parent) ||
                       (parent == kRootIno && Control::IsDirectoryName(name));
  request.Done(
      control ? Status(Code::kDenied)
              : fs.cache().Rename(parent, name, new_parent, new_name, flags, fs.CallerOf(req)));
}

// Only for what O_TMPFILE made.
void Link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char* name) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kLink);
  if (Control::Owns(ino) || Control::Owns(parent)) {
    request.Error(EPERM);
    return;
  }
  const Result<Entry> entry = fs.cache().Link(ino, parent, name);
  ReplyNode(std::move(request), entry);
}

}  // namespace prefixfs::ops
