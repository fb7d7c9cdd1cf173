// DaemonProcess: the prefixfsd behind a mount, found through the file that it keeps in its first
// drive.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cache/base/fd.h"
#include "cache/base/status.h"

namespace prefixfs {

class DaemonProcess {
 public:
  // The daemon that serves the drive `directory`, by DIR/daemon.pid. Nothing if there is none: no
  // such file, no such process, or a process that is no prefixfsd holding this very drive (the
  // number was reused).
  static std::optional<DaemonProcess> Find(const std::string& directory);

  pid_t pid() const { return pid_; }
  // True once the process has ended, waiting for it for at most `timeout_ms`.
  bool WaitExit(int64_t timeout_ms) const;
  // True if a signal has stopped it, so that it cannot end by itself.
  bool Stopped() const;
  void Signal(int signal) const;

 private:
  DaemonProcess(pid_t pid, Fd handle) : pid_(pid), handle_(std::move(handle)) {}
  pid_t pid_;
  Fd handle_;  // a pidfd: stands for this process even when its number is used again
};

// Ok if no daemon holds the drive `directory` (or it is not there); kRejected if one does,
// kTimedOut if the drive does not answer.
Status CheckDriveFree(const std::string& directory);

}  // namespace prefixfs
