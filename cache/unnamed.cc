// Unnamed files: O_TMPFILE, the link that names one, and what is still asked about nodes whose name
// is gone.
#include <fcntl.h>
#include <sys/stat.h>

#include "cache/cache.h"

namespace prefixfs {
namespace {
// Directories and special files removed while somebody is in them; more than that at once is a
// client that leaks them, and the kernel does not always tell when it is done with one.
constexpr size_t kMaxGone = 4096;
}  // namespace

Result<Created> Cache::CreateUnnamed(Ino parent, uint32_t mode, const Caller& caller,
                                     bool may_wait) {
  EndRetry(caller);
  const Inode directory = PFS_TRY(index_->Get(parent));
  Inode inode = NewInode(directory, {}, S_IFREG | (mode & 07777), caller);
  const bool posix = directory.Has(inode_flag::kPosix);
  inode.state = posix ? FileState::kPosix : FileState::kOpen;
  FilePtr file = PFS_TRY(NewFile(std::move(inode), caller, may_wait));
  file->nameless = true;
  file->unnamed = true;
  Created created;
  {
    MutexLock lock(open_.mutex);
    created.handle = Attach(file, true, caller);
    open_.AddLocked(file);
  }
  created.entry = OpenEntry(file);
  return created;
}

// As a rename of a temporary does, the link publishes at once, whoever still writes.
Result<Entry> Cache::Link(Ino ino, Ino parent, std::string_view name) {
  PFS_TRY(CheckName(parent, name));
  FilePtr file = open_.Find(ino);
  if (!file) return Status(Code::kDenied, "one file has one name");
  if (!open_.Provisional(parent, name).empty()) return Code::kExists;
  ChangeLock change(file->change);
  {
    MutexLock lock(open_.mutex);
    if (!file->unnamed) return Status(Code::kDenied, "one file has one name");
    if (file->writers == 0) return Code::kNotFound;  // closed meanwhile, and about to go
    file->nameless = file->unnamed = false;
  }
  if (Status status = Publish(file, parent, name, false, false); !status.ok()) {
    MutexLock lock(open_.mutex);
    file->nameless = file->unnamed = true;
    return status;
  }
  return OpenEntry(file);
}

void Cache::RememberGone(const Inode& inode) {
  MutexLock lock(side_mutex_);
  if (gone_.size() >= kMaxGone) gone_.erase(gone_.begin());
  gone_[inode.ino] = inode;
  gone_count_.store(gone_.size(), std::memory_order_release);
}

void Cache::Forgotten(Ino ino) {
  if (gone_count_.load(std::memory_order_acquire) == 0) return;
  MutexLock lock(side_mutex_);
  gone_.erase(ino);
  gone_count_.store(gone_.size(), std::memory_order_release);
}

Result<Entry> Cache::GoneEntry(Ino ino) {
  if (gone_count_.load(std::memory_order_acquire) == 0) return Code::kNotFound;
  MutexLock lock(side_mutex_);
  auto it = gone_.find(ino);
  if (it == gone_.end()) return Code::kNotFound;
  Entry entry;
  entry.inode = it->second;
  entry.links = 0;
  return entry;
}

}  // namespace prefixfs
