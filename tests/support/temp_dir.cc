#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "cache/base/fd.h"
#include "tests/support/fail.h"

namespace prefixfs::support {
namespace {

namespace stdfs = std::filesystem;

constexpr char kPrefix[] = "prefixfs-test-";
const char* const kBases[] = {"/tmp", "/dev/shm"};

struct MountLine {
  std::string device;  // major:minor
  std::string path;
  std::string type;
};

std::vector<MountLine> ReadMounts() {
  std::vector<MountLine> mounts;
  std::ifstream in("/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string id, parent, root, word;
    MountLine mount;
    words >> id >> parent >> mount.device >> root >> mount.path;
    while (words >> word && word != "-") {
    }
    words >> mount.type;
    mounts.push_back(mount);
  }
  return mounts;
}

bool IsBelow(const std::string& path, const std::string& top) {
  return path == top || path.starts_with(top + "/");
}

// Only if the mount is still there once its connection is open: the kernel gives the number of one
// that has gone to the next, which is another test's.
void AbortFuseMount(const MountLine& line) {
  const std::string minor = line.device.substr(line.device.find(':') + 1);
  if (access("/sys/fs/fuse/connections/.", F_OK) != 0) return;
  if (stdfs::is_empty("/sys/fs/fuse/connections")) {
    mount("fusectl", "/sys/fs/fuse/connections", "fusectl", 0, nullptr);
  }
  const Fd fd(open(("/sys/fs/fuse/connections/" + minor + "/abort").c_str(), O_WRONLY | O_CLOEXEC));
  for (const MountLine& now : ReadMounts()) {
    if (now.path == line.path && now.device == line.device) return (void)!write(fd.get(), "1", 1);
  }
}

void DetachLoopsOf(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : stdfs::directory_iterator("/sys/block", ignored)) {
    std::ifstream in(entry.path() / "loop/backing_file");
    std::string backing;
    if (!std::getline(in, backing) || !IsBelow(backing, directory)) continue;
    int fd = open(("/dev/" + entry.path().filename().string()).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ioctl(fd, LOOP_CLR_FD, 0);
    close(fd);
  }
}

void SweepLeftovers() {
  std::error_code ignored;
  for (const char* base : kBases) {
    for (const auto& entry : stdfs::directory_iterator(base, ignored)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with(kPrefix)) continue;
      const pid_t pid = atoi(name.c_str() + sizeof(kPrefix) - 1);
      if (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH) continue;
      UnmountTree(entry.path());
      DetachLoopsOf(entry.path());
      stdfs::remove_all(entry.path(), ignored);
    }
  }
}

}  // namespace

void AbortFuse(const std::string& mount) {
  for (const MountLine& line : ReadMounts()) {
    if (line.path == mount && line.type.starts_with("fuse.")) AbortFuseMount(line);
  }
}

bool IsMountPoint(const std::string& path) {
  for (const MountLine& line : ReadMounts()) {
    if (line.path == path) return true;
  }
  return false;
}

void UnmountTree(const std::string& path) {
  const std::vector<MountLine> mounts = ReadMounts();
  for (auto line = mounts.rbegin(); line != mounts.rend(); ++line) {
    if (!IsBelow(line->path, path)) continue;
    if (line->type.starts_with("fuse.")) AbortFuseMount(*line);
    if (umount2(line->path.c_str(), 0) != 0) umount2(line->path.c_str(), MNT_DETACH);
  }
}

TempDir::TempDir(const std::string& base) {
  static const bool swept = (SweepLeftovers(), true);
  (void)swept;
  path_ = (base.empty() ? std::string(kBases[0]) : base) + "/" + kPrefix +
          std::to_string(getpid()) + "-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) throw SysFailure(errno, "mkdtemp " + path_);
  chmod(path_.c_str(), 0755);
}

TempDir::~TempDir() {
  UnmountTree(path_);
  std::error_code ignored;
  stdfs::remove_all(path_, ignored);
}

}  // namespace prefixfs::support
