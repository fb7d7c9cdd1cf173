// read, write, fsync, fallocate, lseek: of handles that the daemon serves, and what passthrough
// leaves to it.
#include <unistd.h>

#include <memory>
#include <vector>

#include "fs/filesystem.h"

namespace prefixfs::ops {
namespace {

// The end of a write for which there is room, or not.
void Write(Filesystem& fs, Request request, const Handle& handle, const Status& ready,
           fuse_bufvec* in, off_t offset) {
  const Result<int> fd = ready.ok() ? fs.cache().DataFd(handle) : Result<int>(ready);
  if (!fd.ok()) {
    request.Error(fd.status().Is(Code::kNoSpace) ? ENOSPC : EIO);
    return;
  }
  fuse_bufvec out = FUSE_BUFVEC_INIT(fuse_buf_size(in));
  out.buf[0].flags =
      static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK | FUSE_BUF_FD_RETRY);
  out.buf[0].fd = *fd;
  out.buf[0].pos = offset;
  const ssize_t written = fuse_buf_copy(&out, in, static_cast<fuse_buf_copy_flags>(0));
  if (written < 0) {
    request.Error(static_cast<int>(-written));
    return;
  }
  request.With([&](fuse_req_t r) { return fuse_reply_write(r, static_cast<size_t>(written)); });
}

}  // namespace

void Read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kRead);
  if (Control::Owns(ino)) {
    fs.control().Read(std::move(request), size, offset, fi);
    return;
  }
  const Result<int> fd = fs.cache().DataFd(*OpenFileOf(fi)->handle);
  if (!fd.ok()) {
    request.Error(EIO);  // the file is open: an absent one is a device error by now
    return;
  }
  fuse_bufvec data = FUSE_BUFVEC_INIT(size);
  data.buf[0].flags =
      static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK | FUSE_BUF_FD_RETRY);
  data.buf[0].fd = *fd;
  data.buf[0].pos = offset;
  request.With([&](fuse_req_t r) { return fuse_reply_data(r, &data, FUSE_BUF_SPLICE_MOVE); });
}

void WriteBuf(fuse_req_t req, fuse_ino_t ino, fuse_bufvec* in, off_t offset, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kWrite);
  if (Control::Owns(ino)) {
    request.Error(EPERM);
    return;
  }
  const Handle& handle = *OpenFileOf(fi)->handle;
  const size_t size = fuse_buf_size(in);
  const Status ready = fs.cache().PrepareWrite(handle, size, false);
  if (!ready.Is(Code::kRejected)) {
    Write(fs, std::move(request), handle, ready, in, offset);
    return;
  }
  // Waits for space elsewhere, with a copy of the bytes: libfuse's buffer is this thread's.
  auto data = std::make_shared<std::vector<char>>(size);
  fuse_bufvec copy = FUSE_BUFVEC_INIT(size);
  copy.buf[0].mem = data->data();
  if (fuse_buf_copy(&copy, in, static_cast<fuse_buf_copy_flags>(0)) != static_cast<ssize_t>(size)) {
    request.Error(EIO);
    return;
  }
  auto shared = std::make_shared<Request>(std::move(request));
  fs.Defer([&fs, shared, &handle, data, offset] {
    fuse_bufvec buffered = FUSE_BUFVEC_INIT(data->size());
    buffered.buf[0].mem = data->data();
    const Status room = fs.cache().PrepareWrite(handle, data->size(), true);
    Write(fs, std::move(*shared), handle, room, &buffered, offset);
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
