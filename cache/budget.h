// Budget: the byte account of a mount and the promise made at create.
//
// used      what the tier's files take on their filesystems (st_blocks), open and unlinked-but-open
// ones included reserved  what granted creates may still write Invariant when a reservation is
// granted: used + reserved <= capacity. Between grants `used` may run ahead of the promise by what
// open writers add within one account interval: the documented slack.
//
// Threads: every call from any thread; one lock, never held over I/O.
#pragma once

#include <cstdint>
#include <functional>

#include "cache/base/mutex.h"
#include "cache/base/status.h"

namespace prefixfs {

class Budget {
 public:
  struct Limits {
    uint64_t capacity = 0;
    uint64_t high = 0;  // the evictor starts above
    uint64_t low = 0;   // and stops below
  };
  // `on_pressure` is called without the lock whenever the evictor ought to run.
  Budget(Limits limits, std::function<void()> on_pressure)
      : limits_(limits), on_pressure_(std::move(on_pressure)) {}

  const Limits& limits() const { return limits_; }

  // Grants at once or not at all (kRejected; kNoSpace if it can never fit).
  Status TryReserve(uint64_t bytes) PFS_EXCLUDES(mutex_);
  // Waits up to `wait_ms` for the evictor; kNoSpace then, or as soon as the evictor says that
  // nothing is evictable and no lease will run out in time.
  Status Reserve(uint64_t bytes, int64_t wait_ms) PFS_EXCLUDES(mutex_);
  void Unreserve(uint64_t bytes) PFS_EXCLUDES(mutex_);
  // Files grew or shrank. The reservation that covers the growth shrinks with it, in the same step.
  void Account(int64_t used_delta, uint64_t unreserve) PFS_EXCLUDES(mutex_);

  // The evictor's view: bytes to free now. 0 below the high watermark with nobody waiting.
  uint64_t Wanted() PFS_EXCLUDES(mutex_);
  // The evictor found nothing to evict at all (no lease is running either): waiters fail now rather
  // than later.
  void NothingEvictable() PFS_EXCLUDES(mutex_);

  uint64_t used() PFS_EXCLUDES(mutex_);
  uint64_t reserved() PFS_EXCLUDES(mutex_);

 private:
  bool Fits(uint64_t bytes) const PFS_REQUIRES(mutex_) {
    return used_ + reserved_ + bytes <= limits_.capacity;
  }

  const Limits limits_;
  const std::function<void()> on_pressure_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t used_ PFS_GUARDED_BY(mutex_) = 0;
  uint64_t reserved_ PFS_GUARDED_BY(mutex_) = 0;
  uint64_t waiting_ PFS_GUARDED_BY(mutex_) = 0;   // bytes asked for by waiters
  uint64_t verdicts_ PFS_GUARDED_BY(mutex_) = 0;  // how often nothing was evictable
  bool evicting_ PFS_GUARDED_BY(mutex_) = false;  // between the watermarks, on the way down
};

}  // namespace prefixfs
