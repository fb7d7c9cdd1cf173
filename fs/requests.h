// Requests: those under way, for whoever asks what a mount is busy with, and for the watch.
//
// A table of slots. A request takes one of its thread's own few, so that the common case is one
// exchange on a cache line that nobody else writes; if all are taken, any free one; if none is
// free, the request is not in the table and only counted. Nothing here waits, and reading the table
// takes no lock.
//
// Threads: every call from any thread. A slot belongs to its request until End.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/base/waiting.h"
#include "cache/index/record.h"
#include "fs/op_stats.h"

namespace prefixfs {

class Requests {
 public:
  static constexpr size_t kSlots = 8192;

  struct alignas(64) Slot {
    std::atomic<int64_t> start_ns{0};  // 0: free
    std::atomic<uint64_t> ino{0};
    std::atomic<pid_t> tid{0};
    std::atomic<uid_t> uid{0};
    std::atomic<uint32_t> turn{0};  // how many requests the slot has had
    WaitMark wait;
    std::atomic<Op> op{Op::kCount};
    std::atomic<bool> answered{false};  // at its deadline, and is still worked on
  };

  // Null if there is no free slot.
  Slot* Begin(Op op, Ino ino, pid_t tid, uid_t uid, int64_t start_ns);
  static void End(Slot* slot) { slot->start_ns.store(0, std::memory_order_release); }

  struct Request {
    uint64_t id = 0;  // differs from that of every other request
    Op op{};
    Ino ino = 0;
    pid_t tid = 0;
    uid_t uid = 0;
    int64_t start_ns = 0;
    Wait wait{};
    uint16_t drive = WaitMark::kNoDrive;
    bool answered = false;
  };
  // Oldest first.
  std::vector<Request> All() const;
  // How many did not find a slot.
  uint64_t untracked() const { return untracked_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kOwn = 16;  // slots of a thread, before it looks further
  static bool Take(Slot& slot, int64_t start_ns) {
    int64_t free = 0;
    return slot.start_ns.load(std::memory_order_relaxed) == 0 &&
           slot.start_ns.compare_exchange_strong(free, -start_ns, std::memory_order_acquire);
  }

  std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(kSlots);
  std::atomic<uint64_t> untracked_{0};
};

// The slot of one request. Move-only; given back in the destructor.
class RequestSlot {
 public:
  RequestSlot() = default;
  explicit RequestSlot(Requests::Slot* slot) : slot_(slot) {}
  RequestSlot(RequestSlot&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  RequestSlot& operator=(RequestSlot&& other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~RequestSlot() {
    if (slot_ == nullptr) return;
    if (current_wait == &slot_->wait) current_wait = nullptr;
    Requests::End(slot_);
  }
  WaitMark* mark() const { return slot_ == nullptr ? nullptr : &slot_->wait; }
  void SetAnswered() const {
    if (slot_ != nullptr) slot_->answered.store(true, std::memory_order_relaxed);
  }

 private:
  Requests::Slot* slot_ = nullptr;
};

}  // namespace prefixfs
