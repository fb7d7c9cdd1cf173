// Request: one FUSE request on its way to exactly one reply. Counts and times the operation; a
// request that is destroyed without a reply was unwound for want of memory and answers ENOMEM, so
// that no client waits for ever.
//
// Threads: owned by one thread at a time; may be moved to another.
#pragma once

#include <fuse_lowlevel.h>

#include <utility>

#include "cache/base/clock.h"
#include "fs/errno_of.h"
#include "fs/op_stats.h"
#include "fs/requests.h"

namespace prefixfs {

class Request {
 public:
  // Until it is moved to another thread, the calling one works for it.
  Request(fuse_req_t req, Op op, OpStats& stats, Requests& requests, Ino ino)
      : req_(req), op_(op), stats_(&stats), start_ns_(Clock::Real().MonotonicNs()) {
    const fuse_ctx* context = fuse_req_ctx(req);
    slot_ = RequestSlot(requests.Begin(op, ino, context->pid, context->uid, start_ns_));
    current_wait = slot_.mark();
  }
  Request(Request&& other) noexcept
      : req_(std::exchange(other.req_, nullptr)),
        op_(other.op_),
        stats_(other.stats_),
        start_ns_(other.start_ns_),
        slot_(std::move(other.slot_)) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  Request& operator=(Request&&) = delete;
  ~Request() {
    if (req_ != nullptr) Error(ENOMEM);
  }

  fuse_req_t get() const { return req_; }
  // The slot is from now on of whoever goes on with the work; the reply stays here.
  RequestSlot TakeSlot() {
    if (current_wait == slot_.mark()) current_wait = nullptr;
    return std::move(slot_);
  }

  // Each of these is the reply; what they return is libfuse's verdict (-ENOENT: the caller is
  // gone).
  int Error(int error) {
    return Finish(error != 0, [&](fuse_req_t req) { return fuse_reply_err(req, error); });
  }
  int Fail(const Status& status) { return Error(ErrnoOf(status)); }
  // The end of a call that writes or makes something.
  int Done(const Status& status) { return Error(ErrnoOfChange(status)); }
  template <typename Reply>
  int With(Reply reply) {
    return Finish(false, reply);
  }

 private:
  template <typename Reply>
  int Finish(bool error, Reply reply) {
    fuse_req_t req = std::exchange(req_, nullptr);
    stats_->Record(op_, Clock::Real().MonotonicNs() - start_ns_, error);
    return reply(req);
  }

  fuse_req_t req_;
  Op op_;
  OpStats* stats_;
  int64_t start_ns_;
  RequestSlot slot_;
};

}  // namespace prefixfs
