#include "tools/foreground.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>

#include "cache/base/clock.h"
#include "tools/fusectl.h"
#include "tools/holders.h"
#include "tools/mounts.h"
#include "tools/service_manager.h"

namespace prefixfs {
namespace {

constexpr int kRetryMs = 50;
constexpr size_t kMaxHoldersShown = 20;

// For the signal handler, which is given nothing else.
std::atomic<int> signal_fd = -1;

int64_t NowMs() { return Clock::Real().MonotonicNs() / kNsPerMs; }

}  // namespace

// One unmount, tried until it succeeds or is to be forced.
class Foreground::Stop {
 public:
  explicit Stop(const std::string& point) {
    const auto mounts = ReadMounts();
    const Mount* there = mounts.ok() ? MountAt(*mounts, point) : nullptr;
    if (there == nullptr || !there->IsPrefixFs()) return;
    mount_ = *there;
    // Taken while the mount is there; see fusectl.h.
    if (auto connection = FuseConnection::Of(*there); connection.ok()) {
      connection_ = std::move(*connection);
    }
  }

  // True once the mount point is free. The filesystem may live on in other mount namespaces.
  bool Try() {
    if (unmounted_ || !mount_) return unmounted_;
    const auto mounts = ReadMounts();
    if (!mounts.ok() || HasCopies(*mounts)) return false;
    if (!IsOnTop(*mounts)) return false;
    unmounted_ = ::umount2(mount_->point.c_str(), UMOUNT_NOFOLLOW) == 0;
    return unmounted_;
  }

  std::string Holders() const {
    return mount_ ? HoldersText(FindHolders(*mount_), kMaxHoldersShown) : std::string();
  }

  // The kernel ends the connection, upon which the daemon's loop ends. False if it cannot be had.
  bool Force() {
    if (!connection_ || !connection_->Abort().ok()) return false;
    const auto mounts = ReadMounts();
    if (!unmounted_ && mounts.ok() && IsOnTop(*mounts)) {
      (void)::umount2(mount_->point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    }
    return true;
  }

 private:
  // A bind mount would keep the filesystem alive, without the mount point to find it by.
  bool HasCopies(const std::vector<Mount>& mounts) const {
    return std::any_of(mounts.begin(), mounts.end(), [this](const Mount& other) {
      return other.id != mount_->id && other.SameFilesystem(*mount_);
    });
  }
  // Another mount may cover ours, and is not ours to take away.
  bool IsOnTop(const std::vector<Mount>& mounts) const {
    const Mount* top = MountAt(mounts, mount_->point);
    return top != nullptr && top->id == mount_->id && top->SameFilesystem(*mount_);
  }

  std::optional<Mount> mount_;
  std::optional<FuseConnection> connection_;
  bool unmounted_ = false;
};

Result<std::unique_ptr<Foreground>> Foreground::Start(const std::string& mount_point,
                                                      int64_t stop_wait_ms,
                                                      const std::string& status) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::FromErrno(errno, "pipe");
  std::unique_ptr<Foreground> foreground(new Foreground(mount_point, stop_wait_ms, status));
  foreground->reader_ = Fd(ends[0]);
  foreground->writer_ = Fd(ends[1]);
  // A handler must never wait; an event that does not fit is one of very many signals.
  (void)::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  foreground->thread_ = std::thread([raw = foreground.get()] { raw->Work(); });
  return foreground;
}

Foreground::Foreground(std::string mount_point, int64_t stop_wait_ms, std::string status)
    : mount_point_(std::move(mount_point)),
      stop_wait_ms_(stop_wait_ms),
      status_(std::move(status)) {}

Foreground::~Foreground() {
  if (!thread_.joinable()) return;
  Send(writer_.get(), Event::kEnd);
  thread_.join();
  if (!begun_) return;
  Handle(SIG_IGN);
  signal_fd = -1;
  service_manager::TellStopping("unmounted; closing the index");
}

void Foreground::Handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    (void)::sigaction(kSignals[i], &action, begun_ ? nullptr : &before_[i]);
  }
  begun_ = true;
}

void Foreground::Begin() { Send(writer_.get(), Event::kBegin); }

void Foreground::OnSignal(int) {
  const int saved = errno;
  Send(signal_fd, Event::kSignal);
  errno = saved;
}

void Foreground::Send(int fd, Event event) { (void)!::write(fd, &event, 1); }

Foreground::Event Foreground::Next(int timeout_ms) const {
  pollfd poll{.fd = reader_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&poll, 1, timeout_ms) <= 0) return Event::kTimeout;
  Event event = Event::kTimeout;
  return ::read(reader_.get(), &event, 1) == 1 ? event : Event::kTimeout;
}

void Foreground::Work() {
  while (true) {
    const Event event = Next(-1);
    if (event == Event::kBegin) HandleBegin();
    if (event == Event::kSignal) {
      HandleSignal();
      return;
    }
    if (event == Event::kEnd) return;
  }
}

void Foreground::HandleBegin() {
  signal_fd = writer_.get();
  Handle(&OnSignal);
  struct statvfs info;
  if (::statvfs(mount_point_.c_str(), &info) == 0) service_manager::TellReady(status_);
}

void Foreground::HandleSignal() {
  service_manager::TellStopping("waiting for those who use " + mount_point_);
  Stop stop(mount_point_);
  int64_t deadline_ms = NowMs() + stop_wait_ms_;
  spdlog::info("asked to end: waiting for those who use {}, for at most {} s", mount_point_,
               stop_wait_ms_ / 1000);
  while (true) {
    (void)stop.Try();
    if (NowMs() >= deadline_ms) break;
    const Event event = Next(kRetryMs);
    if (event == Event::kEnd) return;
    if (event == Event::kSignal) deadline_ms = NowMs();
  }
  spdlog::warn("{} is still in use; calls in flight fail:\n{}", mount_point_, stop.Holders());
  if (stop.Force()) return;
  // Without fusectl: libfuse's own handler ends the loop, upon which the mount is detached.
  for (size_t i = 0; i < kSignals.size(); ++i) {
    (void)::sigaction(kSignals[i], &before_[i], nullptr);
  }
  (void)::kill(::getpid(), SIGTERM);
}

}  // namespace prefixfs
