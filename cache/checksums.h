// Checksums: XXH3-128 of every sealed block, computed in the background, so that after a crash of
// the operating system a block is served only if its bytes still are what its writer sealed.
//
// Threads: Enqueue from any thread; one worker thread, which reads and hashes at idle priority.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "cache/base/idle.h"
#include "cache/base/mutex.h"
#include "cache/base/status.h"
#include "cache/index/record.h"

namespace prefixfs {

using Digest = std::array<uint8_t, 16>;  // canonical (big endian) form of XXH3-128

class Checksums {
 public:
  // A commit of the index less for each block; the next write of a client need not wait for it.
  static constexpr size_t kMostAtOnce = 16;

  // `check` computes and stores the checksums of up to kMostAtOnce blocks; it is called on the
  // worker.
  explicit Checksums(std::function<void(const std::vector<Ino>&)> check)
      : check_(std::move(check)) {}
  ~Checksums() { Stop(); }

  void Start();
  void Stop() PFS_EXCLUDES(mutex_);
  void Enqueue(Ino ino) PFS_EXCLUDES(mutex_);
  uint64_t pending() PFS_EXCLUDES(mutex_);

  // Of the first `size` bytes of `fd`, read from the start. kCorrupt if the file is shorter or
  // longer.
  static Result<Digest> Compute(int fd, uint64_t size);
  // The same at idle priority: engines come first.
  static Result<Digest> ComputeAtLeisure(int fd, uint64_t size) {
    const Idle idle;
    return Compute(fd, size);
  }
  // And of what the drive has, past the page cache where the filesystem can.
  static Result<Digest> ComputeFromDrive(int fd, uint64_t size, uint32_t alignment);

 private:
  void Run() PFS_EXCLUDES(mutex_);

  const std::function<void(const std::vector<Ino>&)> check_;
  Mutex mutex_;
  CondVar ready_;
  std::deque<Ino> queue_ PFS_GUARDED_BY(mutex_);
  size_t busy_ PFS_GUARDED_BY(mutex_) = 0;  // blocks that were taken and are not finished
  bool stopping_ PFS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace prefixfs
