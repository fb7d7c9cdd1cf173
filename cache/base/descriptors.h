// The descriptors that the daemon keeps for itself.
//
// Every file that clients have open takes one of the daemon's descriptors. Were all of them given
// away, the daemon could not write a header, read /proc or look after a drive any more: it would
// stop publishing and evicting. So a descriptor that stays open for a client is given only while
// enough others are left.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>

#include "cache/base/fd.h"
#include "cache/base/status.h"

namespace prefixfs {

// Threads times what each needs for a moment, twice over.
constexpr rlim_t kDescriptorReserve = 128;

// Whether one was refused the last time.
inline std::atomic<bool> descriptors_are_short{false};

// For a descriptor about to be kept for a client: kNoDescriptors if it is one of the last. The
// kernel gives the lowest free number, so a high number means that those below are taken. The limit
// is asked each time because it may be changed from outside.
inline Status LeavesReserve(const Fd& fd) {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return Ok();
  const rlim_t reserve = std::min(kDescriptorReserve, limit.rlim_cur / 4);
  const bool left = static_cast<rlim_t>(fd.get()) < limit.rlim_cur - reserve;
  if (descriptors_are_short.load(std::memory_order_relaxed) == left)
    descriptors_are_short.store(!left, std::memory_order_relaxed);
  if (left) return Ok();
  return Status(Code::kNoDescriptors, "all but the daemon's own share of its " +
                                          std::to_string(limit.rlim_cur) +
                                          " descriptors are taken by open files");
}

// The same for one that was opened before it was wanted, and whose number so says nothing.
inline Status LeavesReserve() {
  if (!descriptors_are_short.load(std::memory_order_relaxed)) return Ok();
  return LeavesReserve(Fd(::open("/", O_PATH | O_CLOEXEC)));
}

}  // namespace prefixfs
