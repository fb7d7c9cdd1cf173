// InoSource: inode numbers that are never given twice. Private to cache/index.
//
// The index stores a number from which on none was given yet (meta_key::kNextIno); numbers below it
// are handed out without touching the disk. Whenever a batch commits and less than half a
// reservation is left, the batch extends it, so that it rarely runs dry.
//
// Invariant: next_ <= what is stored, but for a moment after RaiseAbove, when Next gives nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "cache/index/record.h"

namespace prefixfs {

class InoSource {
 public:
  static constexpr uint64_t kReservation = 65'536;

  // All numbers from `stored` on are free, and none is reserved yet.
  void Start(uint64_t stored) {
    limit_ = stored;
    next_ = stored;
  }

  // Nothing if the reservation is used up: commit an extension first.
  std::optional<Ino> Next() {
    uint64_t ino = next_.load();
    while (ino < limit_.load()) {
      if (next_.compare_exchange_weak(ino, ino + 1)) return ino;
    }
    return std::nullopt;
  }

  void RaiseAbove(Ino floor) {
    uint64_t next = next_.load();
    while (next <= floor && !next_.compare_exchange_weak(next, floor + 1)) {
    }
  }

  bool IsLow() const { return next_.load() + kReservation / 2 > limit_.load(); }
  // What to store next; in force once Extend is called, after the commit.
  uint64_t NextLimit() const { return std::max(next_.load(), limit_.load()) + kReservation; }
  void Extend(uint64_t limit) { limit_ = limit; }
  uint64_t next() const { return next_; }

 private:
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> limit_{0};
};

}  // namespace prefixfs
