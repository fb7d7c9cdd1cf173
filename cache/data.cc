// Data: what reaches the daemon although the bytes go by passthrough, and the bytes where they do
// not.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "cache/base/descriptors.h"
#include "cache/cache.h"

namespace prefixfs {

Status Cache::EnsureDataFd(const FilePtr& file) {
  ChangeLock change(file->change);
  return OpenDataFd(file, false);
}

Status Cache::OpenDataFd(const FilePtr& file, bool cached) {
  if (file->fd.valid()) return Ok();
  BlockId block;
  {
    MutexLock lock(open_.mutex);
    block = file->inode.block;
  }
  Result<Fd> fd = file->drive->OpenSealed(block, cached);
  if (!fd.ok()) {
    const Status status = file->drive->Note(fd.status());
    // Whoever removes a block takes it out of the index first.
    const bool named = status.Is(Code::kNotFound) && index_->Get(file->ino).ok();
    return named ? Status(Code::kCorrupt, "the backing file is missing") : status;
  }
  PFS_TRY(LeavesReserve(*fd));
  struct stat now;
  if (::fstat(fd->get(), &now) != 0) return file->drive->Note(Status::FromErrno(errno, "fstat"));
  MutexLock lock(open_.mutex);
  // Open is a promise of the whole block: a shorter file never counts as one.
  if (static_cast<uint64_t>(now.st_size) != file->inode.size) {
    return Status(Code::kCorrupt, "the backing file does not have the sealed size");
  }
  file->fd = std::move(fd).value();
  return Ok();
}

Result<int> Cache::DataFd(const Handle& handle) {
  const FilePtr& file = handle.file;
  {
    MutexLock lock(open_.mutex);
    if (file->copy_pending) return file->copy_source.get();
    if (file->fd.valid()) return file->fd.get();
  }
  Status status = EnsureDataFd(file);
  if (status.Is(Code::kCorrupt)) {
    DropCorrupt(file->ino);
    return Code::kStale;  // so that the kernel looks the name up again and forgets it
  }
  PFS_TRY(status);
  return file->fd.get();
}

bool Cache::HasDataFd(const Handle& handle) {
  const FilePtr& file = handle.file;
  {
    MutexLock lock(open_.mutex);
    if (file->copy_pending || file->fd.valid()) return true;
  }
  if (!file->change.try_lock()) return false;
  AdoptedLock change(file->change);
  // DataFd says what is wrong with it.
  return OpenDataFd(file, true).ok();
}

Result<DataFile> Cache::DirectFile(const Handle& handle) {
  const FilePtr& file = handle.file;
  DataFile data{PFS_TRY(DataFd(handle)), -1, file->drive->direct_alignment()};
  {
    MutexLock lock(open_.mutex);
    // Before and after its copy such a version is two files, and is served through the page cache.
    if (data.alignment == 0 || file->copy_source.valid()) return data;
    data.direct_fd = file->direct_fd.get();
  }
  if (data.direct_fd >= 0) return data;
  ChangeLock change(file->change);
  if (!file->direct_fd.valid()) {
    Fd direct = ReopenDirect(data.fd);
    MutexLock lock(open_.mutex);
    file->direct_fd = std::move(direct);
  }
  data.direct_fd = file->direct_fd.get();
  return data;
}

bool Cache::PassthroughAllowed(const Handle& handle) {
  MutexLock lock(open_.mutex);
  // Whatever is copied by now: one way of serving for the file's life.
  return !handle.file->served && !handle.file->copy_source.valid();
}

// The copy that reflink would have made. Afterwards mtime is what it was, so that only a write
// moves it.
Status Cache::EnsureCopied(const FilePtr& file) {
  if (!file->copy_pending) return Ok();
  struct stat from;
  if (::fstat(file->copy_source.get(), &from) != 0) return Status::FromErrno(errno, "fstat");
  const Waiting waiting(Wait::kData, file->drive->slot());
  off_t in = 0, out = 0;
  while (in < from.st_size) {
    const ssize_t copied = ::copy_file_range(file->copy_source.get(), &in, file->fd.get(), &out,
                                             static_cast<size_t>(from.st_size - in), 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0)
      return file->drive->Note(Status::FromErrno(errno, "copying a block for its new version"));
    if (copied == 0) return Status(Code::kCorrupt, "a block became shorter while it was copied");
  }
  const timespec times[2] = {{0, UTIME_OMIT}, ToTimespec(file->inode.mtime_ns)};
  (void)::futimens(file->fd.get(), times);
  MutexLock lock(open_.mutex);
  file->copy_pending = false;
  return Ok();
}

Status Cache::PrepareWrite(const Handle& handle, uint64_t bytes, bool may_wait) {
  const FilePtr& file = handle.file;
  if (file->served) PFS_TRY(MakeRoom(*file, bytes, may_wait));
  {
    MutexLock lock(open_.mutex);
    file->written += bytes;
    if (!file->copy_pending) return Ok();
  }
  ChangeLock change(file->change);
  return EnsureCopied(file);
}

Status Cache::Truncate(const FilePtr& file, uint64_t size) {
  PFS_TRY(EnsureCopied(file));
  if (::ftruncate(file->fd.get(), static_cast<off_t>(size)) != 0) {
    return file->drive->Note(Status::FromErrno(errno, "ftruncate"));
  }
  MutexLock lock(open_.mutex);
  file->modified = true;
  return Ok();
}

Status Cache::Allocate(const Handle& handle, int mode, int64_t offset, int64_t length,
                       bool may_wait) {
  const FilePtr& file = handle.file;
  if (!handle.writer) return Code::kInvalid;
  const bool adds = (mode & ~FALLOC_FL_KEEP_SIZE) == 0;
  if (adds) {
    // What it has already counts: preallocation in pieces must not promise the same bytes twice.
    struct stat now;
    if (::fstat(file->fd.get(), &now) != 0)
      return file->drive->Note(Status::FromErrno(errno, "fstat"));
    uint64_t promised;
    {
      MutexLock lock(open_.mutex);
      promised = file->reserved;
    }
    const uint64_t has = static_cast<uint64_t>(now.st_blocks) * 512 + promised;
    const uint64_t end = static_cast<uint64_t>(offset) + static_cast<uint64_t>(length);
    // Never more than was asked for, however far out in a sparse file that is.
    const uint64_t needs = end > has ? std::min(end - has, static_cast<uint64_t>(length)) : 0;
    if (needs > 0) PFS_TRY(ReserveFor(*file, needs, may_wait));
  }
  {
    ChangeLock change(file->change);
    PFS_TRY(EnsureCopied(file));
    MutexLock lock(open_.mutex);
    file->modified = true;
  }
  const Drive::Call call(*file->drive, Wait::kData, true);
  if (::fallocate(file->fd.get(), mode, offset, length) != 0) {
    return file->drive->Note(Status::FromErrno(errno, "fallocate"));
  }
  return Ok();
}

Status Cache::SyncData(const Handle& handle, bool data_only) {
  const int fd = PFS_TRY(DataFd(handle));
  const Waiting waiting(Wait::kData, handle.file->drive->slot());
  if ((data_only ? ::fdatasync(fd) : ::fsync(fd)) != 0) {
    return handle.file->drive->Note(Status::FromErrno(errno, "fsync"));
  }
  if (handle.writer) {
    ChangeLock change(handle.file->change);
    MutexLock lock(open_.mutex);
    handle.file->flushed = true;
  }
  return Ok();
}

// Open writers, and files that have lost their name, as the backing filesystem counts them now.
void Cache::MeasureWriters() {
  for (const FilePtr& file : open_.Writing()) {
    struct stat now;
    if (!file->fd.valid() || ::fstat(file->fd.get(), &now) != 0) continue;
    const uint64_t allocated = static_cast<uint64_t>(now.st_blocks) * 512;
    int64_t delta;
    uint64_t covered = 0;
    bool beyond = false;
    Ino parent = 0;
    {
      MutexLock lock(open_.mutex);
      if (file->writers == 0) continue;  // sealed meanwhile, and accounted there
      delta = static_cast<int64_t>(allocated) - static_cast<int64_t>(file->accounted);
      file->accounted = allocated;
      if (delta > 0) covered = std::min(file->reserved, static_cast<uint64_t>(delta));
      file->reserved -= covered;
      beyond = IsFarBeyond(*file, allocated);
      parent = file->inode.parent;
    }
    if (beyond && budget_->Wanted() > 0) Throttle(parent);
    if (delta != 0) budget_->Account(delta, covered);
    if (covered > 0) drives_->AddQueued(file->drive->slot(), -static_cast<int64_t>(covered));
  }
}

}  // namespace prefixfs
