#include "cache/budget.h"

#include <algorithm>
#include <chrono>

#include "cache/base/waiting.h"

namespace prefixfs {

Status Budget::TryReserve(uint64_t bytes) {
  bool pressure = false;
  {
    MutexLock lock(mutex_);
    if (bytes > limits_.capacity) {
      return Status(Code::kNoSpace, "larger than the whole capacity of the mount");
    }
    if (!Fits(bytes)) return Code::kRejected;
    reserved_ += bytes;
    pressure = used_ + reserved_ > limits_.high;
  }
  if (pressure) on_pressure_();
  return Ok();
}

Status Budget::Reserve(uint64_t bytes, int64_t wait_ms) {
  const Status tried = TryReserve(bytes);
  if (!tried.Is(Code::kRejected)) return tried;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  uint64_t verdict;
  {
    MutexLock lock(mutex_);
    waiting_ += bytes;
    verdict = verdicts_;
  }
  on_pressure_();
  const Waiting for_space(Wait::kSpace);
  MutexLock lock(mutex_);
  while (!Fits(bytes)) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0 || verdicts_ != verdict) break;
    changed_.WaitFor(mutex_, left);
  }
  waiting_ -= bytes;
  if (!Fits(bytes)) return Status(Code::kNoSpace, "nothing can be evicted to make room");
  reserved_ += bytes;
  return Ok();
}

void Budget::Unreserve(uint64_t bytes) { Account(0, bytes); }

void Budget::Account(int64_t used_delta, uint64_t unreserve) {
  bool pressure = false;
  {
    MutexLock lock(mutex_);
    used_ = static_cast<uint64_t>(std::max<int64_t>(0, static_cast<int64_t>(used_) + used_delta));
    reserved_ -= std::min(unreserve, reserved_);
    pressure = used_ + reserved_ > limits_.high;
    if (waiting_ > 0) changed_.NotifyAll();
  }
  if (pressure) on_pressure_();
}

uint64_t Budget::Wanted() {
  MutexLock lock(mutex_);
  const uint64_t taken = used_ + reserved_;
  if (taken > limits_.high) evicting_ = true;
  if (taken <= limits_.low) evicting_ = false;
  const uint64_t down = evicting_ ? taken - limits_.low : 0;
  const uint64_t after_waiters = taken + waiting_;
  const uint64_t for_waiters =
      waiting_ > 0 && after_waiters > limits_.capacity ? after_waiters - limits_.capacity : 0;
  return std::max(down, for_waiters);
}

void Budget::NothingEvictable() {
  MutexLock lock(mutex_);
  ++verdicts_;
  changed_.NotifyAll();
}

uint64_t Budget::used() {
  MutexLock lock(mutex_);
  return used_;
}

uint64_t Budget::reserved() {
  MutexLock lock(mutex_);
  return reserved_;
}

}  // namespace prefixfs
