// create, open, flush, release
#include <fcntl.h>

#include "fs/filesystem.h"

namespace prefixfs::ops {
namespace {

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
    fs.Unserve(&fi);
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
    fs.Unserve(&fi);
}

// Runs `create` (Cache, may wait) here, or where it may wait for the evictor.
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
  auto shared = std::make_shared<Request>(std::move(request));
  fs.Defer([&fs, shared, caller, create = std::move(create), fi = *fi] {
    FinishCreate(fs, std::move(*shared), caller, create(fs.cache(), true), fi);
  });
}

}  // namespace

void Create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kCreate);
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
  Request request = fs.Begin(req, Op::kTmpfile);
  const Caller caller = fs.CallerOf(req);
  Make(fs, std::move(request), caller, parent, fi, [parent, mode, caller](Cache& cache, bool wait) {
    return cache.CreateUnnamed(parent, mode, caller, wait);
  });
}

void Open(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kOpen);
  if (Control::Owns(ino)) {
    fs.control().Open(std::move(request), ino, fi);
    return;
  }
  const Caller caller = fs.CallerOf(req);
  Result<HandlePtr> handle = fs.cache().Open(ino, fi->flags, caller, false);
  if (!handle.status().Is(Code::kRejected)) {
    FinishOpen(fs, std::move(request), caller, std::move(handle), *fi);
    return;
  }
  auto shared = std::make_shared<Request>(std::move(request));
  fs.Defer([&fs, shared, ino, fi = *fi, caller] {
    FinishOpen(fs, std::move(*shared), caller, fs.cache().Open(ino, fi.flags, caller, true), fi);
  });
}

void Flush(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kFlush);
  request.Done(Control::Owns(ino) ? Ok()
                                  : fs.cache().Flush(*OpenFileOf(fi)->handle, fs.CallerOf(req)));
}

void Release(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kRelease);
  if (Control::Owns(ino)) {
    fs.control().Release(fi);
  } else {
    fs.Unserve(fi);
  }
  request.Error(0);
}

}  // namespace prefixfs::ops
