// Watch: sees to it that no request is stuck unseen. Answers those whose deadline has come, gives
// the workers another thread where all of them are held up, and says in the log which requests take
// long and what they wait for.
//
// One thread, which never touches a drive, nor waits for anything but time: even its log lines are
// written by another.
//
// Threads: every call from any thread. Stop (or the destructor) joins.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/base/worker_pool.h"
#include "cache/counters.h"
#include "fs/deferred.h"
#include "fs/requests.h"

namespace prefixfs {

class Watch {
 public:
  struct Hooks {
    std::function<void()> relieve;                                  // often; must not wait
    std::function<std::string(const Requests::Request&)> describe;  // for the log
  };
  Watch(const Requests& requests, Counters& counters, int64_t limit_ms, Hooks hooks);
  ~Watch() { Stop(); }
  void Stop() PFS_EXCLUDES(mutex_);

  // At `due_ns` (monotonic) the request is answered with its late error, if it is not by then.
  void Add(Deferred& deferred, int64_t due_ns) PFS_EXCLUDES(mutex_);
  void Remove(Deferred& deferred) PFS_EXCLUDES(mutex_);

 private:
  void Run() PFS_EXCLUDES(mutex_);
  // Waits for the next deadline, or its turn to look round; false at the end.
  bool WaitTurn() PFS_EXCLUDES(mutex_);
  struct Late {
    Late(Request r, int e) : request(std::move(r)), error(e) {}
    Request request;
    int error;
  };
  bool TakeDue(int64_t now_ns, std::optional<Late>* late) PFS_EXCLUDES(mutex_);
  void AnswerLate() PFS_EXCLUDES(mutex_);
  void ReportSlow();

  const Requests& requests_;
  Counters& counters_;
  const int64_t limit_ns_;
  const Hooks hooks_;
  std::unordered_map<uint64_t, int64_t> report_at_ns_;  // by id: at which age to say so again
  int64_t look_at_ns_ = 0;                              // when to look at all of them next

  Mutex mutex_;
  CondVar turn_;
  Deferred::Dues dues_ PFS_GUARDED_BY(mutex_);
  bool stopping_ PFS_GUARDED_BY(mutex_) = false;
  WorkerPool log_{1, 64};
  std::thread thread_;
};

}  // namespace prefixfs
