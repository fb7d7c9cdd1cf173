// Processes: who is calling. A request carries a thread id; visibility is decided by process, so
// thread ids are mapped to thread groups through /proc, with start times because ids are reused.
//
// Threads: every call from any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>

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
  // The process that thread `tid` belongs to; {tid, 0} if the thread is gone.
  ProcessId Of(pid_t tid) PFS_EXCLUDES(mutex_);
  // Whether `child` is `ancestor` or descends from it. Looks at no more than 64 generations.
  bool Descends(ProcessId child, ProcessId ancestor) PFS_EXCLUDES(mutex_);
  // Whether a fatal signal is taking the process of thread `tid` (PF_SIGNALED), as opposed to an
  // exit of its own.
  static bool TookFatalSignal(pid_t tid);

 private:
  struct Key {
    pid_t tid;
    uint64_t start;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<uint64_t>()(key.start * 0x9E3779B97F4A7C15ull +
                                   static_cast<uint64_t>(key.tid));
    }
  };
  static constexpr size_t kMaxKnown = 4096;

  Mutex mutex_;
  std::unordered_map<Key, ProcessId, KeyHash> known_ PFS_GUARDED_BY(mutex_);
};

// Who made a request. Cheap to make; the process is looked up only when it is asked for.
class Caller {
 public:
  Caller(Processes& processes, pid_t tid, uid_t uid, gid_t gid)
      : processes_(processes), tid_(tid), uid_(uid), gid_(gid) {}
  pid_t tid() const { return tid_; }
  uid_t uid() const { return uid_; }
  gid_t gid() const { return gid_; }
  ProcessId process() const {
    if (!resolved_) {
      process_ = processes_.Of(tid_);
      resolved_ = true;
    }
    return process_;
  }
  bool DescendsFrom(ProcessId ancestor) const {
    return process() == ancestor || processes_.Descends(process(), ancestor);
  }

 private:
  Processes& processes_;
  pid_t tid_;
  uid_t uid_;
  gid_t gid_;
  mutable bool resolved_ = false;
  mutable ProcessId process_;
};

}  // namespace prefixfs
