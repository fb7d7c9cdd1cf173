#include "fs/data_io.h"

#include <fcntl.h>
#include <sys/uio.h>

#include <optional>
#include <utility>

namespace prefixfs {
namespace {

bool WantsDirect(const DataRange& range) { return (range.flags & O_DIRECT) != 0; }

constexpr size_t kLeastSpliced = 64 << 10;  // below, copying costs less

// What fits in a pipe together with its header. Of more libfuse would make a copy, in new memory
// each time. Pipes beyond 1 MiB, which a request of the usual size needs, take CAP_SYS_RESOURCE.
size_t MostSpliced() {
  static const size_t most = [] {
    constexpr int kWanted = 8 << 20;
    constexpr size_t kDefault = 512 << 10;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return kDefault;
    const Fd out(ends[0]), in(ends[1]);
    return fcntl(in.get(), F_SETPIPE_SZ, kWanted) >= kWanted ? size_t{kWanted / 2} : kDefault;
  }();
  return most;
}

void Splice(Request request, int fd, const DataRange& range) {
  fuse_bufvec data = FUSE_BUFVEC_INIT(range.size);
  data.buf[0].flags =
      static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK | FUSE_BUF_FD_RETRY);
  data.buf[0].fd = fd;
  data.buf[0].pos = range.offset;
  request.With([&](fuse_req_t r) { return fuse_reply_data(r, &data, FUSE_BUF_SPLICE_MOVE); });
}

// The ring's buffer for the reply, or nothing over /dev/fuse.
std::span<char> ReplyMemory(fuse_req_t req) {
  char* memory = nullptr;
  size_t size = 0;
  if (!fuse_req_is_uring(req) || fuse_req_get_payload(req, &memory, &size, nullptr) != 0) return {};
  return {memory, size};
}

int RwFlags(int open_flags) {
  if ((open_flags & O_SYNC) == O_SYNC) return RWF_SYNC;
  return (open_flags & O_DSYNC) != 0 ? RWF_DSYNC : 0;
}

// The client's file is open and there: what is not about space or size is an error of the device.
int ErrnoOfData(const Status& status) {
  if (status.Is(Code::kNoSpace)) return ENOSPC;
  return status.Is(Code::kTooLong) ? EFBIG : EIO;
}

Result<size_t> Write(const DataFile& file, const DataRange& range, std::span<const char> bytes) {
  const auto offset = static_cast<uint64_t>(range.offset);
  const int flags = RwFlags(range.flags);
  if (file.direct_fd >= 0) {
    Result<size_t> written = WriteDirect(file, offset, bytes, flags);
    if (!written.status().Is(Code::kInvalid)) return written;
  }
  return WriteAt(file.fd, offset, bytes, flags);
}

Result<DataFile> FileFor(Cache& cache, const Handle& handle, const DataRange& range) {
  if (WantsDirect(range)) return cache.DirectFile(handle);
  return DataFile{PFS_TRY(cache.DataFd(handle)), -1, 0};
}

}  // namespace

void ReadData(Cache& cache, Request request, const Handle& handle, const DataRange& range) {
  const Waiting waiting(Wait::kData, handle.file->drive->slot());
  const Result<DataFile> file = FileFor(cache, handle, range);
  if (!file.ok()) {
    request.Error(EIO);
    return;
  }
  const auto offset = static_cast<uint64_t>(range.offset);
  const bool direct = file->direct_fd >= 0 && !IsCached(file->fd, offset, range.size);
  const bool splices = range.size >= kLeastSpliced && range.size <= MostSpliced();
  if (!direct && splices && !fuse_req_is_uring(request.get())) {
    Splice(std::move(request), file->fd, range);
    return;
  }
  const size_t room = direct ? BlocksAround(*file, offset, range.size) : range.size;
  std::span<char> memory = ReplyMemory(request.get());
  std::optional<TransferMemory> own;
  if (memory.size() < room) memory = own.emplace(room).bytes();
  if (memory.size() < room) {
    request.Error(ENOMEM);
    return;
  }
  Result<std::span<const char>> bytes(Code::kInvalid);
  if (direct) bytes = ReadDirect(*file, offset, range.size, memory);
  // Refused, although it was aligned: some filesystems do so for some files.
  if (bytes.status().Is(Code::kInvalid)) bytes = ReadAt(file->fd, offset, range.size, memory);
  if (!bytes.ok()) {
    request.Error(EIO);
    return;
  }
  request.With([&](fuse_req_t r) { return fuse_reply_buf(r, bytes->data(), bytes->size()); });
}

void WriteData(Cache& cache, Request request, const Handle& handle, const DataRange& range,
               std::span<const char> bytes) {
  const Waiting waiting(Wait::kData, handle.file->drive->slot());
  const Result<DataFile> file = FileFor(cache, handle, range);
  const Result<size_t> written =
      file.ok() ? Write(*file, range, bytes) : Result<size_t>(file.status());
  if (!written.ok()) {
    request.Error(ErrnoOfData(written.status()));
    return;
  }
  request.With([&](fuse_req_t r) { return fuse_reply_write(r, *written); });
}

bool MayWait(Cache& cache, const Handle& handle, const DataRange& range) {
  const Result<int> fd = cache.DataFd(handle);
  return fd.ok() && !IsCached(*fd, static_cast<uint64_t>(range.offset), range.size);
}

}  // namespace prefixfs
