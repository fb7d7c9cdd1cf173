// lookup, forget, mknod, mkdir, symlink, readlink, unlink, rmdir, rename, link
#include <fcntl.h>
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
  Request request = fs.Begin(req, op, parent);
  if (Control::Owns(parent)) {
    request.Error(EPERM);
    return;
  }
  fs.Defer(std::move(request), Queue::kNames, fs.LateChange(),
           [&fs, parent, name = std::string(name), mode, target = std::string(target),
            caller = fs.CallerOf(req)](Deferred& deferred) {
             const Result<Entry> entry =
                 fs.cache().MakeNode(parent, name, mode, target, caller, true);
             if (auto answered = deferred.Take()) ReplyNode(std::move(*answered), entry);
           });
}

void ReplyLookup(Request request, const Result<Entry>& entry, double negative_timeout_s) {
  if (!entry.status().Is(Code::kNotFound) || negative_timeout_s <= 0) {
    ReplyNode(std::move(request), entry);
    return;
  }
  fuse_entry_param absent{};
  absent.entry_timeout = negative_timeout_s;
  request.With([&](fuse_req_t r) { return fuse_reply_entry(r, &absent); });
}

// A change of names, by `change` on a worker.
template <typename Change>
void ChangeNames(Filesystem& fs, Request request, bool refused, Change change) {
  if (refused) {
    request.Error(EPERM);
    return;
  }
  fs.Defer(std::move(request), Queue::kNames, fs.LateChange(),
           [change = std::move(change)](Deferred& deferred) {
             const Status status = change();
             if (auto answered = deferred.Take()) answered->Done(status);
           });
}

// A regular file without a handle: created and closed at once.
Result<Entry> MakeFile(Filesystem& fs, fuse_ino_t parent, const std::string& name, mode_t mode,
                       const Caller& caller) {
  Created created = PFS_TRY(fs.cache().Create(parent, name, mode, O_EXCL | O_WRONLY, caller, true));
  const Status flushed = fs.cache().Flush(*created.handle, caller);
  fs.cache().Release(std::move(created.handle));
  if (!flushed.ok()) return flushed;
  return std::move(created.entry);
}

}  // namespace

void Lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kLookup, parent);
  if (Control::Owns(parent) || (parent == kRootIno && Control::IsDirectoryName(name))) {
    ReplyNode(std::move(request), fs.control().Lookup(parent, name));
    return;
  }
  const Caller caller = fs.CallerOf(req);
  double negative_timeout_s = 0;
  const Result<Entry> entry = fs.cache().Lookup(parent, name, caller, &negative_timeout_s, false);
  if (!entry.status().Is(Code::kRejected)) {
    ReplyLookup(std::move(request), entry, negative_timeout_s);
    return;
  }
  // The kernel holds the directory meanwhile, so not for long.
  fs.Defer(std::move(request), Queue::kNames, {ENOENT, fs.cache().LookupWaitMs(caller)},
           [&fs, parent, name = std::string(name), caller](Deferred& deferred) {
             double timeout_s = 0;
             const Result<Entry> late = fs.cache().Lookup(parent, name, caller, &timeout_s, true);
             if (auto answered = deferred.Take())
               ReplyLookup(std::move(*answered), late, timeout_s);
           });
}

void Forget(fuse_req_t req, fuse_ino_t ino, uint64_t) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kForget, 0);
  fs.nodes().Drop(ino);
  fs.cache().Forgotten(ino);
  request.With([](fuse_req_t r) { return fuse_reply_none(r), 0; });
}

void ForgetMulti(fuse_req_t req, size_t count, fuse_forget_data* forgets) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kForget, 0);
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
  Request request = fs.Begin(req, Op::kMknod, parent);
  if (Control::Owns(parent)) {
    request.Error(EPERM);
    return;
  }
  fs.Defer(
      std::move(request), Queue::kSpace, fs.LateChange(),
      [&fs, parent, name = std::string(name), mode, caller = fs.CallerOf(req)](Deferred& deferred) {
        const Result<Entry> entry = MakeFile(fs, parent, name, mode, caller);
        if (auto answered = deferred.Take()) ReplyNode(std::move(*answered), entry);
      });
}

void Mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  MakeNode(req, Op::kMkdir, parent, name, S_IFDIR | (mode & 07777), "");
}

void Symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  MakeNode(req, Op::kSymlink, parent, name, S_IFLNK | 0777, target);
}

void Readlink(fuse_req_t req, fuse_ino_t ino) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kReadlink, ino);
  const Result<std::string> target = fs.cache().ReadLink(ino);
  if (!target.ok()) {
    request.Fail(target.status());
    return;
  }
  request.With([&](fuse_req_t r) { return fuse_reply_readlink(r, target->c_str()); });
}

void Unlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Filesystem& fs = FilesystemOf(req);
  ChangeNames(fs, fs.Begin(req, Op::kUnlink, parent), Control::Owns(parent),
              [&fs, parent, name = std::string(name), caller = fs.CallerOf(req)] {
                return fs.cache().Unlink(parent, name, caller);
              });
}

void Rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Filesystem& fs = FilesystemOf(req);
  const bool control =
      Control::Owns(parent) || (parent == kRootIno && Control::IsDirectoryName(name));
  ChangeNames(
      fs, fs.Begin(req, Op::kRmdir, parent), control,
      [&fs, parent, name = std::string(name)] { return fs.cache().RemoveDirectory(parent, name); });
}

void Rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
  Filesystem& fs = FilesystemOf(req);
  const bool control = Control::Owns(parent) || Control::Owns(new_parent) ||
                       (parent == kRootIno && Control::IsDirectoryName(name));
  ChangeNames(fs, fs.Begin(req, Op::kRename, parent), control,
              [&fs, parent, name = std::string(name), new_parent, new_name = std::string(new_name),
               flags, caller = fs.CallerOf(req)] {
                return fs.cache().Rename(parent, name, new_parent, new_name, flags, caller);
              });
}

// Only for what O_TMPFILE made.
void Link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char* name) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kLink, ino);
  if (Control::Owns(ino) || Control::Owns(parent)) {
    request.Error(EPERM);
    return;
  }
  fs.Defer(std::move(request), Queue::kNames, fs.LateChange(),
           [&fs, ino, parent, name = std::string(name)](Deferred& deferred) {
             const Result<Entry> entry = fs.cache().Link(ino, parent, name);
             if (auto answered = deferred.Take()) ReplyNode(std::move(*answered), entry);
           });
}

}  // namespace prefixfs::ops
