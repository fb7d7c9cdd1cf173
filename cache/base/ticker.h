// Ticker: one thread that calls a function every interval, or sooner when it is woken.
//
// Threads: Wake from any thread, also from inside the function. Stop (or the destructor) joins.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "cache/base/memory.h"
#include "cache/base/mutex.h"

namespace prefixfs {

class Ticker {
 public:
  Ticker() = default;
  ~Ticker() { Stop(); }

  void Start(int64_t interval_ms, std::function<void()> tick) {
    thread_ = std::thread([this, interval_ms, tick = std::move(tick)] {
      while (WaitTurn(interval_ms)) (void)SurvivesNoMemory(tick);
    });
  }
  void Wake() PFS_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    woken_ = true;
    turn_.NotifyOne();
  }
  void Stop() PFS_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      turn_.NotifyOne();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  bool WaitTurn(int64_t interval_ms) PFS_EXCLUDES(mutex_) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(interval_ms);
    MutexLock lock(mutex_);
    while (!woken_ && !stopping_) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left.count() <= 0) break;
      turn_.WaitFor(mutex_, left);
    }
    woken_ = false;
    return !stopping_;
  }

  Mutex mutex_;
  CondVar turn_;
  bool woken_ PFS_GUARDED_BY(mutex_) = false;
  bool stopping_ PFS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace prefixfs
