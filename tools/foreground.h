// Foreground: the life of a daemon that a terminal or a service manager keeps, between the moment
// its mount answers and the end.
//
// SIGTERM, SIGINT and SIGHUP ask for the end of the mount the way `prefixfs umount` does: it is
// unmounted as soon as nobody uses it, which is waited for, and then by force: the connection is
// aborted, so that calls in flight fail. A second signal ends the waiting. While it is waited,
// everything works as before.
//
// Threads: one of its own, since the signals come while the caller is busy serving. All calls are
// made by the thread that serves, except Begin, which may come from any.
#pragma once

#include <signal.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "cache/base/fd.h"
#include "cache/base/status.h"

namespace prefixfs {

class Foreground {
 public:
  // Changes nothing yet. Throws std::system_error if no thread can be had.
  static Result<std::unique_ptr<Foreground>> Start(const std::string& mount_point,
                                                   int64_t stop_wait_ms, const std::string& status);
  // The mount has been served to its end. Further signals are ignored: the end is under way.
  ~Foreground();
  Foreground(const Foreground&) = delete;
  Foreground& operator=(const Foreground&) = delete;

  // The mount is served: the service manager is told when it answers, and the signals count from
  // now on. Does not wait.
  void Begin();

 private:
  enum class Event : char { kBegin = 'b', kSignal = 's', kEnd = 'e', kTimeout = 't' };
  class Stop;
  static constexpr std::array kSignals = {SIGTERM, SIGINT, SIGHUP};

  Foreground(std::string mount_point, int64_t stop_wait_ms, std::string status);
  static void OnSignal(int signal);
  static void Send(int fd, Event event);
  Event Next(int timeout_ms) const;
  void Handle(void (*handler)(int));
  void Work();
  void HandleBegin();
  void HandleSignal();

  const std::string mount_point_;
  const int64_t stop_wait_ms_;
  const std::string status_;
  Fd reader_, writer_;  // a pipe of events: a signal handler may write to it
  bool begun_ = false;  // whether the signals come here; own thread only
  std::array<struct sigaction, kSignals.size()> before_ = {};  // what they did before
  std::thread thread_;
};

}  // namespace prefixfs
