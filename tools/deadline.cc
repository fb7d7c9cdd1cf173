#include "tools/deadline.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/fd.h"

namespace prefixfs {
namespace {

void WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

// In the child: keeps the pipe and nothing else, runs the call and sends its code, then its text.
[[noreturn]] void RunChild(int pipe, const std::function<Result<std::string>()>& call) {
  constexpr int kPipe = 3;
  if (pipe != kPipe) ::dup2(pipe, kPipe);
  ::close_range(kPipe + 1, ~0u, 0);
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < kPipe; ++fd) ::dup2(null, fd);
  ::signal(SIGPIPE, SIG_DFL);
  const auto result = call();
  std::string message(1, static_cast<char>(result.status().code()));
  message += result.ok() ? result.value() : result.status().message();
  WriteAll(kPipe, message);
  ::_exit(0);
}

// Everything the child sends until it closes the pipe; kTimedOut at `deadline_ns`.
Result<std::string> ReadUntil(int fd, int64_t deadline_ns) {
  std::string text;
  while (true) {
    const int64_t left_ns = deadline_ns - Clock::Real().MonotonicNs();
    if (left_ns <= 0) return {Code::kTimedOut, "no answer in time"};
    pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(left_ns / kNsPerMs) + 1);
    if (ready < 0 && errno != EINTR) return Status::FromErrno(errno, "poll");
    if (ready <= 0) continue;
    char piece[4096];
    const ssize_t n = ::read(fd, piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "read");
    if (n == 0) return text;
    text.append(piece, static_cast<size_t>(n));
  }
}

}  // namespace

Result<std::string> WithDeadline(int64_t timeout_ms,
                                 const std::function<Result<std::string>()>& call) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::FromErrno(errno, "pipe");
  Fd reader(ends[0]), writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return Status::FromErrno(errno, "fork");
  if (child == 0) RunChild(writer.get(), call);
  writer.Reset();
  const auto message = ReadUntil(reader.get(), Clock::Real().MonotonicNs() + timeout_ms * kNsPerMs);
  // A child that is late may be beyond the reach of SIGKILL for now, so it is not waited for.
  if (!message.ok()) ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, message.ok() ? 0 : WNOHANG);
  if (!message.ok()) return message;
  if (message->empty()) return {Code::kIo, "the process that made the call died"};
  const auto code = static_cast<Code>(message->front());
  if (code != Code::kOk) return {code, message->substr(1)};
  return message->substr(1);
}

MountHealth ProbeMount(const std::string& point, int64_t timeout_ms) {
  const auto answer = WithDeadline(timeout_ms, [&]() -> Result<std::string> {
    struct statfs info;
    if (::statfs(point.c_str(), &info) == 0) return std::string();
    return Status::FromErrno(errno, point);
  });
  if (answer.ok()) return MountHealth::kAnswers;
  if (answer.status().Is(Code::kUnavailable)) return MountHealth::kDead;
  return answer.status().Is(Code::kTimedOut) ? MountHealth::kHangs : MountHealth::kAnswers;
}

}  // namespace prefixfs
