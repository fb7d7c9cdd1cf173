// Control: the virtual directory .prefixfs/ at the root of the mount, and the answers behind
// user.prefixfs.* attributes. Whoever may read the mount can read it, inside a container too; no
// socket is needed. Who is not root is told no name that he could not list, no request of others
// and no path of a drive (access.h), and not the configuration.
//
// A file's content is made when it is opened and stays the same for that handle. None of it waits
// for a drive or for a lock that is held over I/O.
// Threads: every call from any thread.
#pragma once

#include <fuse_lowlevel.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.h"
#include "fs/access.h"
#include "fs/nodes.h"
#include "fs/op_stats.h"
#include "fs/request.h"
#include "fs/requests.h"

namespace prefixfs {

class Control {
 public:
  Control(Cache& cache, const OpStats& stats, Nodes& nodes, const Requests& requests,
          std::string mount_point)
      : cache_(cache),
        stats_(stats),
        nodes_(nodes),
        requests_(requests),
        mount_point_(std::move(mount_point)),
        started_ns_(Clock::Real().MonotonicNs()) {}

  // Node numbers of the control directory lie above every inode number.
  static bool Owns(Ino ino) { return ino >= kFirstIno; }
  static bool IsDirectoryName(std::string_view name) { return name == ".prefixfs"; }
  // A request came over io_uring.
  void SeenRing() {
    if (!ring_.load(std::memory_order_relaxed)) ring_.store(true, std::memory_order_relaxed);
  }
  void SetPassthrough(bool passthrough) {
    passthrough_.store(passthrough, std::memory_order_relaxed);
  }

  Result<Entry> Lookup(Ino parent, std::string_view name) const;
  Result<Entry> Attributes(Ino ino) const;
  Result<std::vector<DirectoryEntry>> List(uint64_t cookie) const;
  void Open(Request request, Ino ino, const Caller& caller, fuse_file_info* fi);
  void Read(Request request, size_t size, off_t offset, const fuse_file_info* fi) const;
  void Release(const fuse_file_info* fi) const;

  // The value of user.prefixfs.<name> of an inode; kNotFound if it has none of that name.
  Result<std::string> Attribute(Ino ino, std::string_view name, const Caller& caller);

  // For the log: a request that takes long.
  std::string Describe(const Requests::Request& request);

 private:
  static constexpr Ino kFirstIno = Ino{1} << 63;

  std::string Content(Ino ino, Access& access);
  std::string Stats(Access& access);
  std::string Metrics(Access& access);
  std::string RequestsJson(Access& access, size_t most_requests);
  // What the caller may see of it.
  Cache::Report ReportFor(Access& access);

  Cache& cache_;
  const OpStats& stats_;
  Nodes& nodes_;
  const Requests& requests_;
  const std::string mount_point_;
  const int64_t started_ns_;
  std::atomic<bool> passthrough_{false};
  std::atomic<bool> ring_{false};
};

}  // namespace prefixfs
