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

// Calls that move a file's bytes take as long as its drive does: by passthrough the daemon does not
// even see them. Their file stays open until they are answered.
template <typename Work>
void DeferData(Filesystem& fs, Request request, Work work) {
  fs.Defer(std::move(request), Queue::kData, Filesystem::Never(),
           [work = std::move(work)](Deferred& deferred) {
             if (auto answered = deferred.Take()) work(std::move(*answered));
           });
}

}  // namespace

void Read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kRead, ino);
  if (Control::Owns(ino)) {
    fs.control().Read(std::move(request), size, offset, fi);
    return;
  }
  const Handle& handle = *OpenFileOf(fi)->handle;
  const DataRange range{offset, size, fi->flags};
  // A thread of the ring has all the requests of its processor to serve; of those that read
  // /dev/fuse others take the next ones, unless too many wait already.
  const Filesystem::DataTurn turn(fs, req);
  if (turn || !MayWait(fs.cache(), handle, range)) {
    ReadData(fs.cache(), std::move(request), handle, range);
    return;
  }
  DeferData(fs, std::move(request), [&fs, &handle, range](Request answered) {
    ReadData(fs.cache(), std::move(answered), handle, range);
  });
}

void WriteBuf(fuse_req_t req, fuse_ino_t ino, fuse_bufvec* in, off_t offset, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kWrite, ino);
  if (Control::Owns(ino)) {
    request.Error(EPERM);
    return;
  }
  const OpenFile& open = *OpenFileOf(fi);
  const Handle& handle = *open.handle;
  const std::span<const char> bytes = BytesOf(*in);
  const DataRange range{offset, bytes.size(),
                        open.cached_writes ? fi->flags & ~O_DIRECT : fi->flags};
  const bool ring = fuse_req_is_uring(req);
  const Filesystem::DataTurn turn(fs, req);
  const Status ready =
      turn ? fs.cache().PrepareWrite(handle, bytes.size(), false) : Code::kRejected;
  if (!ready.Is(Code::kRejected)) {
    Write(fs, std::move(request), handle, ready, range, bytes);
    return;
  }
  // Elsewhere; with a copy of the bytes, because the buffer is this thread's, unless it is the
  // ring's, which is the request's own until the answer.
  auto copy = std::make_shared<std::vector<char>>();
  if (!ring) copy->assign(bytes.begin(), bytes.end());
  const std::span<const char> kept = ring ? bytes : std::span<const char>(*copy);
  DeferData(fs, std::move(request), [&fs, &handle, copy, kept, range](Request answered) {
    const Status room = fs.cache().PrepareWrite(handle, kept.size(), true);
    Write(fs, std::move(answered), handle, room, range, kept);
  });
}

void Fsync(fuse_req_t req, fuse_ino_t ino, int data_only, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kFsync, ino);
  if (Control::Owns(ino)) {
    request.Error(0);
    return;
  }
  DeferData(fs, std::move(request), [&fs, data_only, open = OpenFileOf(fi)](Request answered) {
    const Status status = fs.cache().SyncData(*open->handle, data_only != 0);
    answered.Error(status.ok() ? 0 : status.Is(Code::kNoSpace) ? ENOSPC : EIO);
  });
}

void Fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
               fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kFallocate, ino);
  if (Control::Owns(ino)) {
    request.Error(EPERM);
    return;
  }
  fs.Defer(std::move(request), Queue::kSpace, fs.LateChange(),
           [&fs, mode, offset, length, use = fs.UseOf(fi)](Deferred& deferred) mutable {
             const Status status = fs.cache().Allocate(use->handle(), mode, offset, length, true);
             use.reset();
             if (auto answered = deferred.Take()) answered->Done(status);
           });
}

// The kernel asks only where data and holes are, which the drive may have to read.
void Lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kLseek, ino);
  if (Control::Owns(ino)) {
    request.Error(EINVAL);
    return;
  }
  DeferData(fs, std::move(request), [&fs, offset, whence, open = OpenFileOf(fi)](Request answered) {
    const Result<int> fd = fs.cache().DataFd(*open->handle);
    const off_t found = fd.ok() ? ::lseek(*fd, offset, whence) : -1;
    if (found < 0) {
      answered.Error(fd.ok() ? errno : EIO);
      return;
    }
    answered.With([&](fuse_req_t r) { return fuse_reply_lseek(r, found); });
  });
}

}  // namespace prefixfs::ops
