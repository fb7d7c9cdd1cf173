#include "cache/base/worker_pool.h"

#include <spdlog/spdlog.h>

#include <system_error>

#include "cache/base/memory.h"

namespace prefixfs {

WorkerPool::WorkerPool(size_t threads, size_t max_queued) : max_queued_(max_queued) {
  threads_.reserve(threads);
  try {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error& error) {
    // Fewer do the work as well; none at all is for the caller to report.
    if (threads_.empty()) throw;
    spdlog::warn("{} of {} worker threads: {}", threads_.size(), threads, error.what());
  }
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    ready_.NotifyAll();
  }
  for (auto& thread : threads_) thread.join();
}

Status WorkerPool::Submit(std::function<void()> work) {
  MutexLock lock(mutex_);
  if (queue_.size() >= max_queued_) return Code::kRejected;
  queue_.push_back(std::move(work));
  ready_.NotifyOne();
  return Ok();
}

void WorkerPool::Run() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) ready_.Wait(mutex_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    (void)SurvivesNoMemory(work);
  }
}

}  // namespace prefixfs
