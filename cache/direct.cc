// Direct: who serves a handle that a client opened with O_DIRECT, the kernel or the daemon.
//
// By passthrough O_DIRECT is as fast as the drive, and refuses what is not aligned; the daemon
// takes any address, length and offset. Whether a reader needs that is told by the size of its
// block, whether a writer will is guessed from what its process has written so far.
#include <fcntl.h>
#include <sys/stat.h>

#include "cache/cache.h"

namespace prefixfs {
namespace {
constexpr uint32_t kBlocksToTrust = 16;
constexpr size_t kMaxHabits = 4096;
}  // namespace

std::string_view Cache::DirectMode(Ino parent) {
  if (config_.o_direct_rules.empty()) return config_.o_direct;
  const Result<Inode> space = index_->Get(NamespaceOf(parent));
  if (space.ok()) {
    for (const DirectRule& rule : config_.o_direct_rules) {
      if (rule.name == space->name) return rule.mode;
    }
  }
  return config_.o_direct;
}

bool Cache::ServesNatively(const Handle& handle, int flags, const Caller& caller) {
  const FilePtr& file = handle.file;
  const uint32_t alignment = file->drive->direct_alignment();
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  Ino parent;
  bool sealed, posix;
  uint64_t size;
  {
    MutexLock lock(open_.mutex);
    parent = file->inode.parent;
    sealed = file->sealed();
    posix = file->posix();
    size = file->inode.size;
  }
  const std::string_view mode = DirectMode(parent);
  bool native = mode == "native";
  if (mode == "auto" && alignment > 0) {
    if (writes) {
      const ProcessId process = caller.process();
      const Ino space = NamespaceOf(parent);
      MutexLock lock(side_mutex_);
      auto it = direct_habits_.find({process.tgid, process.start, space});
      native = it != direct_habits_.end() && it->second >= kBlocksToTrust;
    } else {
      // The size of what is still being written is not known yet.
      native = sealed && size % alignment == 0;
    }
  }
  if (writes && !posix) {
    MutexLock lock(open_.mutex);
    file->direct = true;
    file->native_direct |= native;
  }
  return native;
}

// Whether all that a native O_DIRECT writer did may have been refused: then there is no block.
bool Cache::LeftEmpty(const File& file, const struct stat& now) {
  if (now.st_size != 0) return false;
  ProcessId owner;
  Ino parent;
  {
    MutexLock lock(open_.mutex);
    if (!file.native_direct || file.posix()) return false;
    owner = file.owner;
    parent = file.inode.parent;
  }
  const Ino space = NamespaceOf(parent);
  MutexLock lock(side_mutex_);
  direct_habits_.erase({owner.tgid, owner.start, space});
  return true;
}

void Cache::LearnDirect(const File& file, uint64_t size) {
  const uint32_t alignment = file.drive->direct_alignment();
  ProcessId owner;
  Ino parent;
  {
    MutexLock lock(open_.mutex);
    if (!file.direct || alignment == 0) return;
    owner = file.owner;
    parent = file.inode.parent;
  }
  if (owner.tgid == 0) return;  // processes outside our PID namespace cannot be told apart
  const Ino space = NamespaceOf(parent);
  MutexLock lock(side_mutex_);
  if (direct_habits_.size() >= kMaxHabits) direct_habits_.clear();
  uint32_t& aligned = direct_habits_[{owner.tgid, owner.start, space}];
  aligned = size % alignment == 0 ? aligned + 1 : 0;
}

}  // namespace prefixfs
