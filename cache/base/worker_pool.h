// WorkerPool: a bounded queue and the threads that empty it, for whatever may wait.
//
// Threads: Submit from any thread. The destructor runs what is queued and joins.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/base/status.h"

namespace prefixfs {

class WorkerPool {
 public:
  // Makes do with fewer threads where the system gives no more; throws std::system_error if it
  // gives none.
  WorkerPool(size_t threads, size_t max_queued);
  ~WorkerPool();

  // kRejected if the queue is full: the caller answers so at once instead of waiting.
  Status Submit(std::function<void()> work) PFS_EXCLUDES(mutex_);

 private:
  void Run() PFS_EXCLUDES(mutex_);

  const size_t max_queued_;
  Mutex mutex_;
  CondVar ready_;
  std::deque<std::function<void()>> queue_ PFS_GUARDED_BY(mutex_);
  bool stopping_ PFS_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace prefixfs
