#include "cache/scrubber.h"

#include <linux/ioprio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "cache/base/clock.h"
#include "cache/base/memory.h"

namespace prefixfs {
namespace {
constexpr int64_t kFirstPassNs = 10 * kNsPerSecond;  // engines that start with the mount come first
constexpr int64_t kBusyNs = kNsPerSecond;            // after the last sign of an engine
constexpr int64_t kBusyFactor = 16;
}  // namespace

void Scrubber::Start() {
  if (limits_.bytes_per_s > 0) thread_ = std::thread([this] { Run(); });
}

void Scrubber::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    turn_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool Scrubber::Sleep(int64_t ns) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
  MutexLock lock(mutex_);
  while (!stopping_) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) break;
    turn_.WaitFor(mutex_, left);
  }
  return !stopping_;
}

bool Scrubber::IsBusy() {
  const int64_t now = Clock::Real().MonotonicNs();
  const uint64_t activity = store_.activity();
  if (std::exchange(seen_activity_, activity) != activity) busy_until_ns_ = now + kBusyNs;
  return now < busy_until_ns_;
}

void Scrubber::Run() {
  syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
  const int64_t interval_ns = limits_.interval_ms * kNsPerMs;
  if (!Sleep(std::min(kFirstPassNs, interval_ns))) return;
  for (;;) {
    const int64_t began_ns = Clock::Real().MonotonicNs();
    bool go_on = false;
    (void)SurvivesNoMemory([&] { go_on = Pass(); });
    if (go_on) passes_.fetch_add(1, std::memory_order_relaxed);
    const int64_t took_ns = Clock::Real().MonotonicNs() - began_ns;
    if (!Sleep(std::max(interval_ns - took_ns, kNsPerMs))) return;
  }
}

// False: cut short.
bool Scrubber::Pass() {
  Ino after = 0;
  for (;;) {
    const std::vector<Ino> blocks = store_.next(after);
    if (blocks.empty()) return true;
    for (const Ino ino : blocks) {
      const uint64_t read = store_.check(ino);
      blocks_.fetch_add(read > 0 ? 1 : 0, std::memory_order_relaxed);
      bytes_.fetch_add(read, std::memory_order_relaxed);
      const auto due_ns = static_cast<int64_t>(static_cast<double>(read) * 1e9 /
                                               static_cast<double>(limits_.bytes_per_s));
      if (!Sleep(IsBusy() ? due_ns * kBusyFactor : due_ns)) return false;
    }
    after = blocks.back();
  }
}

}  // namespace prefixfs
