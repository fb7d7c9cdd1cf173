// prefixfs umount: ends a mount and its daemon in bounded time, whatever state they are in.
//
// Order matters: a connection is aborted before the mount is detached, because a detached mount can
// no longer be found and a process that waits for its daemon would wait for ever. Nothing here
// waits on the mount itself but in a child with a deadline.
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>

#include "cache/base/clock.h"
#include "tools/commands.h"
#include "tools/daemon_process.h"
#include "tools/deadline.h"
#include "tools/fusectl.h"
#include "tools/holders.h"
#include "tools/mounts.h"

namespace prefixfs {
namespace {

constexpr int64_t kProbeTimeoutMs = 2000;
constexpr int64_t kUnmountTimeoutMs = 5000;
constexpr int64_t kExitTimeoutMs = 20'000;  // a daemon that ends cleanly syncs its index first
constexpr int64_t kAbortedExitTimeoutMs =
    5000;  // one whose connection was aborted has nothing to wait for
constexpr int64_t kKillTimeoutMs = 5000;
constexpr int64_t kDriveFreeTimeoutMs = 2000;
constexpr useconds_t kRetryUs = 50'000;
constexpr size_t kMaxHoldersShown = 20;

void Say(const std::string& text) { std::fprintf(stderr, "prefixfs: %s\n", text.c_str()); }

Result<Mount> FindTarget(const std::string& path) {
  const auto mounts = PFS_TRY(ReadMounts());
  const std::string point = ResolveMountPoint(mounts, path);
  const Mount* there = MountAt(mounts, point);
  if (there != nullptr && there->IsPrefixFs()) return *there;
  if (there != nullptr) {
    return {Code::kInvalid, point + ": is a mount of type " + there->type + ", not of PrefixFS"};
  }
  const Mount* around = MountOf(mounts, point);
  if (around != nullptr && around->IsPrefixFs()) {
    return {Code::kInvalid, point + ": lies inside the PrefixFS mount " + around->point +
                                ", which is what can be unmounted"};
  }
  return {Code::kNotFound, point + ": is not mounted"};
}

// umount2(2) in a child: the kernel may wait for a filesystem that does not answer.
Status TryUnmount(const std::string& point, int flags) {
  const auto done = WithDeadline(kUnmountTimeoutMs, [&]() -> Result<std::string> {
    if (::umount2(point.c_str(), flags | UMOUNT_NOFOLLOW) == 0) return std::string();
    return Status::FromErrno(errno, point);
  });
  return done.status();
}

class Unmount {
 public:
  Unmount(Mount mount, int64_t wait_ms, bool force)
      : mount_(std::move(mount)),
        wait_ms_(wait_ms),
        force_(force),
        connection_(FuseConnection::Of(mount_)),
        daemon_(DaemonProcess::Find(mount_.source)) {}

  Status Run() {
    bool clean = !force_ && ProbeMount(mount_.point, kProbeTimeoutMs) == MountHealth::kAnswers;
    if (clean) {
      const Status status = UnmountIdle();
      if (status.Is(Code::kRejected)) return Busy();
      if (!status.ok() && !status.Is(Code::kTimedOut)) return status;
      clean = status.ok();
    } else if (!force_) {
      Say(mount_.point + ": the daemon does not answer; aborting the connection");
    }
    if (!clean) PFS_TRY(Abort());
    PFS_TRY(EndDaemon(clean ? kExitTimeoutMs : kAbortedExitTimeoutMs));
    PFS_TRY(CheckGone());
    return AwaitDriveFree();
  }

 private:
  // kRejected if it was busy to the end of the wait, kTimedOut if the kernel did not come back.
  Status UnmountIdle() {
    const int64_t deadline_ns = Clock::Real().MonotonicNs() + wait_ms_ * kNsPerMs;
    while (true) {
      const Status status =
          PFS_TRY(HasCopies()) ? Status(Code::kRejected) : TryUnmount(mount_.point, 0);
      if (!status.Is(Code::kRejected) || Clock::Real().MonotonicNs() >= deadline_ns) return status;
      ::usleep(kRetryUs);
    }
  }

  // Whether the filesystem is mounted elsewhere too, as a bind mount. The kernel would take this
  // mount away and the daemon would live on for the other.
  Result<bool> HasCopies() const {
    const auto mounts = PFS_TRY(ReadMounts());
    return std::any_of(mounts.begin(), mounts.end(), [this](const Mount& other) {
      return other.id != mount_.id && other.SameFilesystem(mount_);
    });
  }

  Status Busy() const {
    const auto holders = FindHolders(mount_);
    std::string text = mount_.point + ": is busy";
    if (holders.empty()) text += ", but nobody was seen holding it";
    text += "; end these, or use --force, which fails their calls:\n";
    return {Code::kRejected, text + HoldersText(holders, kMaxHoldersShown)};
  }

  Status Abort() {
    const Status aborted = connection_.ok() ? connection_->Abort() : connection_.status();
    // Ending the daemon closes its end of the connection, which aborts it too.
    if (!aborted.ok() && !aborted.Is(Code::kNotFound)) {
      Say(aborted.message());
      if (daemon_) daemon_->Signal(SIGKILL);
    }
    return Detach();
  }

  // Takes away every mount point that the filesystem has in this namespace.
  Status Detach() const {
    auto mounts = PFS_TRY(ReadMounts());
    std::reverse(mounts.begin(), mounts.end());  // what was mounted last first
    for (const auto& mount : mounts) {
      const bool copy = force_ && mount.SameFilesystem(mount_);
      if (mount.id != mount_.id && !copy) continue;
      const Status status = TryUnmount(mount.point, MNT_DETACH);
      // EINVAL: it went away with the one before.
      if (!status.ok() && !status.Is(Code::kInvalid)) return status;
    }
    return Ok();
  }

  // The daemon ends by itself once its filesystem is gone. One that does not is made to: first by
  // the abort (another mount namespace may keep the filesystem), at last by SIGKILL, of which it
  // loses nothing that was visible.
  Status EndDaemon(int64_t timeout_ms) const {
    if (!daemon_) return Ok();
    if (!daemon_->Stopped() && daemon_->WaitExit(timeout_ms)) return Ok();
    const std::string name = "prefixfsd (pid " + std::to_string(daemon_->pid()) + ")";
    if (connection_.ok() && connection_->Abort().ok() && !daemon_->Stopped() &&
        daemon_->WaitExit(kAbortedExitTimeoutMs)) {
      return Ok();
    }
    Say(name + " did not end by itself; killing it");
    daemon_->Signal(SIGKILL);
    if (daemon_->WaitExit(kKillTimeoutMs)) return Ok();
    return {Code::kTimedOut, name + " cannot be killed: it waits for a drive that does not answer"};
  }

  Status CheckGone() const {
    const auto mounts = PFS_TRY(ReadMounts());
    for (const auto& mount : mounts) {
      // The number alone says nothing: the kernel gives it to the next mount of the machine.
      if (mount.id == mount_.id && mount.point == mount_.point && mount.SameFilesystem(mount_)) {
        return {Code::kRejected, mount_.point + ": is still mounted"};
      }
    }
    return Ok();
  }

  // The lock goes with the daemon's last thread, which may be a moment later than its pid.
  Status AwaitDriveFree() const {
    for (int64_t waited_ms = 0;; waited_ms += kRetryUs / 1000) {
      const Status status = CheckDriveFree(mount_.source);
      if (status.ok()) return status;
      if (waited_ms >= kDriveFreeTimeoutMs) {
        return {status.code(), mount_.point + " is unmounted, but " + mount_.source +
                                   " cannot be used again yet: " + status.message()};
      }
      ::usleep(kRetryUs);
    }
  }

  const Mount mount_;
  const int64_t wait_ms_;
  const bool force_;
  const Result<FuseConnection> connection_;
  const std::optional<DaemonProcess> daemon_;
};

int RunUmount(const std::string& path, int64_t wait_ms, bool force) {
  const auto mount = FindTarget(path);
  if (!mount.ok()) return Fail(mount.status().message());
  if (::geteuid() != 0) return Fail("unmounting needs root");
  const Status status = Unmount(*mount, wait_ms, force).Run();
  return status.ok() ? kExitOk : Fail(status.message());
}

}  // namespace

void AddUmountCommand(CLI::App& app, int* exit_code) {
  struct Options {
    std::string path;
    std::string wait = "10s";
    bool force = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "umount",
      "Unmount, end the daemon and free its drives; never hangs and says who is in the way");
  command->add_option("MOUNT", options->path, "Mount point")->required()->type_name("");
  command->add_option("--wait", options->wait, "How long to wait for those who use the mount")
      ->type_name("DURATION")
      ->capture_default_str();
  command->add_flag("--force", options->force,
                    "Do not wait: abort the connection, so that calls in flight fail");
  command->footer(
      "A daemon that does not answer is aborted through fusectl, with or without --force.\n"
      "\nExit codes: 0 unmounted and the drives can be used again, 1 failed, 2 wrong usage.");
  command->callback([options, exit_code] {
    const auto wait_ms = DurationOption("--wait", options->wait);
    *exit_code = wait_ms.ok() ? RunUmount(options->path, *wait_ms, options->force) : kExitUsage;
    if (!wait_ms.ok()) Fail(wait_ms.status().message());
  });
}

}  // namespace prefixfs
