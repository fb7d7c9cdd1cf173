// Waiting: what a thread waits for, said where it waits and read by whoever looks after requests
// that take too long.
//
// A request has a WaitMark; the thread that works on it adopts the mark (WorksFor), and each place
// that may wait says so for as long as it does (Waiting). A thread that works for no request, such
// as the evictor, says nothing.
//
// Threads: a mark is written by the one thread that works for it and read by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace prefixfs {

enum class Wait : uint8_t {
  kNothing,      // it is being worked on
  kWorker,       // in a queue, until a worker is free
  kSpace,        // for bytes or inodes that the evictor frees
  kFile,         // for another call on the same file
  kReplacement,  // for a rename under way to be done
  kIndex,        // for a commit of the index
  kChecksum,     // until the block has been read and compared
  // The drive, with its slot:
  kSpareFile,  // until it has made a new file
  kCreate,
  kOpen,
  kRemove,
  kMetadata,  // headers, records, attributes
  kData,      // bytes: read, write, sync
  kChores,    // until it has done what was asked of it before
};
std::string_view WaitText(Wait wait);

class WaitMark {
 public:
  static constexpr uint16_t kNoDrive = UINT16_MAX;

  void Set(Wait what, uint16_t drive = kNoDrive) {
    SetRaw(static_cast<uint32_t>(what) << 16 | drive);
  }
  uint32_t Raw() const { return value_.load(std::memory_order_acquire); }
  void SetRaw(uint32_t raw) { value_.store(raw, std::memory_order_release); }
  static Wait WhatOf(uint32_t raw) { return static_cast<Wait>(raw >> 16); }
  static uint16_t DriveOf(uint32_t raw) { return static_cast<uint16_t>(raw & 0xffff); }

 private:
  std::atomic<uint32_t> value_{kNoDrive};
};

// The mark of the request that this thread works for, or null.
inline constinit thread_local WaitMark* current_wait = nullptr;

// This thread works for the request of `mark` (null: for none) while this lives.
class WorksFor {
 public:
  explicit WorksFor(WaitMark* mark) : before_(current_wait) { current_wait = mark; }
  ~WorksFor() { current_wait = before_; }
  WorksFor(const WorksFor&) = delete;
  WorksFor& operator=(const WorksFor&) = delete;

 private:
  WaitMark* before_;
};

// The request that this thread works for waits for `what` while this lives.
class Waiting {
 public:
  explicit Waiting(Wait what, uint16_t drive = WaitMark::kNoDrive) : mark_(current_wait) {
    if (mark_ == nullptr) return;
    before_ = mark_->Raw();
    mark_->Set(what, drive);
  }
  ~Waiting() {
    if (mark_ != nullptr) mark_->SetRaw(before_);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  WaitMark* mark_;
  uint32_t before_ = 0;
};

}  // namespace prefixfs
