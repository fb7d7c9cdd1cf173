// Flow: whether calls on a drive come to an end. One that has calls under way and finishes none of
// them for a while is stalled, until one ends.
//
// Threads: Begin and End from any thread; Look from one at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/base/clock.h"

namespace prefixfs {

class Flow {
 public:
  void Begin() { begun_.fetch_add(1, std::memory_order_relaxed); }
  void End() { ended_.fetch_add(1, std::memory_order_relaxed); }

  // To be called every few milliseconds.
  bool Look(int64_t now_ns) {
    // In this order, so that what ends in between does not count as under way.
    const uint64_t begun = begun_.load(std::memory_order_relaxed);
    const uint64_t ended = ended_.load(std::memory_order_relaxed);
    if (ended != seen_ || ended >= begun) {
      seen_ = ended;
      since_ns_ = now_ns;
    }
    return now_ns - since_ns_ > kStalledNs;
  }

 private:
  // A drive that works hard takes milliseconds.
  static constexpr int64_t kStalledNs = 100 * kNsPerMs;
  std::atomic<uint64_t> begun_{0}, ended_{0};
  uint64_t seen_ = 0;
  int64_t since_ns_ = INT64_MAX / 2;  // until the first look
};

}  // namespace prefixfs
