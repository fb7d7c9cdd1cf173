// Scrubber: reads every sealed block again, slowly, so that bytes which have changed on a drive are
// found before an engine reads them.
//
// It goes through the blocks in the order of their numbers, at most `rate` bytes a second, and at a
// sixteenth of that while engines are at work; a pass begins at most once in `interval`.
//
// Threads: one of its own, at idle priority for the drive, and for the processor while it hashes.
// Start and Stop from one thread; the counts from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/index/record.h"

namespace prefixfs {

class Scrubber {
 public:
  struct Limits {
    uint64_t bytes_per_s = 0;  // 0: it never runs
    int64_t interval_ms = 0;
  };
  // What it works on; each is called on its thread.
  struct Store {
    std::function<std::vector<Ino>(Ino after)> next;  // some of those above; none at the end
    std::function<uint64_t(Ino)> check;               // returns the bytes that were read
    std::function<uint64_t()> activity;               // grows while engines are at work
  };
  Scrubber(const Limits& limits, Store store) : limits_(limits), store_(std::move(store)) {}
  ~Scrubber() { Stop(); }

  void Start();
  void Stop() PFS_EXCLUDES(mutex_);

  uint64_t blocks() const { return blocks_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t passes() const { return passes_.load(std::memory_order_relaxed); }

 private:
  void Run() PFS_EXCLUDES(mutex_);
  bool Pass() PFS_EXCLUDES(mutex_);
  // False: to be stopped.
  bool Sleep(int64_t ns) PFS_EXCLUDES(mutex_);
  bool IsBusy();

  const Limits limits_;
  const Store store_;
  std::atomic<uint64_t> blocks_{0}, bytes_{0}, passes_{0};
  uint64_t seen_activity_ = 0;  // its own thread only
  int64_t busy_until_ns_ = 0;   // its own thread only
  Mutex mutex_;
  CondVar turn_;
  bool stopping_ PFS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace prefixfs
