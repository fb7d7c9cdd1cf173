#include "fs/requests.h"

#include <algorithm>

namespace prefixfs {
namespace {

// Threads take turns in where they look first; those of the ring and the workers are few.
size_t FirstSlot() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t own = threads.fetch_add(1, std::memory_order_relaxed);
  return own;
}

}  // namespace

Requests::Slot* Requests::Begin(Op op, Ino ino, pid_t tid, uid_t uid, int64_t start_ns) {
  const size_t first = FirstSlot() * kOwn;
  for (size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots_[(first + i) % kSlots];
    if (!Take(slot, start_ns)) continue;
    // Each with release, so that whoever reads it sees that the slot has been taken anew.
    slot.ino.store(ino, std::memory_order_release);
    slot.tid.store(tid, std::memory_order_release);
    slot.uid.store(uid, std::memory_order_release);
    slot.op.store(op, std::memory_order_release);
    slot.answered.store(false, std::memory_order_release);
    slot.wait.Set(Wait::kNothing);
    slot.turn.store(slot.turn.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    // From now on it is whole: a reader passes over what is negative.
    slot.start_ns.store(start_ns, std::memory_order_release);
    return &slot;
  }
  untracked_.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

std::vector<Requests::Request> Requests::All() const {
  std::vector<Request> all;
  for (size_t i = 0; i < kSlots; ++i) {
    const Slot& slot = slots_[i];
    const int64_t start_ns = slot.start_ns.load(std::memory_order_acquire);
    if (start_ns <= 0) continue;
    Request request;
    request.start_ns = start_ns;
    request.id = uint64_t{slot.turn.load(std::memory_order_acquire)} * kSlots + i;
    request.op = slot.op.load(std::memory_order_acquire);
    request.ino = slot.ino.load(std::memory_order_acquire);
    request.tid = slot.tid.load(std::memory_order_acquire);
    request.uid = slot.uid.load(std::memory_order_acquire);
    request.answered = slot.answered.load(std::memory_order_acquire);
    const uint32_t wait = slot.wait.Raw();
    request.wait = WaitMark::WhatOf(wait);
    request.drive = WaitMark::DriveOf(wait);
    // Another request has the slot by now: what was read is of two.
    if (slot.start_ns.load(std::memory_order_relaxed) != start_ns) continue;
    all.push_back(request);
  }
  std::sort(all.begin(), all.end(),
            [](const Request& a, const Request& b) { return a.start_ns < b.start_ns; });
  return all;
}

}  // namespace prefixfs
