// Attributes: stat, chmod, chown, utimens, truncate, statfs, and the client's own xattrs.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "cache/cache.h"

namespace prefixfs {
namespace {

constexpr uint32_t kBlockSize = 4096;
// Cleaners outside start at 80 % used; what eviction gives back on demand counts as free.
constexpr double kMostUsed = 0.79;

void Apply(const AttributeChange& change, int64_t now_ns, Inode* inode) {
  if (change.mode) inode->mode = (inode->mode & S_IFMT) | (*change.mode & 07777);
  // A change of the owner always takes them, for the kernel leaves it to us.
  if ((change.kill_set_id || change.uid || change.gid) && inode->IsFile()) {
    inode->mode &= ~static_cast<uint32_t>(S_ISUID);
    if (inode->mode & S_IXGRP) inode->mode &= ~static_cast<uint32_t>(S_ISGID);
  }
  if (change.uid) inode->uid = *change.uid;
  if (change.gid) inode->gid = *change.gid;
  if (change.atime_ns) inode->atime_ns = *change.atime_ns;
  if (change.mtime_ns) inode->mtime_ns = *change.mtime_ns;
  inode->ctime_ns = now_ns;
}

void SetTimes(int fd, const AttributeChange& change) {
  auto spec = [](const std::optional<int64_t>& ns) {
    return ns ? ToTimespec(*ns) : timespec{0, UTIME_OMIT};
  };
  const timespec times[2] = {spec(change.atime_ns), spec(change.mtime_ns)};
  (void)::futimens(fd, times);
}

}  // namespace

Result<Entry> Cache::GetAttributes(Ino ino, const Handle* handle, bool may_wait) {
  FilePtr file = handle != nullptr ? handle->file : open_.Find(ino);
  if (file) {
    (void)residents_->Touch(ino);
    return OpenEntry(file);
  }
  Result<Inode> found = index_->Get(ino);
  if (found.status().Is(Code::kNotFound)) {
    found = FindReplaced(
        [&]() -> Result<Inode> {
          if (FilePtr open = open_.Find(ino)) return OpenEntry(open).inode;
          MutexLock lock(side_mutex_);
          auto it = lingering_.find(ino);
          return it == lingering_.end() ? Result<Inode>(Code::kNotFound) : it->second.inode;
        },
        may_wait);
  }
  if (found.status().Is(Code::kNotFound)) {
    Result<Entry> gone = GoneEntry(ino);
    // Nobody has it open: its name may be of another by now.
    return gone.status().Is(Code::kNotFound) ? Status(Code::kStale) : gone;
  }
  const Inode inode = PFS_TRY(std::move(found));
  if (inode.IsFile() && residents_->Touch(ino) == Residents::Probe::kGone) return Code::kNotFound;
  Entry entry = MakeEntry(inode);
  MutexLock lock(side_mutex_);
  if (auto it = accesses_.find(ino); it != accesses_.end()) entry.inode.atime_ns = it->second.at_ns;
  return entry;
}

// Of a file that takes its times from the backing file whenever it is settled: before the index has
// them, so that a settling in between finds them too.
void Cache::SetBackingTimes(Ino ino, const FilePtr& file, const AttributeChange& change) {
  if (file) {
    ChangeLock guard(file->change);
    if (!file->sealed() && file->fd.valid()) SetTimes(file->fd.get(), change);
    return;
  }
  const Result<Inode> inode = index_->Get(ino);
  if (!inode.ok() || !inode->IsFile() || inode->state != FileState::kPosix) return;
  Drive* drive = drives_->Find(inode->drive);
  if (drive == nullptr) return;
  const Result<Fd> fd = drive->OpenWritable(inode->block);
  if (fd.ok()) SetTimes(fd->get(), change);
}

Result<Entry> Cache::SetAttributes(Ino ino, const Handle* handle, const AttributeChange& change,
                                   const Caller& caller, bool may_wait) {
  if (change.size) {
    Result<Entry> truncated = SetSize(ino, handle, *change.size, caller, may_wait);
    if (!truncated.ok()) return truncated;
    AttributeChange rest = change;
    rest.size.reset();
    if (!rest.mode && !rest.uid && !rest.gid && !rest.atime_ns && !rest.mtime_ns &&
        !rest.kill_set_id)
      return truncated;
    return SetAttributes(truncated->inode.ino, handle, rest, caller, may_wait);
  }
  const int64_t now = clock_.WallNs();
  FilePtr file = handle != nullptr ? handle->file : open_.Find(ino);
  if (change.touch) residents_->Refresh(ino);
  Inode inode;
  const Changing changing(*this);
  if (change.atime_ns || change.mtime_ns) SetBackingTimes(ino, file, change);
  Status updated = index_->Update([&](IndexTxn& txn) -> Status {
    inode = PFS_TRY(txn.Get(ino));
    Apply(change, now, &inode);
    return txn.Put(inode);
  });
  if (updated.Is(Code::kNotFound) && file)
    updated = Ok();  // provisional or nameless: only the table knows it
  if (updated.Is(Code::kNotFound)) {
    // Removed or replaced since its name was looked up: it is changed all the same, as any file is.
    Result<Entry> changed = FindReplaced([&]() -> Result<Entry> {
      MutexLock lock(side_mutex_);
      const auto gone = gone_.find(ino);
      const auto lingering = lingering_.find(ino);
      if (gone == gone_.end() && lingering == lingering_.end()) return Code::kNotFound;
      Entry entry;
      Inode& inode_then = gone != gone_.end() ? gone->second : lingering->second.inode;
      Apply(change, now, &inode_then);
      entry.inode = inode_then;
      entry.links = 0;
      return entry;
    });
    if (changed.ok()) return changed;
  }
  PFS_TRY(updated);
  {
    MutexLock lock(side_mutex_);
    if (change.atime_ns) accesses_.erase(ino);
  }
  if (!file) file = open_.Find(ino);
  if (file) {
    ChangeLock guard(file->change);
    {
      MutexLock lock(open_.mutex);
      Apply(change, now, &file->inode);
      if (file->base != 0 && !change.touch) file->modified = true;
      inode = file->inode;
    }
    if (file->published && !change.touch) RefreshHeader(inode.ino);
    return OpenEntry(file);
  }
  if (!change.touch) {
    if (inode.IsFile()) {
      RefreshHeader(inode.ino);
    } else {
      WriteRecord(inode);
    }
  }
  return MakeEntry(inode);
}

// truncate(2) and ftruncate(2). By name a sealed block gets a new version: once to make it (kStale,
// the kernel looks the name up again), once more to cut and publish it.
Result<Entry> Cache::SetSize(Ino ino, const Handle* handle, uint64_t size, const Caller& caller,
                             bool may_wait) {
  EndRetry(caller);
  FilePtr file = handle != nullptr && handle->writer ? handle->file : open_.Find(ino);
  if (file) {
    bool cut = false;
    {
      ChangeLock change(file->change);
      cut = PFS_TRY(Cut(file, handle, size, caller));
    }
    if (cut) {
      EndSecondLook(caller);
      Entry entry = OpenEntry(file);
      Forget(file);
      return entry;
    }
  }
  Result<Inode> found = index_->Get(ino);
  if (found.status().Is(Code::kNotFound)) found = FindReplaced([&] { return SuccessorOf(ino); });
  if (found.status().Is(Code::kStale)) return StaleFor(caller, nullptr, size == 0);
  const Inode inode = PFS_TRY(std::move(found));
  if (inode.IsDirectory()) return Code::kIsDirectory;
  if (inode.state == FileState::kPosix) {
    HandlePtr opened = PFS_TRY(OpenPosix(inode, O_RDWR, caller));
    Result<Entry> entry = SetSize(inode.ino, opened.get(), size, caller, may_wait);
    Release(std::move(opened));
    return entry;
  }
  FilePtr made;
  PFS_TRY(MakeVersion(inode, size == 0, caller, may_wait, &made));
  return StaleFor(caller, made, size == 0);
}

// Cuts a file that this caller may write, and publishes it if that was all its version was made
// for. False if it is sealed, or somebody else's.
Result<bool> Cache::Cut(const FilePtr& file, const Handle* handle, uint64_t size,
                        const Caller& caller) {
  bool unopened;
  Ino parent;
  std::string name;
  {
    MutexLock lock(open_.mutex);
    const bool own = handle != nullptr || file->posix() || file->owner_tid == caller.tid() ||
                     file->owner == caller.process();
    if (file->sealed() || !own) return false;
    unopened = file->writers == 0 && file->provisional;
    parent = file->inode.parent;
    name = file->inode.name;
    // Closed, and about to be sealed by the release that waits for us.
    if (file->writers == 0 && !file->provisional) return false;
  }
  PFS_TRY(Truncate(file, size));
  if (unopened) {
    PFS_TRY(Publish(file, parent, name, true, true));
    PFS_TRY(Seal(file));
  }
  return true;
}

Result<std::string> Cache::ReadLink(Ino ino) {
  Inode inode = PFS_TRY(index_->Get(ino));
  if (!inode.IsSymlink()) return Code::kInvalid;
  return std::move(inode.target);
}

Status Cache::WithXattrFd(Ino ino, const std::function<Status(int)>& use) {
  if (const FilePtr file = open_.Find(ino)) {
    int fd = -1;
    {
      MutexLock lock(open_.mutex);
      if (!file->sealed()) fd = file->fd.get();
    }
    if (fd >= 0) return use(fd);
  }
  const Inode inode = PFS_TRY(index_->Get(ino));
  if (!inode.IsFile() && !inode.IsDirectory()) return Code::kDenied;
  Drive* drive = inode.IsFile() ? drives_->Find(inode.drive) : &drives_->first();
  if (drive == nullptr) return Code::kNotFound;
  Result<Fd> fd = inode.IsFile() ? drive->OpenWritable(inode.block) : drive->OpenRecord(ino);
  if (!fd.ok()) return drive->Note(fd.status());
  return use(fd->get());
}

struct statvfs Cache::FileSystemStatus() {
  const uint64_t capacity = budget_->limits().capacity;
  const uint64_t used = std::min(budget_->used() + budget_->reserved(), capacity);
  const uint64_t most = static_cast<uint64_t>(static_cast<double>(capacity) * kMostUsed);
  struct statvfs status {};
  status.f_bsize = status.f_frsize = kBlockSize;
  status.f_blocks = capacity / kBlockSize;
  status.f_bfree = status.f_bavail = (capacity - std::min(used, most)) / kBlockSize;
  // As with space: what can be evicted counts as free, as far as cleaners look.
  const uint64_t inodes = std::min(inodes_.used(), inodes_.most());
  const uint64_t kept = inodes - std::min(inodes, residents_->count());
  const auto most_inodes = static_cast<uint64_t>(static_cast<double>(inodes_.most()) * kMostUsed);
  status.f_files = inodes_.most();
  status.f_ffree = status.f_favail = inodes_.most() - std::max(kept, std::min(inodes, most_inodes));
  status.f_namemax = kMaxName;
  return status;
}

}  // namespace prefixfs
