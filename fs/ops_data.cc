// read, write, fsync, fallocate, lseek: of handles that the daemon serves, and what passthrough
// leaves to it.
#include <unistd.h>

#include <cassert>
#include <memory>
#include <span>
#include <vector>

#include "fs/data_io.h"
#include "fs/filesystem.h"

namespace prefixfs::ops {
namespace {

// The bytes of a write, in memory: libfuse hands them over in one piece unless it was told to
// splice, which Filesystem::Init does not.
std::span<const char> BytesOf(const fuse_bufvec& in) {
  assert(in.count == 1 && (in.buf[0].flags & FUSE_BUF_IS_FD) == 0);
  return {static_cast<const char*>(in.buf[0].mem) + in.off, in.buf[0].size - in.off};
}

// The end of a write for which there is room, or not.
void Write(Filesystem& fs, Request request, const Handle& handle, const Status& ready,
           const DataRange& range, std::span<const char> bytes) {
  if (!ready.ok()) {
    request.Error(ready.Is(Code::kNoSpace) ? ENOSPC : EIO);
    return;
  }
  WriteData(fs.cache(), std::move(request), handle, range, bytes);
}

}  // namespace

void Read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kRead);
  if (Control::Owns(ino)) {
    fs.control().Read(std::move(request), size, offset, fi);
    return;
  }
  const Handle& handle = *OpenFileOf(fi)->handle;
  const DataRange range{offset, size, fi->flags};
  // A thread of the ring has all the requests of its processor to serve; of those that read
  // /dev/fuse another takes the next one.
  if (!fuse_req_is_uring(req) || !MayWait(fs.cache(), handle, range)) {
    ReadData(fs.cache(), std::move(request), handle, range);
    return;
  }
  auto shared = std::make_shared<Request>(std::move(request));
  fs.DeferData(
      [&fs, shared, &handle, range] { ReadData(fs.cache(), std::move(*shared), handle, range); });
}

void WriteBuf(fuse_req_t req, fuse_ino_t ino, fuse_bufvec* in, off_t offset, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kWrite);
  if (Control::Owns(ino)) {
    request.Error(EPERM);
    return;
  }
  const OpenFile& open = *OpenFileOf(fi);
  const Handle& handle = *open.handle;
  const std::span<const char> bytes = BytesOf(*in);
  const DataRange range{offset, bytes.size(),
                        open.cached_writes ? fi->flags & ~O_DIRECT : fi->flags};
  const Status ready = fs.cache().PrepareWrite(handle, bytes.size(), false);
  const bool ring = fuse_req_is_uring(req);
  const bool waits_for_drive = ring && (range.flags & (O_DIRECT | O_DSYNC)) != 0;
  if (!ready.Is(Code::kRejected) && !waits_for_drive) {
    Write(fs, std::move(request), handle, ready, range, bytes);
    return;
  }
  auto shared = std::make_shared<Request>(std::move(request));
  if (!ready.Is(Code::kRejected)) {
    fs.DeferData([&fs, shared, &handle, ready, range, bytes] {
      Write(fs, std::move(*shared), handle, ready, range, bytes);
    });
    return;
  }
  // Waits for space elsewhere; with a copy of the bytes, because the buffer is this thread's,
  // unless it is the ring's, which is the request's own until the answer.
  auto copy = std::make_shared<std::vector<char>>();
  if (!ring) copy->assign(bytes.begin(), bytes.end());
  const std::span<const char> kept = ring ? bytes : std::span<const char>(*copy);
  fs.Defer([&fs, shared, &handle, copy, kept, range] {
    const Status room = fs.cache().PrepareWrite(handle, kept.size(), true);
    Write(fs, std::move(*shared), handle, room, range, kept);
  });
}

void Fsync(fuse_req_t req, fuse_ino_t ino, int data_only, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  auto request = std::make_shared<Request>(fs.Begin(req, Op::kFsync));
  if (Control::Owns(ino)) {
    request->Error(0);
    return;
  }
  fs.Defer([&fs, request, data_only, open = OpenFileOf(fi)] {
    const Status status = fs.cache().SyncData(*open->handle, data_only != 0);
    request->Error(status.ok() ? 0 : status.Is(Code::kNoSpace) ? ENOSPC : EIO);
  });
}

void Fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
               fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  auto request = std::make_shared<Request>(fs.Begin(req, Op::kFallocate));
  if (Control::Owns(ino)) {
    request->Error(EPERM);
    return;
  }
  fs.Defer([&fs, request, mode, offset, length, open = OpenFileOf(fi)] {
    request->Done(fs.cache().Allocate(*open->handle, mode, offset, length, true));
  });
}

void Lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kLseek);
  if (Control::Owns(ino)) {
    request.Error(EINVAL);
    return;
  }
  const Result<int> fd = fs.cache().DataFd(*OpenFileOf(fi)->handle);
  const off_t found = fd.ok() ? ::lseek(*fd, offset, whence) : -1;
  if (found < 0) {
    request.Error(fd.ok() ? errno : EIO);
    return;
  }
  request.With([&](fuse_req_t r) { return fuse_reply_lseek(r, found); });
}

}  // namespace prefixfs::ops
