// Spares: new, empty backing files made ahead, so that whoever creates a block waits for no drive.
//
// A create holds its directory, and with it every first lookup of a name there; so it takes a file
// that is there already, and where there is none it waits a few milliseconds at most.
//
// Threads: every call from any thread; the lock is never held over I/O. A thread of its own makes
// the files.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/status.h"
#include "cache/base/worker_pool.h"
#include "cache/index/record.h"

namespace prefixfs {

struct SpareFile {
  BlockId block{};
  Fd fd;  // O_RDWR
};

class Spares {
 public:
  using Make = std::function<Result<SpareFile>()>;
  using Remove = std::function<void(const SpareFile&)>;
  // `make` is called by the thread that Start begins; without it nothing is made ahead.
  Spares(Make make, Remove remove) : make_(std::move(make)), remove_(std::move(remove)) {}

  void Start();
  // Waits for a file that is being made, and removes those that nobody took.
  void Stop() PFS_EXCLUDES(mutex_);

  // Nothing if there is none at this moment.
  std::optional<SpareFile> Take() PFS_EXCLUDES(mutex_);
  // Waits until one is made: kTimedOut after `wait_ms`, or why it could not be made.
  Result<SpareFile> Take(int64_t wait_ms) PFS_EXCLUDES(mutex_);

 private:
  static constexpr size_t kKept = 32;
  void Want() PFS_REQUIRES(mutex_);
  void Fill() PFS_EXCLUDES(mutex_);

  const Make make_;
  const Remove remove_;
  Mutex mutex_;
  CondVar made_;
  std::deque<SpareFile> files_ PFS_GUARDED_BY(mutex_);
  bool filling_ PFS_GUARDED_BY(mutex_) = false;
  bool stopping_ PFS_GUARDED_BY(mutex_) = false;
  uint64_t rounds_ PFS_GUARDED_BY(mutex_) = 0;  // of filling, that ended
  Status failure_ PFS_GUARDED_BY(mutex_);       // of the last round
  std::unique_ptr<WorkerPool> maker_;
};

}  // namespace prefixfs
