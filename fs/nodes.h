// Nodes: what the kernel has open, and the backing files registered with it for passthrough.
//
// The kernel allows one backing id an inode while handles are open, and one way of serving it
// (docs/ARCHITECTURE.md has the table), so both are kept per inode. An id outlives the last handle,
// which makes the next open one round trip; idle ones are bounded and go first in, first out.
// FORGET is only a hint: node numbers are inode numbers and are never used again, so nothing but
// the id depends on it.
//
// Threads: every call from any thread; one lock, never held over a system call.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/index/record.h"

namespace prefixfs {

class Nodes {
 public:
  // `close_id` gives a backing id back to the kernel.
  Nodes(size_t max_idle, std::function<void(int)> close_id)
      : max_idle_(max_idle), close_id_(std::move(close_id)) {}

  static constexpr int kServed = 0;  // no backing id: the daemon serves the data

  // Counts a handle and says how to serve it. `allowed`: passthrough may be used. `make_id`
  // registers the file and returns an id, or 0 when that fails; called without the lock, and only
  // when the inode has no id yet. `writable`: the id will be of a descriptor open for writing, and
  // is given up with the last handle.
  int Acquire(Ino ino, bool allowed, bool writable, const std::function<int()>& make_id)
      PFS_EXCLUDES(mutex_);
  void Release(Ino ino) PFS_EXCLUDES(mutex_);
  // Whether Acquire has an id, or another answer, already.
  bool HasId(Ino ino) PFS_EXCLUDES(mutex_);
  // The kernel dropped the inode, or the block is gone: an idle id is given back.
  void Drop(Ino ino) PFS_EXCLUDES(mutex_);
  // How many backing ids the kernel has now, idle ones included.
  uint64_t registered() PFS_EXCLUDES(mutex_);

 private:
  struct Node {
    uint32_t handles = 0;
    int id = 0;
    bool served = false;  // with handles > 0: they are served by the daemon
    bool writable = false;
    bool dropped = false;
  };
  void CloseAll(const std::vector<int>& ids) const {
    for (const int id : ids) close_id_(id);
  }
  void TrimIdle(std::vector<int>* closing) PFS_REQUIRES(mutex_);

  const size_t max_idle_;
  const std::function<void(int)> close_id_;
  Mutex mutex_;
  std::unordered_map<Ino, Node> nodes_ PFS_GUARDED_BY(mutex_);
  std::deque<Ino> idle_ PFS_GUARDED_BY(mutex_);
};

}  // namespace prefixfs
