// WorkerPool: a bounded queue and the threads that empty it, for whatever may wait.
//
// A thread that waits for a drive which does not answer is lost to the others, so a pool may be
// relieved: it gets one thread more while work has been waiting for long.
//
// Threads: Submit and Relieve from any thread; Stop, and the destructor, from one.
#pragma once

#include <cstdint>
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
  // gives none. `most_threads`: with those that Relieve adds.
  WorkerPool(size_t threads, size_t max_queued, size_t most_threads = 0);
  ~WorkerPool() { Stop(); }
  // Runs what is queued and joins. What is submitted from now on is refused.
  void Stop() PFS_EXCLUDES(mutex_);

  // kRejected if the queue is full: the caller answers so at once instead of waiting.
  Status Submit(std::function<void()> work) PFS_EXCLUDES(mutex_);
  // One thread more if none has been free for `patience_ms`. Never waits.
  void Relieve(int64_t patience_ms) PFS_EXCLUDES(mutex_);

 private:
  struct Job {
    int64_t since_ns;
    std::function<void()> work;
  };
  void Run() PFS_EXCLUDES(mutex_);

  const size_t max_queued_;
  const size_t most_threads_;
  Mutex mutex_;
  CondVar ready_;
  std::deque<Job> queue_ PFS_GUARDED_BY(mutex_);
  bool stopping_ PFS_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ PFS_GUARDED_BY(mutex_);
};

}  // namespace prefixfs
