// LogThread: while it lives a thread of its own writes the log, so that nobody waits for where that
// goes: it may be a drive which does not answer. Lines that find the queue full are lost.
//
// Threads: make and destroy it while no other thread changes the default logger.
#pragma once

#include <memory>

namespace spdlog {
class logger;
}

namespace prefixfs {

class LogThread {
 public:
  LogThread();
  ~LogThread();  // writes what is left
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

 private:
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace prefixfs
