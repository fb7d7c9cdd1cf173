#include "cache/base/worker_pool.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/memory.h"

namespace prefixfs {

WorkerPool::WorkerPool(size_t threads, size_t max_queued, size_t most_threads)
    : max_queued_(max_queued), most_threads_(std::max(threads, most_threads)) {
  MutexLock lock(mutex_);
  threads_.reserve(most_threads_);
  try {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error& error) {
    // Fewer do the work as well; none at all is for the caller to report.
    if (threads_.empty()) throw;
    spdlog::warn("{} of {} worker threads: {}", threads_.size(), threads, error.what());
  }
}

void WorkerPool::Stop() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    ready_.NotifyAll();
  }
  for (auto& thread : threads) thread.join();
}

Status WorkerPool::Submit(std::function<void()> work) {
  const int64_t now = Clock::Real().MonotonicNs();
  MutexLock lock(mutex_);
  if (stopping_ || queue_.size() >= max_queued_) return Code::kRejected;
  queue_.push_back({now, std::move(work)});
  ready_.NotifyOne();
  return Ok();
}

void WorkerPool::Relieve(int64_t patience_ms) {
  const int64_t since = Clock::Real().MonotonicNs() - patience_ms * kNsPerMs;
  MutexLock lock(mutex_);
  const bool held_up = !queue_.empty() && queue_.front().since_ns < since;
  if (!held_up || stopping_ || threads_.size() >= most_threads_) return;
  try {
    threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error&) {
    // The system gives no more: those that are there have to do.
  }
}

void WorkerPool::Run() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) ready_.Wait(mutex_);
      if (queue_.empty()) return;
      work = std::move(queue_.front().work);
      queue_.pop_front();
    }
    (void)SurvivesNoMemory(work);
  }
}

}  // namespace prefixfs
