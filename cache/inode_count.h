// InodeCount: how many inodes the mount has, against the most it may have (`max_inodes`).
//
// A claim stands for an inode that is being made, and counts from the moment it is granted, so that
// the limit holds whatever is made at the same time. It is kept when the index has the inode, which
// is then counted until it is removed there; otherwise it gives itself back.
//
// Threads: every call from any thread. The count outlives its claims.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace prefixfs {

class InodeCount {
 public:
  explicit InodeCount(uint64_t most) : most_(most) {}

  uint64_t most() const { return most_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  bool TryAdd() {
    uint64_t used = used_.load(std::memory_order_relaxed);
    while (used < most_) {
      if (used_.compare_exchange_weak(used, used + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  // What is there already, whatever the limit says.
  void Add(uint64_t count) { used_.fetch_add(count, std::memory_order_relaxed); }
  void Subtract(uint64_t count) { used_.fetch_sub(count, std::memory_order_relaxed); }

 private:
  const uint64_t most_;
  std::atomic<uint64_t> used_{0};
};

// One inode that is counted. Move-only.
class InodeClaim {
 public:
  InodeClaim() = default;
  explicit InodeClaim(InodeCount* count) : count_(count) {}
  InodeClaim(InodeClaim&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
  InodeClaim& operator=(InodeClaim&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  ~InodeClaim() {
    if (count_ != nullptr) count_->Subtract(1);
  }
  // The index has the inode: it counts until it is removed there.
  void Keep() { count_ = nullptr; }

 private:
  InodeCount* count_ = nullptr;
};

}  // namespace prefixfs
