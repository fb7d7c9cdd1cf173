#include "tools/daemon_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <memory>

#include "tools/deadline.h"

namespace prefixfs {
namespace {

// The pidfd calls go through syscall(2): <sys/pidfd.h> of glibc 2.36 does not link from C++.

constexpr int64_t kDriveTimeoutMs = 2000;
constexpr std::string_view kProgram = "prefixfsd";

std::string ReadLink(const std::string& path) {
  char target[4096];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof(target));
  return n < 0 ? std::string() : std::string(target, static_cast<size_t>(n));
}

bool RunsPrefixFsD(const std::string& proc) {
  const std::string exe = ReadLink(proc + "/exe");
  std::string_view name = exe;
  constexpr std::string_view kDeleted = " (deleted)";  // the package was upgraded meanwhile
  if (name.ends_with(kDeleted)) name.remove_suffix(kDeleted.size());
  return name.substr(name.rfind('/') + 1) == kProgram;
}

// True if the process has DIR/PREFIXFS open. Only links of that name are looked through, so no
// other filesystem is touched.
bool HoldsDrive(const std::string& proc, const std::string& directory) {
  struct stat ours;
  if (::stat((directory + "/PREFIXFS").c_str(), &ours) != 0) return false;
  const std::unique_ptr<DIR, int (*)(DIR*)> fds(::opendir((proc + "/fd").c_str()), &::closedir);
  if (!fds) return false;
  while (const dirent* entry = ::readdir(fds.get())) {
    const std::string link = proc + "/fd/" + entry->d_name;
    struct stat theirs;
    if (ReadLink(link).ends_with("/PREFIXFS") && ::stat(link.c_str(), &theirs) == 0 &&
        theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino) {
      return true;
    }
  }
  return false;
}

// The pid in DIR/daemon.pid if it is a prefixfsd that holds DIR, as text.
Result<std::string> FindPid(const std::string& directory) {
  std::ifstream file(directory + "/daemon.pid");
  std::string text;
  file >> text;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  const std::string proc = "/proc/" + text;
  if (!digits || !RunsPrefixFsD(proc) || !HoldsDrive(proc, directory)) {
    return {Code::kNotFound, "no daemon"};
  }
  return text;
}

Result<std::string> TryLock(const std::string& directory) {
  const std::string path = directory + "/PREFIXFS";
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return Status::FromErrno(errno, path);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return Status::FromErrno(errno, path);
  return std::string();
}

}  // namespace

std::optional<DaemonProcess> DaemonProcess::Find(const std::string& directory) {
  const auto find = [&] {
    return WithDeadline(kDriveTimeoutMs, [&] { return FindPid(directory); });
  };
  const auto text = find();
  if (!text.ok()) return std::nullopt;
  pid_t pid = 0;
  std::from_chars(text->data(), text->data() + text->size(), pid);
  Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!handle.valid()) return std::nullopt;
  // Looked at once more now that the handle keeps the number from standing for another process.
  const auto again = find();
  if (!again.ok() || *again != *text) return std::nullopt;
  return DaemonProcess(pid, std::move(handle));
}

bool DaemonProcess::WaitExit(int64_t timeout_ms) const {
  pollfd poll{.fd = handle_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, static_cast<int>(timeout_ms)) > 0;
}

bool DaemonProcess::Stopped() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');  // the name before it may hold anything
  return end != std::string::npos && end + 2 < line.size() &&
         (line[end + 2] == 'T' || line[end + 2] == 't');
}

void DaemonProcess::Signal(int signal) const {
  ::syscall(SYS_pidfd_send_signal, handle_.get(), signal, nullptr, 0);
}

Status CheckDriveFree(const std::string& directory) {
  const auto locked = WithDeadline(kDriveTimeoutMs, [&] { return TryLock(directory); });
  if (locked.ok() || locked.status().Is(Code::kNotFound)) return Ok();
  return locked.status();
}

}  // namespace prefixfs
