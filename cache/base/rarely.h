// Rarely: true at most once in ten seconds, for messages that a condition would repeat.
//
// Threads: every call from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/base/clock.h"

namespace prefixfs {

class Rarely {
 public:
  bool Now() {
    const int64_t now = Clock::Real().MonotonicNs();
    int64_t next = next_ns_.load(std::memory_order_relaxed);
    return now >= next &&
           next_ns_.compare_exchange_strong(next, now + kIntervalNs, std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kIntervalNs = 10 * kNsPerSecond;
  std::atomic<int64_t> next_ns_{0};
};

}  // namespace prefixfs
