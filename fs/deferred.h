// Deferred: a request that a worker goes on with, and that is answered once: by the worker, or at
// its deadline by the watch, while the worker still has it.
//
// Threads: Take from any thread. Whoever gets the request answers it.
#pragma once

#include <atomic>
#include <map>
#include <optional>

#include "fs/request.h"

namespace prefixfs {

class Watch;

class Deferred {
 public:
  // `watch` outlives it.
  Deferred(Request request, int late_error, Watch& watch)
      : slot_(request.TakeSlot()),
        request_(std::move(request)),
        late_error_(late_error),
        watch_(watch) {}
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  // Nothing if the deadline was faster: what was done or got for the caller has to be given back.
  std::optional<Request> Take() {
    if (taken_.exchange(true)) return std::nullopt;
    return std::move(request_);
  }
  WaitMark* mark() const { return slot_.mark(); }
  int late_error() const { return late_error_; }
  void SetAnswered() const { slot_.SetAnswered(); }

 private:
  friend class Watch;
  using Dues = std::multimap<int64_t, Deferred*>;

  RequestSlot slot_;  // until the work is done, however the request was answered
  Request request_;
  const int late_error_;
  std::atomic<bool> taken_{false};
  Watch& watch_;
  std::optional<Dues::iterator> due_;  // of the watch, under its lock
};

}  // namespace prefixfs
