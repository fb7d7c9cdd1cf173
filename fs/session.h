// Session: one FUSE mount, from mount(2) to the end of its loop.
//
// Threads: Mount and Run from one thread; Run returns when the mount is gone or SIGTERM, SIGINT or
// SIGHUP came.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cache/base/status.h"
#include "cache/cache.h"

struct fuse_session;

namespace prefixfs {

class Filesystem;

class Session {
 public:
  // Mounts. The mount answers once Run is under way.
  static Result<std::unique_ptr<Session>> Mount(Cache& cache, const std::string& mount_point);
  ~Session();

  // Serves until the end; `on_ready` is called when the kernel has said hello. Unmounts.
  Status Run(std::function<void()> on_ready);

 private:
  Session() = default;
  std::unique_ptr<Filesystem> filesystem_;
  fuse_session* session_ = nullptr;
  unsigned max_threads_ = 0;
};

}  // namespace prefixfs
