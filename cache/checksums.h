// Checksums: XXH3-128 of every sealed block, computed in the background, so that after a crash of
// the operating system a block is served only if its bytes still are what its writer sealed.
//
// Threads: Enqueue from any thread; one worker thread, at idle scheduling priority.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "cache/base/mutex.h"
#include "cache/base/status.h"
#include "cache/index/record.h"

namespace prefixfs {

using Digest = std::array<uint8_t, 16>;  // canonical (big endian) form of XXH3-128

class Checksums {
 public:
  // `check` computes and stores the checksum of one block; it is called on the worker.
  explicit Checksums(std::function<void(Ino)> check) : check_(std::move(check)) {}
  ~Checksums() { Stop(); }

  void Start();
  void Stop() PFS_EXCLUDES(mutex_);
  void Enqueue(Ino ino) PFS_EXCLUDES(mutex_);
  uint64_t pending() PFS_EXCLUDES(mutex_);

  // Of the first `size` bytes of `fd`, read from the start. kCorrupt if the file is shorter or
  // longer.
  static Result<Digest> Compute(int fd, uint64_t size);

 private:
  void Run() PFS_EXCLUDES(mutex_);

  const std::function<void(Ino)> check_;
  Mutex mutex_;
  CondVar ready_;
  std::deque<Ino> queue_ PFS_GUARDED_BY(mutex_);
  bool busy_ PFS_GUARDED_BY(mutex_) = false;
  bool stopping_ PFS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace prefixfs
