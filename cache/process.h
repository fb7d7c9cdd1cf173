// Processes: who is calling. A request carries a thread id; visibility is decided by process, so
// thread ids are mapped to thread groups through /proc, with start times because ids are reused.
// A thread that calls again is told by a descriptor of its statm, which stays of that thread
// whoever gets its id next, and which says cheaply whether it is on its way out: its memory goes
// before its files do.
//
// Threads: every call from any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "cache/base/fd.h"
#include "cache/base/mutex.h"

namespace prefixfs {

// One process for its whole life. {0, 0} stands for every caller outside this PID namespace.
struct ProcessId {
  pid_t tgid = 0;
  uint64_t start = 0;  // clock ticks after boot
  bool operator==(const ProcessId&) const = default;
};

class Processes {
 public:
  // What one look into /proc says of a thread.
  struct Thread {
    ProcessId process;      // that it belongs to; {tid, 0} if the thread is gone
    bool signaled = false;  // a fatal signal is taking it (PF_SIGNALED), not an exit of its own
  };
  Thread Look(pid_t tid) PFS_EXCLUDES(mutex_);
  // Whether `child` is `ancestor` or descends from it. Looks at no more than 64 generations.
  bool Descends(ProcessId child, ProcessId ancestor) PFS_EXCLUDES(mutex_);

 private:
  struct Known {
    std::shared_ptr<Fd> statm;
    ProcessId process;
  };
  static constexpr size_t kMaxKnown = 512;  // each holds a descriptor

  std::optional<ProcessId> Recall(pid_t tid) PFS_EXCLUDES(mutex_);

  Mutex mutex_;
  std::unordered_map<pid_t, Known> known_ PFS_GUARDED_BY(mutex_);
};

// Who made a request. Cheap to make; the process is looked up only when it is asked for.
class Caller {
 public:
  Caller(Processes& processes, pid_t tid, uid_t uid, gid_t gid)
      : processes_(processes), tid_(tid), uid_(uid), gid_(gid) {}
  pid_t tid() const { return tid_; }
  uid_t uid() const { return uid_; }
  gid_t gid() const { return gid_; }
  ProcessId process() const { return Looked().process; }
  // Whether a fatal signal is taking the caller while it makes this request.
  bool signaled() const { return Looked().signaled; }
  bool DescendsFrom(ProcessId ancestor) const {
    return process() == ancestor || processes_.Descends(process(), ancestor);
  }

 private:
  const Processes::Thread& Looked() const {
    if (!thread_) thread_ = processes_.Look(tid_);
    return *thread_;
  }

  Processes& processes_;
  pid_t tid_;
  uid_t uid_;
  gid_t gid_;
  mutable std::optional<Processes::Thread> thread_;
};

}  // namespace prefixfs
