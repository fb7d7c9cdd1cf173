// prefixfs mount: starts prefixfsd and returns when the mount answers.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "tools/commands.h"
#include "tools/control.h"
#include "tools/daemon_process.h"
#include "tools/deadline.h"
#include "tools/mounts.h"

namespace prefixfs {
namespace {

constexpr int64_t kProbeTimeoutMs = 2000;
constexpr int64_t kStopTimeoutMs = 10'000;
constexpr int kMaxDeadMounts = 16;

// prefixfsd beside this program, or where an installed tree has it.
Result<std::string> FindDaemon() {
  char self[4096];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof(self));
  if (n < 0) return Status::FromErrno(errno, "/proc/self/exe");
  std::string folder(self, static_cast<size_t>(n));
  folder.resize(folder.rfind('/') + 1);
  for (const char* place : {"prefixfsd", "../sbin/prefixfsd", "../libexec/prefixfs/prefixfsd"}) {
    const std::string path = folder + place;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {Code::kNotFound,
          "prefixfsd was found neither in " + folder + " nor in ../sbin or ../libexec/prefixfs"};
}

Status AlreadyMounted(const Mount& mount, bool answers) {
  std::string text = mount.point + ": PrefixFS is already mounted here";
  if (const auto daemon = DaemonProcess::Find(mount.source)) {
    text += " (prefixfsd pid " + std::to_string(daemon->pid()) + ", on " + mount.source + ")";
  }
  text += answers ? "" : " and does not answer";
  return {Code::kExists, text + "; unmount it first with `prefixfs umount " + mount.point + "`"};
}

// Takes away what a daemon that died left at `point`; refuses if one is alive there.
Status ClearMountPoint(const std::string& point) {
  for (int i = 0; i < kMaxDeadMounts; ++i) {
    const auto mounts = PFS_TRY(ReadMounts());
    const Mount* there = MountAt(mounts, point);
    if (there == nullptr || !there->IsPrefixFs()) return Ok();
    const MountHealth health = ProbeMount(point, kProbeTimeoutMs);
    if (health != MountHealth::kDead) {
      return AlreadyMounted(*there, health == MountHealth::kAnswers);
    }
    if (::umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) {
      return Status::FromErrno(errno,
                               point + ": the mount of a daemon that died cannot be removed");
    }
    std::fprintf(stderr, "prefixfs: %s: removed the mount of a daemon that had died\n",
                 point.c_str());
  }
  return {Code::kExists, point + ": too many dead mounts are stacked here"};
}

Status CheckMountPoint(const std::string& point) {
  struct stat info;
  if (::stat(point.c_str(), &info) != 0) {
    if (errno == ENOENT) {
      return {Code::kNotFound, point + ": does not exist; make it with `mkdir -p " + point + "`"};
    }
    return Status::FromErrno(errno, point);
  }
  if (!S_ISDIR(info.st_mode)) return {Code::kNotDirectory, point + ": is not a directory"};
  return Ok();
}

// Pointers into `words` for exec. Made before fork, so that the child does not allocate.
std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the child: a session of its own with nothing of the terminal or of the caller's pipes, so that
// neither a hangup nor a caller who reads until the pipe closes is tied to the daemon's life.
// stderr stays if the user wants the log there.
[[noreturn]] void BecomeDaemon(const std::string& path, char* const* arguments, int ready_fd,
                               bool keep_stderr) {
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  if (!keep_stderr) ::dup2(null, STDERR_FILENO);
  ::signal(SIGPIPE, SIG_DFL);
  ::fcntl(ready_fd, F_SETFD, 0);
  ::execv(path.c_str(), arguments);
  ::dprintf(ready_fd, "%s: %s\n", path.c_str(), std::strerror(errno));
  ::_exit(127);
}

// The first line from `fd`. kUnavailable at its end, kTimedOut after `timeout_ms`.
Result<std::string> ReadLine(int fd, int64_t timeout_ms) {
  const int64_t deadline_ns = Clock::Real().MonotonicNs() + timeout_ms * kNsPerMs;
  std::string line;
  while (true) {
    const int64_t left_ns = deadline_ns - Clock::Real().MonotonicNs();
    if (left_ns <= 0) return {Code::kTimedOut, "no answer"};
    pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(left_ns / kNsPerMs) + 1);
    if (ready < 0 && errno != EINTR) return Status::FromErrno(errno, "poll");
    if (ready <= 0) continue;
    char c = 0;
    const ssize_t n = ::read(fd, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "read");
    if (c == '\n' && n > 0) return line;
    if (n == 0 && !line.empty()) return line;
    if (n == 0) return {Code::kUnavailable, "no line"};
    line += c;
  }
}

class DaemonChild {
 public:
  explicit DaemonChild(pid_t pid) : pid_(pid) {}

  // Waits for its end for at most `timeout_ms`; true once it has ended.
  bool WaitExit(int64_t timeout_ms) {
    for (int64_t waited_ms = 0;; waited_ms += 20) {
      if (ended_ || ::waitpid(pid_, &status_, WNOHANG) == pid_) return ended_ = true;
      if (waited_ms >= timeout_ms) return false;
      ::usleep(20'000);
    }
  }
  // SIGTERM unmounts and ends it; SIGKILL if that takes too long.
  void Stop() {
    ::kill(pid_, SIGTERM);
    if (WaitExit(kStopTimeoutMs)) return;
    ::kill(pid_, SIGKILL);
    WaitExit(kStopTimeoutMs);
  }
  std::string EndText() const {
    if (WIFSIGNALED(status_)) return "was ended by signal " + std::to_string(WTERMSIG(status_));
    return "ended with status " + std::to_string(WEXITSTATUS(status_));
  }

 private:
  const pid_t pid_;
  int status_ = 0;
  bool ended_ = false;
};

// Ok once the daemon says so and the mount answers; otherwise the daemon is gone when this returns.
Status AwaitReady(DaemonChild& child, int ready_fd, const std::string& point, int64_t timeout_ms) {
  constexpr const char* kAdvice = "; `prefixfs mount --foreground` shows what it says";
  const auto line = ReadLine(ready_fd, timeout_ms);
  if (line.ok() && *line == "ok") {
    const auto mounts = PFS_TRY(ReadMounts());
    const Mount* mount = MountAt(mounts, point);
    const Status answer = mount == nullptr || !mount->IsPrefixFs()
                              ? Status(Code::kUnavailable, point + ": the mount is not there")
                              : ReadControlFile(*mount, "stats", timeout_ms).status();
    if (!answer.ok()) child.Stop();
    return answer;
  }
  if (line.ok()) {
    if (!child.WaitExit(kStopTimeoutMs)) child.Stop();
    return {Code::kUnavailable, *line};
  }
  if (line.status().Is(Code::kUnavailable) && child.WaitExit(kStopTimeoutMs)) {
    return {Code::kUnavailable,
            "prefixfsd " + child.EndText() + " before the mount was ready" + kAdvice};
  }
  child.Stop();
  return {Code::kTimedOut,
          "prefixfsd was not ready in time and was stopped; --timeout gives it longer"};
}

Status StartDaemon(const MountArguments& typed, const MountOptions& options,
                   const std::string& daemon, int64_t timeout_ms) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::FromErrno(errno, "pipe");
  Fd reader(ends[0]), writer(ends[1]);
  MountArguments passed = typed;
  passed.mount_point = options.mount_point;
  passed.ready_fd = writer.get();
  std::vector<std::string> words = ToArguments(passed);
  words.insert(words.begin(), daemon);
  const std::vector<char*> pointers = Pointers(words);
  const pid_t pid = ::fork();
  if (pid < 0) return Status::FromErrno(errno, "fork");
  if (pid == 0) {
    BecomeDaemon(daemon, pointers.data(), writer.get(), options.config.log == "stderr");
  }
  writer.Reset();
  DaemonChild child(pid);
  const Status status = AwaitReady(child, reader.get(), options.mount_point, timeout_ms);
  // What a daemon that failed late leaves behind is a dead mount.
  if (!status.ok()) (void)ClearMountPoint(options.mount_point).ok();
  return status;
}

Status ExecForeground(const MountArguments& typed, const MountOptions& options,
                      const std::string& daemon) {
  MountArguments passed = typed;
  passed.mount_point = options.mount_point;
  std::vector<std::string> words = ToArguments(passed);
  words.insert(words.begin(), daemon);
  const std::vector<char*> pointers = Pointers(words);
  ::signal(SIGPIPE, SIG_DFL);
  ::execv(daemon.c_str(), pointers.data());
  return Status::FromErrno(errno, daemon);
}

Status CheckAndMount(const MountArguments& arguments, int64_t timeout_ms) {
  MountOptions options = PFS_TRY(BuildMountOptions(arguments));
  if (::geteuid() != 0) return {Code::kDenied, "mounting needs root (CAP_SYS_ADMIN)"};
  const std::string daemon = PFS_TRY(FindDaemon());
  options.mount_point = ResolveMountPoint(PFS_TRY(ReadMounts()), options.mount_point);
  PFS_TRY(ClearMountPoint(options.mount_point));
  PFS_TRY(CheckMountPoint(options.mount_point));
  if (arguments.foreground) return ExecForeground(arguments, options, daemon);
  return StartDaemon(arguments, options, daemon, timeout_ms);
}

}  // namespace

int RunMount(const MountArguments& arguments, int64_t timeout_ms) {
  const Status status = CheckAndMount(arguments, timeout_ms);
  return status.ok() ? kExitOk : Fail(status.message());
}

int Fail(const std::string& text) {
  std::fprintf(stderr, "prefixfs: %s\n", text.c_str());
  return kExitFailed;
}

Result<int64_t> DurationOption(const std::string& option, const std::string& text) {
  const auto ms = ParseDurationMs(text);
  if (ms.ok()) return ms;
  return {Code::kInvalid, option + ": " + ms.status().message()};
}

void AddMountCommand(CLI::App& app, int* exit_code) {
  struct Options {
    MountArguments mount;
    std::string timeout = "60s";
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("mount", "Mount PrefixFS on a directory; returns when the mount answers");
  AddMountOptions(*command, &options->mount);
  command->add_option("--timeout", options->timeout, "How long to wait for the daemon to be ready")
      ->type_name("DURATION")
      ->capture_default_str();
  command->callback([options, exit_code] {
    const auto timeout_ms = DurationOption("--timeout", options->timeout);
    *exit_code = timeout_ms.ok() ? RunMount(options->mount, *timeout_ms) : kExitUsage;
    if (!timeout_ms.ok()) Fail(timeout_ms.status().message());
  });
}

}  // namespace prefixfs
