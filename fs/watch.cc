#include "fs/watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "cache/base/memory.h"

namespace prefixfs {
namespace {
constexpr int64_t kTurnNs = 50 * kNsPerMs;
}

Deferred::~Deferred() { watch_.Remove(*this); }

Watch::Watch(const Requests& requests, Counters& counters, int64_t limit_ms, Hooks hooks)
    : requests_(requests),
      counters_(counters),
      limit_ns_(limit_ms * kNsPerMs),
      hooks_(std::move(hooks)),
      thread_([this] { Run(); }) {}

void Watch::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    turn_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void Watch::Add(Deferred& deferred, int64_t due_ns) {
  // Others than the next turn finds are the lookups: they are due in milliseconds.
  const bool soon = due_ns < Clock::Real().MonotonicNs() + kTurnNs;
  MutexLock lock(mutex_);
  deferred.due_ = dues_.emplace(due_ns, &deferred);
  if (soon) turn_.NotifyOne();
}

void Watch::Remove(Deferred& deferred) {
  MutexLock lock(mutex_);
  if (deferred.due_) dues_.erase(*std::exchange(deferred.due_, std::nullopt));
}

bool Watch::WaitTurn() {
  const int64_t turn_ns = Clock::Real().MonotonicNs() + kTurnNs;
  MutexLock lock(mutex_);
  while (!stopping_) {
    const int64_t next_ns = dues_.empty() ? turn_ns : std::min(turn_ns, dues_.begin()->first);
    const int64_t left_ns = next_ns - Clock::Real().MonotonicNs();
    if (left_ns <= 0) break;
    turn_.WaitFor(mutex_, std::chrono::nanoseconds(left_ns));
  }
  return !stopping_;
}

void Watch::Run() {
  while (WaitTurn()) {
    (void)SurvivesNoMemory([&] {
      AnswerLate();
      hooks_.relieve();
      ReportSlow();
    });
  }
}

// The next one whose deadline has come; nothing if that is over, or there is none.
bool Watch::TakeDue(int64_t now_ns, std::optional<Late>* late) {
  MutexLock lock(mutex_);
  if (dues_.empty() || dues_.begin()->first > now_ns) return false;
  // It is not destroyed before it has left the table, for which it needs the lock.
  Deferred& deferred = *dues_.begin()->second;
  dues_.erase(dues_.begin());
  deferred.due_.reset();
  if (auto request = deferred.Take()) {
    late->emplace(std::move(*request), deferred.late_error());
    deferred.SetAnswered();
  }
  return true;
}

void Watch::AnswerLate() {
  const int64_t now = Clock::Real().MonotonicNs();
  for (std::optional<Late> late; TakeDue(now, &late); late.reset()) {
    if (!late) continue;
    counters_.late_requests.fetch_add(1, std::memory_order_relaxed);
    late->request.Error(late->error);
  }
}

void Watch::ReportSlow() {
  const int64_t now = Clock::Real().MonotonicNs();
  if (now < look_at_ns_) return;
  look_at_ns_ = now + std::clamp(limit_ns_ / 4, kTurnNs, kNsPerSecond);
  std::unordered_map<uint64_t, int64_t> still;
  for (const Requests::Request& request : requests_.All()) {
    const int64_t age_ns = now - request.start_ns;
    if (age_ns < limit_ns_) break;  // the rest is younger
    const auto known = report_at_ns_.find(request.id);
    if (known == report_at_ns_.end()) {
      counters_.slow_requests.fetch_add(1, std::memory_order_relaxed);
    } else if (age_ns < known->second) {
      still.insert(*known);
      continue;
    }
    still[request.id] = 2 * age_ns;
    // Should the log itself be stuck, the counter and `stat --requests` still tell.
    (void)log_.Submit([this, request] { spdlog::warn("{}", hooks_.describe(request)); }).ok();
  }
  report_at_ns_ = std::move(still);
}

}  // namespace prefixfs
