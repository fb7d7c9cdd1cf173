// Quarantine: backing files whose bytes are not what was sealed, kept for whoever wants to know
// why. Each is a second name, DIR/quarantine/<block id>, of the file that the block had; nothing is
// ever served from there. Beyond the limit the oldest go.
//
// Threads: every call from any thread.
#pragma once

#include <cstdint>
#include <deque>

#include "cache/base/mutex.h"
#include "cache/store/drive_set.h"

namespace prefixfs {

class Quarantine {
 public:
  // `limit_bytes` 0: nothing is kept.
  Quarantine(DriveSet& drives, uint64_t limit_bytes) : drives_(drives), limit_bytes_(limit_bytes) {}

  // Each of these returns by how much the bytes on the drives change once the file's other name is
  // gone.
  // Finds what earlier daemons have kept. Once, at start.
  int64_t Load() PFS_EXCLUDES(mutex_);
  // To be called while the file still has its other name. A file that cannot be kept is logged; 0
  // also if it was kept already.
  int64_t Keep(uint16_t drive, const BlockId& block) PFS_EXCLUDES(mutex_);
  // It was whole after all.
  int64_t Drop(uint16_t drive, const BlockId& block) PFS_EXCLUDES(mutex_);

  // All of it, because space is short and there is nothing else to give.
  int64_t Clear() PFS_EXCLUDES(mutex_) { return Trim(0); }

  uint64_t blocks() PFS_EXCLUDES(mutex_);
  uint64_t bytes() PFS_EXCLUDES(mutex_);

 private:
  struct Kept {
    BlockId block{};
    uint16_t drive = 0;
    uint64_t bytes = 0;
    int64_t since_ns = 0;
  };
  int64_t Add(const Kept& kept) PFS_REQUIRES(mutex_);
  int64_t Trim(uint64_t limit_bytes) PFS_EXCLUDES(mutex_);

  DriveSet& drives_;
  const uint64_t limit_bytes_;
  Mutex mutex_;
  std::deque<Kept> kept_ PFS_GUARDED_BY(mutex_);  // oldest first
  uint64_t bytes_ PFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace prefixfs
