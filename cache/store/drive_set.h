// DriveSet: the drives of one mount, and the choice of a drive for a new block.
//
// A new block goes to the healthy drive where it meets the least pressure: drives are compared by
// (bytes placed and not yet seen in `free` + 1 block) / free bytes, so that both space and queue
// count.
//
// Threads: every call from any thread; the set is constant after Open.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/config.h"
#include "cache/base/status.h"
#include "cache/store/drive.h"

namespace prefixfs {

class DriveSet {
 public:
  // Opens every path; the first that has a pool uuid decides, new ones join it, a drive of another
  // pool is kInvalid. A drive that cannot be opened because its device is gone is logged and left
  // out, unless none is left.
  static Result<std::unique_ptr<DriveSet>> Open(const std::vector<std::string>& paths);

  const std::string& pool_uuid() const { return pool_uuid_; }
  const std::vector<std::unique_ptr<Drive>>& drives() const { return drives_; }
  // The drive with that slot, or null if it is not there or has failed.
  Drive* Find(uint16_t slot) const;
  // The first drive: where the index lives.
  Drive& first() const { return *drives_.front(); }

  // kUnavailable if every drive has failed. `bytes`: what the block is expected to take. `avoid`,
  // and drives that are stalled, are taken only if there is no other.
  Result<Drive*> Place(uint64_t bytes, const Drive* avoid = nullptr) const;
  void LookForStalls(int64_t now_ns);
  bool AnyStalled() const;
  void StartChores();
  void StopChores();
  // Told by the writers: bytes expected or still expected on that drive.
  void AddQueued(uint16_t slot, int64_t bytes);
  // Reads the drives' free space again; called by a timer, so that Place makes no system call.
  void RefreshSpace();
  // Total and free bytes of the drive at that position, as of the last refresh.
  std::pair<uint64_t, uint64_t> KnownSpace(size_t position) const;
  // As of the last refresh; distinct filesystems counted once. A drive that failed keeps its last
  // total, so that its loss alone does not drive the survivors into eviction.
  uint64_t TotalBytes() const;
  // Least free bytes over min_free of the filesystem behind `slot`: free at the last refresh, less
  // what is queued on any drive of that filesystem, less `min_free`. May be negative; 0 for an
  // unknown or failed drive.
  int64_t Headroom(uint16_t slot, const SizeSpec& min_free) const;
  // How many files must go from the filesystem behind `slot` for it to have some inodes to spare,
  // as of the last refresh. 0 where inodes are made at need.
  uint64_t MissingFiles(uint16_t slot) const;

 private:
  DriveSet() = default;
  Status JoinPool();
  Status AssignSlots();
  struct State {
    std::atomic<uint64_t> total_bytes{0};
    std::atomic<uint64_t> free_bytes{0};
    std::atomic<uint64_t> total_files{0};
    std::atomic<uint64_t> free_files{0};
    std::atomic<int64_t> queued_bytes{0};
    std::atomic<uint64_t> placed_bytes{
        0};  // since the last refresh, which is when `free` knows of them
    uint64_t fs_id = 0;
  };
  std::string pool_uuid_;
  std::vector<std::unique_ptr<Drive>> drives_;
  std::vector<std::unique_ptr<State>> states_;  // by position in drives_
  mutable std::atomic<uint32_t> turn_{0};  // where Place starts, so that equal drives take turns
};

}  // namespace prefixfs
