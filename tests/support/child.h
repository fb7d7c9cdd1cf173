// Processes that a test forks to be somebody else: a second client, a writer to be killed, load.
// Fork before the test starts threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache/base/fd.h"

namespace prefixfs::support {

using std::chrono::milliseconds;

// Runs `body` in a forked process, which ends with _exit when it returns or throws. The child dies
// with its parent.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  Child(Child&&) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  // kills and reaps

  pid_t pid() const { return pid_; }
  // Waits; throws with the child's own message if it failed, died by a signal, or outlived the
  // deadline.
  void Join(milliseconds deadline = std::chrono::seconds(120));
  // Sends the signal and reaps it.
  void Kill(int signal);

 private:
  struct Report;
  pid_t pid_ = -1;
  Report* report_ = nullptr;  // memory shared with the child
};

// Child + Join.
void RunInProcess(const std::function<void()>& body,
                  milliseconds deadline = std::chrono::seconds(120));

// Messages between two processes, both ways: make it before the fork, use one end in each.
class Channel {
 public:
  Channel();
  // A message, at most 64 KiB.
  void SendToB(const std::string& message) { Send(a_, message); }
  void SendToA(const std::string& message) { Send(b_, message); }
  std::string ReceiveAtB(milliseconds deadline = std::chrono::seconds(60)) {
    return Receive(b_, deadline);
  }
  std::string ReceiveAtA(milliseconds deadline = std::chrono::seconds(60)) {
    return Receive(a_, deadline);
  }

 private:
  static void Send(const Fd& end, const std::string& message);
  static std::string Receive(const Fd& end, milliseconds deadline);
  Fd a_, b_;
};

// A starting gun for many children: each Waits, the parent Opens.
class Gate {
 public:
  Gate();
  void Wait();
  void Open();

 private:
  Fd read_, write_;
};

// Memory shared by the processes of a test: counters and flags. T must be trivially destructible.
void* MapShared(size_t bytes);
void UnmapShared(void* memory, size_t bytes);

template <typename T>
class Shared {
 public:
  Shared() : value_(new (MapShared(sizeof(T))) T{}) {}
  ~Shared() { UnmapShared(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() { return value_; }
  T& operator*() { return *value_; }

 private:
  T* value_;
};

// Polls `condition` until it holds; throws with `what` at the deadline.
void WaitUntil(const std::function<bool()>& condition, const std::string& what,
               milliseconds deadline = std::chrono::seconds(20));

}  // namespace prefixfs::support
