// Deadline: system calls that may hang on a dead filesystem, made in a child process that is given
// up when it is late.
//
// A process that waits for a FUSE daemon cannot always be killed. So the child holds nothing of
// ours (no terminal, no pipe of the caller), and nobody waits for it: it goes when the connection
// is aborted. Threads: the calling process must have one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cache/base/status.h"

namespace prefixfs {

// Runs `call` in a child and returns what it returned. kTimedOut if that took longer than
// `timeout_ms`. What `call` changes in memory is lost.
Result<std::string> WithDeadline(int64_t timeout_ms,
                                 const std::function<Result<std::string>()>& call);

// What statfs(2) on a mount says, without ever hanging.
enum class MountHealth {
  kAnswers,
  kDead,   // the daemon has gone: ENOTCONN, ECONNABORTED, ENODEV
  kHangs,  // no answer within the deadline
};
MountHealth ProbeMount(const std::string& point, int64_t timeout_ms);

}  // namespace prefixfs
