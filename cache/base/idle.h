// Idle: what a thread does when nobody else wants the processor. Only for work without locks: on a
// busy machine a thread of idle priority that holds something would hold up all who wait for it.
#pragma once

#include <sched.h>

namespace prefixfs {

// This thread has idle priority while this lives.
class Idle {
 public:
  Idle() { Set(SCHED_IDLE); }
  ~Idle() { Set(SCHED_OTHER); }
  Idle(const Idle&) = delete;
  Idle& operator=(const Idle&) = delete;

 private:
  static void Set(int policy) {
    const sched_param parameter{};
    sched_setscheduler(0, policy, &parameter);
  }
};

}  // namespace prefixfs
