#include "tests/support/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstring>
#include <thread>

#include "tests/support/fail.h"
#include "tests/support/process.h"

namespace prefixfs::support {

void* MapShared(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw SysFailure(errno, "mmap of shared memory");
  return memory;
}

void UnmapShared(void* memory, size_t bytes) { munmap(memory, bytes); }

struct Child::Report {
  char message[1024];
};

Child::Child(const std::function<void()>& body)
    : report_(static_cast<Report*>(MapShared(sizeof(Report)))) {
  const pid_t parent = getpid();
  fflush(nullptr);
  pid_ = Sys(fork(), "fork");
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(3);
  try {
    body();
    _exit(0);
  } catch (const std::exception& failure) {
    strncpy(report_->message, failure.what(), sizeof(report_->message) - 1);
  }
  _exit(1);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), report_(std::exchange(other.report_, nullptr)) {}

Child::~Child() {
  Kill(SIGKILL);
  if (report_ != nullptr) UnmapShared(report_, sizeof(Report));
}

void Child::Join(milliseconds deadline) {
  Check(pid_ > 0, "child joined twice");
  if (!WaitGone(pid_, deadline)) {
    Kill(SIGKILL);
    Fail("a child process did not end within its deadline");
  }
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  if (WIFSIGNALED(status)) {
    Fail(std::string("a child process was ended by SIG") + sigabbrev_np(WTERMSIG(status)));
  }
  Check(WEXITSTATUS(status) == 0, std::string("in a child process: ") + report_->message);
}

void Child::Kill(int signal) {
  if (pid_ <= 0) return;
  kill(pid_, signal);
  // A client that hangs on a mount cannot be reaped; the fixture's abort frees it later.
  if (WaitGone(pid_, std::chrono::seconds(10))) waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RunInProcess(const std::function<void()>& body, milliseconds deadline) {
  Child child(body);
  child.Join(deadline);
}

Channel::Channel() {
  int ends[2];
  Sys(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "socketpair");
  a_ = Fd(ends[0]);
  b_ = Fd(ends[1]);
}

void Channel::Send(const Fd& end, const std::string& message) {
  Sys(send(end.get(), message.data(), message.size(), MSG_NOSIGNAL), "send to another process");
}

std::string Channel::Receive(const Fd& end, milliseconds deadline) {
  pollfd wait{end.get(), POLLIN, 0};
  if (poll(&wait, 1, static_cast<int>(deadline.count())) != 1) {
    Fail("no message from the other process");
  }
  std::string message(64 << 10, '\0');
  const ssize_t got = Sys(recv(end.get(), message.data(), message.size(), 0), "recv");
  message.resize(static_cast<size_t>(got));
  return message;
}

Gate::Gate() {
  int ends[2];
  Sys(pipe2(ends, O_CLOEXEC), "pipe");
  read_ = Fd(ends[0]);
  write_ = Fd(ends[1]);
}

void Gate::Wait() {
  write_.Reset();
  char byte = 0;
  pollfd wait{read_.get(), POLLIN, 0};
  Check(poll(&wait, 1, 60'000) == 1, "the gate never opened");
  Check(read(read_.get(), &byte, 1) == 1, "the gate's owner is gone");
}

void Gate::Open() {
  const std::string many(4096, 'g');
  Sys(write(write_.get(), many.data(), many.size()), "write to a gate");
}

void WaitUntil(const std::function<bool()>& condition, const std::string& what,
               milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) Fail("waited in vain: " + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace prefixfs::support
