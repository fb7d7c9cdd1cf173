// Files: create, open, flush, release. How a file becomes visible, and when it is sealed, is
// decided here.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "cache/base/descriptors.h"
#include "cache/cache.h"

namespace prefixfs {

bool Cache::Unmodified(const File& file, const struct stat& now) const {
  if (file.base == 0 || file.modified) return false;
  if (file.copy_pending) return true;
  return static_cast<uint64_t>(now.st_size) == file.inode.size &&
         now.st_mtim.tv_sec * kNsPerSecond + now.st_mtim.tv_nsec == file.inode.mtime_ns;
}

// Room for what the file is expected to take, on its drive and in the budget.
Status Cache::ReserveFor(File& file, uint64_t bytes, bool may_wait) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(config_.space_wait_ms);
  while (drives_->Headroom(file.drive->slot(), config_.min_free) < static_cast<int64_t>(bytes)) {
    if (file.drive->failed()) return Code::kUnavailable;
    evictor_->Wake();
    if (!may_wait) return Code::kRejected;
    const Waiting waiting(Wait::kSpace);
    if (std::chrono::steady_clock::now() > deadline) {
      counters_.no_space.fetch_add(1, std::memory_order_relaxed);
      return Status(Code::kNoSpace,
                    "the filesystem of " + file.drive->path() + " has only min_free left");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    drives_->RefreshSpace();
  }
  Status status =
      may_wait ? budget_->Reserve(bytes, config_.space_wait_ms) : budget_->TryReserve(bytes);
  if (status.Is(Code::kNoSpace)) counters_.no_space.fetch_add(1, std::memory_order_relaxed);
  PFS_TRY(status);
  drives_->AddQueued(file.drive->slot(), static_cast<int64_t>(bytes));
  MutexLock lock(open_.mutex);
  file.reserved += bytes;
  file.promised += bytes;
  return Ok();
}

// An empty file on some drive, with room for `bytes` on it. A drive that fails here costs its
// blocks, not this one, nor does one that does not answer: another takes it.
Result<SpareFile> Cache::PlaceFile(File& file, uint64_t bytes, bool may_wait) {
  PFS_TRY(LeavesReserve());
  const int64_t begun_ns = clock_.MonotonicNs();
  const Drive* silent = nullptr;
  for (;;) {
    file.drive = PFS_TRY(drives_->Place(bytes, silent));
    const Status reserved = ReserveFor(file, bytes, may_wait);
    if (reserved.Is(Code::kUnavailable)) continue;
    PFS_TRY(reserved);
    if (std::optional<SpareFile> spare = file.drive->spares().Take()) return *std::move(spare);
    Result<SpareFile> made(Code::kRejected);
    if (may_wait) {
      const Waiting waiting(Wait::kSpareFile, file.drive->slot());
      made = file.drive->spares().Take(config_.lookup_wait_ms);
    }
    if (made.ok()) return made;
    file.reserved = file.promised = 0;
    budget_->Unreserve(bytes);
    drives_->AddQueued(file.drive->slot(), -static_cast<int64_t>(bytes));
    if (!may_wait) return Code::kRejected;
    if (file.drive->failed()) continue;
    const int64_t waited_ms = (clock_.MonotonicNs() - begun_ns) / kNsPerMs;
    if (made.status().Is(Code::kTimedOut)) {
      silent = file.drive;
      if (waited_ms < config_.deadline_ms) continue;
      return Status(Code::kTimedOut, "no drive makes a new file");
    }
    if (!made.status().Is(Code::kNoSpace)) return made.status();
    // There are bytes, so it is the inodes: the evictor sees that they are short and frees some.
    if (waited_ms > config_.space_wait_ms) {
      counters_.no_space.fetch_add(1, std::memory_order_relaxed);
      return Status(Code::kNoSpace, "the filesystem of " + file.drive->path() +
                                        " has no inodes left, and nothing can be evicted");
    }
    drives_->RefreshSpace();
    evictor_->Wake();
    const Waiting waiting(Wait::kSpace);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// A new, empty backing file behind `inode` (whose parent, name, mode, owner and state are set),
// owned by the caller.
Result<FilePtr> Cache::NewFile(Inode inode, const Caller& caller, bool may_wait) {
  InodeClaim claim = PFS_TRY(ClaimInode(may_wait));
  auto file = std::make_shared<File>(PFS_TRY(index_->NextIno()));
  file->claim = std::move(claim);
  // A posix file is sized by its client, who says so by fallocate; what it writes is measured.
  const uint64_t bytes = inode.state == FileState::kPosix ? 0 : TypicalBytes(inode.parent);
  SpareFile made = PFS_TRY(PlaceFile(*file, bytes, may_wait));
  inode.ino = file->ino;
  inode.block = made.block;
  inode.drive = file->drive->slot();
  file->inode = std::move(inode);
  file->fd = std::move(made.fd);
  file->owner_tid = caller.tid();
  file->owner = caller.process();
  file->made_ns = clock_.MonotonicNs();
  file->served = file->inode.state != FileState::kPosix && IsThrottled(file->inode.parent);
  return file;
}

HandlePtr Cache::Attach(const FilePtr& file, bool writer, const Caller& caller) {
  ++(writer ? file->writers : file->readers);
  if (writer) file->settled = false;
  auto handle = std::make_unique<Handle>();
  handle->file = file;
  handle->writer = writer;
  if (writer) handle->opener = caller.process();
  return handle;
}

Result<Created> Cache::Create(Ino parent, std::string_view name, uint32_t mode, int flags,
                              const Caller& caller, bool may_wait) {
  EndRetry(caller);
  PFS_TRY(CheckName(parent, name));
  const Inode directory = PFS_TRY(index_->Get(parent));
  Result<Inode> existing = index_->Lookup(parent, name);
  if (flags & O_EXCL) {
    if (existing.ok() || !open_.Provisional(parent, name).empty()) return Code::kExists;
  }
  if (existing.ok() && !may_wait) return Code::kRejected;
  if (existing.ok()) return CreateOver(*existing, flags, caller, may_wait);
  Inode inode = NewInode(directory, name, S_IFREG | (mode & 07777), caller);
  const bool posix = PolicyAt(directory, PathTo(parent, name), false) == PathPolicy::kPosix;
  if (posix && !may_wait) return Code::kRejected;  // it is published at once
  inode.state = posix ? FileState::kPosix : FileState::kOpen;
  FilePtr file = PFS_TRY(NewFile(inode, caller, may_wait));
  Created created;
  {
    MutexLock lock(open_.mutex);
    created.handle = Attach(file, true, caller);
    file->provisional = true;
    open_.AddLocked(file);
    open_.AddProvisionalLocked(file);
  }
  if (posix) {
    ChangeLock change(file->change);
    if (Status status = Publish(file, parent, name, false, false); !status.ok()) {
      Drop(file);
      Release(std::move(created.handle));
      return status;
    }
  } else if (!index_->Get(parent).ok()) {
    // The directory went between the check and the moment from which RemoveDirectory sees this
    // file.
    Release(std::move(created.handle));
    return Code::kNotFound;
  }
  created.entry = OpenEntry(file);
  return created;
}

// The kernel saw no such name (it was hidden, or came a moment ago): what O_CREAT without O_EXCL
// opens then.
Result<Created> Cache::CreateOver(const Inode& existing, int flags, const Caller& caller,
                                  bool may_wait) {
  if (existing.IsDirectory()) return Code::kIsDirectory;
  if (!existing.IsFile()) return Code::kExists;
  Created created;
  if (existing.state == FileState::kPosix) {
    created.handle = PFS_TRY(Open(existing.ino, flags & ~(O_CREAT | O_EXCL), caller, may_wait));
  } else {
    FilePtr made;
    PFS_TRY(MakeVersion(existing, (flags & O_TRUNC) != 0, caller, may_wait, &made));
    MutexLock lock(open_.mutex);
    created.handle = Attach(made, true, caller);
  }
  created.entry = OpenEntry(created.handle->file);
  return created;
}

Status Cache::Flush(const Handle& handle, const Caller& caller, bool may_wait) {
  const FilePtr& file = handle.file;
  // Descriptors inherited by a child, or closed by whoever they were passed to, publish nothing.
  if (!handle.writer || caller.process() != handle.opener) return Ok();
  if (may_wait) {
    ChangeLock change(file->change);
    return FlushLocked(file, caller, true);
  }
  if (!file->change.try_lock()) return Code::kRejected;
  AdoptedLock change(file->change);
  return FlushLocked(file, caller, false);
}

Status Cache::FlushLocked(const FilePtr& file, const Caller& caller, bool may_wait) {
  if (caller.signaled() && !file->flushed) {
    counters_.torn.fetch_add(1, std::memory_order_relaxed);
    return Ok();
  }
  Ino parent;
  std::string name;
  bool complete;
  {
    MutexLock lock(open_.mutex);
    file->flushed = true;
    if (file->nameless || !file->provisional) return Ok();
    parent = file->inode.parent;
    name = file->inode.name;
    complete = file->writers == 1;
  }
  struct stat now;
  if (::fstat(file->fd.get(), &now) != 0)
    return file->drive->Note(Status::FromErrno(errno, "fstat"));
  const bool nothing = Unmodified(*file, now) || LeftEmpty(*file, now);
  if (nothing || (complete && CloseTemporary(*file, name))) return Ok();
  if (!may_wait) return Code::kRejected;
  return Publish(file, parent, name, true, complete);
}

void Cache::Release(HandlePtr handle) {
  const FilePtr file = std::move(handle->file);
  bool last_writer = false;
  bool resident = false;
  {
    MutexLock lock(open_.mutex);
    if (handle->writer) {
      last_writer = --file->writers == 0;
    } else {
      --file->readers;
      resident = file->resident;
    }
  }
  if (resident) residents_->Close(file->ino);
  if (last_writer) {
    ChangeLock change(file->change);
    SettleWriter(file);
  }
  Forget(file);
}

// Whether the release of a write handle takes neither a commit nor anything else that may wait: it
// is not the last, or the index has the file as it is, or its name was never published and goes.
bool Cache::SettlesAtOnce(File& file) {
  bool recorded, published;
  uint64_t size;
  int64_t mtime_ns;
  {
    MutexLock lock(open_.mutex);
    if (file.writers > 1 || file.nameless || file.closed) return true;
    recorded = file.recorded;
    published = file.published;
    size = file.inode.size;
    mtime_ns = file.inode.mtime_ns;
  }
  struct stat now;
  if (::fstat(file.fd.get(), &now) != 0) return !published;
  if (recorded) {
    return static_cast<uint64_t>(now.st_size) == size &&
           now.st_mtim.tv_sec * kNsPerSecond + now.st_mtim.tv_nsec == mtime_ns;
  }
  return !published && (!file.flushed || Unmodified(file, now) || LeftEmpty(file, now));
}

bool Cache::TryRelease(HandlePtr& handle) {
  const FilePtr file = handle->file;
  if (handle->writer) {
    if (!file->change.try_lock()) return false;
    AdoptedLock change(file->change);
    if (!SettlesAtOnce(*file)) return false;
    bool last;
    {
      MutexLock lock(open_.mutex);
      last = --file->writers == 0;
    }
    if (last) SettleWriter(file);
  } else {
    bool resident;
    {
      MutexLock lock(open_.mutex);
      --file->readers;
      resident = file->resident;
    }
    if (resident) residents_->Close(file->ino);
  }
  handle.reset();
  bool nameless;
  {
    MutexLock lock(open_.mutex);
    nameless = file->nameless;
  }
  // Its bytes go too, by the drive's own thread.
  nameless ? file->drive->Post([this, file] { Forget(file); }) : Forget(file);
  return true;
}

// The last write handle is gone: seal what is visible, publish what its writer closed in good
// order, drop the rest.
void Cache::SettleWriter(const FilePtr& file) {
  Ino parent;
  std::string name;
  bool provisional;
  {
    MutexLock lock(open_.mutex);
    if (file->writers > 0 || file->nameless) return;
    provisional = file->provisional;
    parent = file->inode.parent;
    name = file->inode.name;
  }
  if (StaysTemporary(*file)) return;
  struct stat now {};
  const bool readable = ::fstat(file->fd.get(), &now) == 0;
  if (readable && LeftEmpty(*file, now)) return Drop(file);
  if (provisional) {
    const bool keep = readable && file->flushed && !Unmodified(*file, now);
    if (!keep) return Drop(file);
    if (Status status = Publish(file, parent, name, true, true); !status.ok()) {
      spdlog::warn("publishing {}: {}", name, status.ToString());
      return Drop(file);
    }
  }
  const Status sealed = Seal(file);
  if (!sealed.ok() && !sealed.Is(Code::kNotFound))
    spdlog::warn("sealing {}: {}", name, sealed.ToString());
  if (sealed.ok()) LearnDirect(*file, static_cast<uint64_t>(now.st_size));
  MutexLock lock(open_.mutex);
  file->settled = file->writers == 0;
  // Another file has the name by now, and whoever gave it to that one has not come round to saying
  // so.
  if (sealed.Is(Code::kNotFound)) file->nameless = file->replaced = true;
}

// Nothing of this version remains: its bytes go with the last handle. A name it already had goes
// now.
void Cache::Drop(const FilePtr& file) {
  bool published;
  {
    MutexLock lock(open_.mutex);
    if (file->provisional) open_.RemoveProvisionalLocked(file);
    file->provisional = false;
    file->nameless = true;
    published = file->published;
  }
  if (!published) return;
  Removal removal;
  const Status status = index_->Update([&](IndexTxn& txn) -> Status {
    removal.inodes.clear();
    const Inode inode = PFS_TRY(txn.Get(file->ino));
    return RemoveName(txn, inode, &removal);
  });
  if (status.ok()) Removed(removal);
}

// Takes a file that nobody holds out of the table, and its bytes from the drive if it has no name.
void Cache::Forget(const FilePtr& file) {
  uint64_t accounted, reserved;
  bool nameless, published;
  bool lingers;
  {
    MutexLock lock(open_.mutex);
    if (file->readers > 0 || file->writers > 0) return;
    if (file->provisional && !file->nameless) return;  // a version that its caller is about to open
    if (!file->settled && !file->nameless)
      return;  // the release that settles it comes by here again
    if (open_.FindLocked(file->ino) != file) return;  // somebody else was faster
    open_.RemoveLocked(file->ino);
    nameless = file->nameless;
    published = file->published;
    lingers = nameless && published && file->replaced;
    accounted = std::exchange(file->accounted, 0);
    reserved = std::exchange(file->reserved, 0);
    if (lingers) Linger(file->inode, accounted);
  }
  if (reserved > 0) drives_->AddQueued(file->drive->slot(), -static_cast<int64_t>(reserved));
  if (!nameless || lingers) return budget_->Account(0, reserved);
  budget_->Account(0, reserved);
  OnDrive(*file->drive, [this, file, accounted, published] {
    const BlockId& block = file->inode.block;
    if (Status status = file->drive->Note(file->drive->Unlink(block, published)); !status.ok()) {
      spdlog::warn("cannot unlink {} on {}: {}", ToHex(block), file->drive->path(),
                   status.ToString());
      return;
    }
    budget_->Account(-static_cast<int64_t>(accounted), 0);
    if (published) {
      MutexLock lock(side_mutex_);
      trash_done_.push_back({block, file->inode.drive});
    }
    Tell([&](CacheListener& listener) { listener.OnGone(file->ino); });
  });
}

}  // namespace prefixfs
