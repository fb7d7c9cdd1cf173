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

uint32_t Cache::DirectHabit(const Caller& caller, Ino parent) {
  const ProcessId process = caller.process();
  const Ino space = NamespaceOf(parent);
  MutexLock lock(side_mutex_);
  auto it = direct_habits_.find({process.tgid, process.start, space});
  return it == direct_habits_.end() ? 0 : it->second;
}

Cache::DirectWay Cache::ChooseDirect(const Handle& handle, int flags, const Caller& caller,
                                     bool passthrough) {
  const FilePtr& file = handle.file;
  const uint32_t alignment = file->drive->direct_alignment();
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
  const bool automatic = mode == "auto" && alignment > 0;
  DirectWay way{.native = passthrough && mode == "native"};
  if ((flags & O_ACCMODE) == O_RDONLY) {
    // The size of what is still being written is not known yet.
    way.native |= passthrough && automatic && sealed && size % alignment == 0;
    return way;
  }
  const uint32_t habit = DirectHabit(caller, parent);
  way.native |= passthrough && automatic && habit >= kBlocksToTrust;
  // A block that is no multiple ends in the page cache at best, and the kernel cuts its write into
  // pieces of which the first are multiples. All of it in one place is read back faster.
  way.page_cache = !way.native && !posix && habit == 0;
  if (!posix) {
    MutexLock lock(open_.mutex);
    file->direct = true;
    file->native_direct |= way.native;
  }
  return way;
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
