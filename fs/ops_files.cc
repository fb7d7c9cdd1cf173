// create, open, flush, release
#include <fcntl.h>

#include "fs/filesystem.h"

namespace prefixfs::ops {
namespace {

bool IsRead(int flags) { return (flags & O_ACCMODE) == O_RDONLY && (flags & O_TRUNC) == 0; }

// Replies to a create; the handle goes back if the caller is gone.
void FinishCreate(Filesystem& fs, Request request, const Caller& caller, Result<Created> created,
                  fuse_file_info fi) {
  Status status = created.status();
  if (status.ok()) status = fs.Serve(request.get(), caller, std::move(created->handle), &fi);
  if (!status.ok()) {
    fs.cache().NoteShortage(status);
    request.Done(status);
    return;
  }
  const fuse_entry_param param = ToEntryParam(created->entry);
  if (request.With([&](fuse_req_t req) { return fuse_reply_create(req, &param, &fi); }) == -ENOENT)
    fs.cache().Release(fs.Unserve(OpenFileOf(&fi)));
}

void FinishOpen(Filesystem& fs, Request request, const Caller& caller, Result<HandlePtr> handle,
                fuse_file_info fi) {
  Status status = handle.status();
  if (status.ok()) status = fs.Serve(request.get(), caller, std::move(handle).value(), &fi);
  if (!status.ok()) {
    fs.cache().NoteShortage(status);
    request.Fail(status);
    return;
  }
  if (request.With([&](fuse_req_t req) { return fuse_reply_open(req, &fi); }) == -ENOENT)
    fs.cache().Release(fs.Unserve(OpenFileOf(&fi)));
}

// The end of a create on a worker, unless its deadline was faster: then nobody has the handle.
void FinishCreate(Filesystem& fs, Deferred& deferred, const Caller& caller, Result<Created> created,
                  const fuse_file_info& fi) {
  if (created.ok()) {
    if (const Status ready = fs.cache().DataFd(*created->handle).status(); !ready.ok()) {
      fs.cache().Release(std::move(created->handle));
      created = ready;
    }
  }
  if (auto request = deferred.Take()) {
    FinishCreate(fs, std::move(*request), caller, std::move(created), fi);
  } else if (created.ok()) {
    fs.cache().Release(std::move(created->handle));
  }
}

void FinishOpen(Filesystem& fs, Deferred& deferred, const Caller& caller, Result<HandlePtr> handle,
                const fuse_file_info& fi) {
  if (handle.ok()) {
    if (const Status ready = fs.cache().DataFd(**handle).status(); !ready.ok()) {
      fs.cache().Release(std::move(handle).value());
      handle = ready;
    }
  }
  if (auto request = deferred.Take()) {
    FinishOpen(fs, std::move(*request), caller, std::move(handle), fi);
  } else if (handle.ok()) {
    fs.cache().Release(std::move(handle).value());
  }
}

// Runs `create` (Cache, may wait) here, or where it may wait for space or a drive.
template <typename CreateIt>
void Make(Filesystem& fs, Request request, const Caller& caller, fuse_ino_t parent,
          fuse_file_info* fi, CreateIt create) {
  if (Control::Owns(parent)) {
    request.Error(EPERM);
    return;
  }
  Result<Created> created = create(fs.cache(), false);
  if (!created.status().Is(Code::kRejected)) {
    FinishCreate(fs, std::move(request), caller, std::move(created), *fi);
    return;
  }
  fs.Defer(std::move(request), Queue::kSpace, fs.LateChange(),
           [&fs, caller, create = std::move(create), fi = *fi](Deferred& deferred) {
             FinishCreate(fs, deferred, caller, create(fs.cache(), true), fi);
           });
}

}  // namespace

void Create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kCreate, parent);
  const Caller caller = fs.CallerOf(req);
  Make(
      fs, std::move(request), caller, parent, fi,
      [parent, name = std::string(name), mode, flags = fi->flags, caller](Cache& cache, bool wait) {
        return cache.Create(parent, name, mode, flags, caller, wait);
      });
}

// O_TMPFILE: a file that link may name.
void Tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kTmpfile, parent);
  const Caller caller = fs.CallerOf(req);
  Make(fs, std::move(request), caller, parent, fi, [parent, mode, caller](Cache& cache, bool wait) {
    return cache.CreateUnnamed(parent, mode, caller, wait);
  });
}

void Open(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kOpen, ino);
  if (Control::Owns(ino)) {
    fs.control().Open(std::move(request), ino, fs.CallerOf(req), fi);
    return;
  }
  const Caller caller = fs.CallerOf(req);
  Result<HandlePtr> handle = fs.cache().Open(ino, fi->flags, caller, false);
  if (handle.status().Is(Code::kRejected)) {
    const Queue queue = IsRead(fi->flags) ? Queue::kSpace : Queue::kNames;
    fs.Defer(std::move(request), queue, fs.LateOpen(),
             [&fs, ino, fi = *fi, caller](Deferred& deferred) {
               FinishOpen(fs, deferred, caller, fs.cache().Open(ino, fi.flags, caller, true), fi);
             });
    return;
  }
  if (!handle.ok() || fs.IsReady(**handle)) {
    FinishOpen(fs, std::move(request), caller, std::move(handle), *fi);
    return;
  }
  // The backing file has to be opened, for which its drive may have to read.
  const auto opened = std::make_shared<HandlePtr>(std::move(handle).value());
  fs.Defer(std::move(request), Queue::kNames, fs.LateOpen(),
           [&fs, opened, fi = *fi, caller](Deferred& deferred) {
             FinishOpen(fs, deferred, caller, std::move(*opened), fi);
           });
}

void Flush(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kFlush, ino);
  if (Control::Owns(ino)) {
    request.Error(0);
    return;
  }
  const Handle& handle = *OpenFileOf(fi)->handle;
  const Caller caller = fs.CallerOf(req);
  const Status flushed = fs.cache().Flush(handle, caller, false);
  if (!flushed.Is(Code::kRejected)) {
    request.Done(flushed);
    return;
  }
  fs.Defer(std::move(request), Queue::kNames, fs.LateChange(),
           [&fs, use = fs.UseOf(fi), caller](Deferred& deferred) mutable {
             const Status status = fs.cache().Flush(use->handle(), caller, true);
             use.reset();  // before the answer, upon which the client may release it
             if (auto answered = deferred.Take()) answered->Done(status);
           });
}

void Release(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kRelease, ino);
  if (Control::Owns(ino)) {
    fs.control().Release(fi);
    request.Error(0);
    return;
  }
  OpenFile* open = OpenFileOf(fi);
  if (open->users.fetch_sub(1) > 1) {
    request.Error(0);  // whoever works with it yet gives it back
    return;
  }
  HandlePtr handle = fs.Unserve(open);
  if (fs.cache().TryRelease(handle)) {
    request.Error(0);
    return;
  }
  const auto released = std::make_shared<HandlePtr>(std::move(handle));
  fs.Defer(std::move(request), Queue::kNames, Filesystem::Never(),
           [&fs, released](Deferred& deferred) {
             fs.cache().Release(std::move(*released));
             if (auto answered = deferred.Take()) answered->Error(0);
           });
}

}  // namespace prefixfs::ops
