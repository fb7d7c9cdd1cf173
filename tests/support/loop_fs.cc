#include "tests/support/loop_fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>

#include "cache/base/fd.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/process.h"

namespace prefixfs::support {
namespace {

uint64_t AvailableMemory() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  for (uint64_t kib = 0; in >> key >> kib; std::getline(in, unit)) {
    if (key == "MemAvailable:") return kib << 10;
  }
  return 0;
}

std::string ImageBase(uint64_t bytes) {
  struct statvfs space {};
  if (statvfs("/dev/shm", &space) != 0) return "/tmp";
  const uint64_t free_bytes = space.f_bavail * space.f_frsize;
  return free_bytes > 2 * bytes && AvailableMemory() > 2 * bytes + (4ull << 30) ? "/dev/shm"
                                                                                : "/tmp";
}

// A device number that the kernel says is free. Another process may take it first: the caller
// retries.
Fd OpenFreeLoop(std::string& name) {
  Fd control(Sys(open("/dev/loop-control", O_RDWR | O_CLOEXEC), "open /dev/loop-control"));
  const int number = Sys(ioctl(control.get(), LOOP_CTL_GET_FREE), "LOOP_CTL_GET_FREE");
  name = "/dev/loop" + std::to_string(number);
  if (access(name.c_str(), F_OK) != 0) {
    mknod(name.c_str(), S_IFBLK | 0660, makedev(7, static_cast<unsigned>(number)));
  }
  return Fd(open(name.c_str(), O_RDWR | O_CLOEXEC));
}

}  // namespace

LoopFs::LoopFs(const std::string& type, uint64_t bytes, uint32_t sector_bytes,
               const std::vector<std::string>& mkfs)
    : type_(type),
      sector_bytes_(sector_bytes),
      image_dir_(ImageBase(bytes)),
      image_(image_dir_ / "image"),
      path_(mount_dir_ / "fs") {
  Fd image(Sys(open(image_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), "create " + image_));
  Sys(ftruncate(image.get(), static_cast<off_t>(bytes)), "ftruncate " + image_);
  Sys(mkdir(path_.c_str(), 0755), "mkdir " + path_);
  // Discarding a fresh image only costs time.
  std::vector<std::string> argv = {"mkfs." + type, "-q"};
  if (type == "xfs") {
    argv.insert(argv.end(), {"-f", "-K", "-s", "size=" + std::to_string(sector_bytes)});
  } else {
    argv.insert(argv.end(), {"-F", "-E", "nodiscard"});
  }
  argv.insert(argv.end(), mkfs.begin(), mkfs.end());
  argv.push_back(image_);
  RunOrFail(argv);
  MountIt();
}

LoopFs::~LoopFs() {
  Thaw();
  UnmountTree(path_);
}

void LoopFs::MountIt() {
  Fd image(Sys(open(image_.c_str(), O_RDWR | O_CLOEXEC), "open " + image_));
  loop_config config{};
  config.fd = static_cast<uint32_t>(image.get());
  config.block_size = sector_bytes_;
  // Detached by the kernel at the last close, so a killed test leaks no device.
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  Fd loop;
  WaitUntil(
      [&] {
        loop = OpenFreeLoop(device_);
        return loop.valid() && ioctl(loop.get(), LOOP_CONFIGURE, &config) == 0;
      },
      "a free loop device");
  int read_only = 0;  // the device may have been left read-only by RemountReadOnly
  Sys(ioctl(loop.get(), BLKROSET, &read_only), "BLKROSET " + device_);
  Sys(mount(device_.c_str(), path_.c_str(), type_.c_str(), MS_NOATIME, nullptr), "mount " + path_);
}

void LoopFs::ShutDown() {
  Fd root(Sys(open(path_.c_str(), O_RDONLY | O_CLOEXEC), "open " + path_));
  constexpr uint32_t kNoLogFlush = 2;  // XFS_FSOP_GOING_FLAGS_NOLOGFLUSH
  uint32_t flags = kNoLogFlush;
  Sys(ioctl(root.get(), _IOR('X', 125, uint32_t), &flags), "XFS_IOC_GOINGDOWN " + path_);
}

// A frozen filesystem outlasts whoever froze it, and cannot be unmounted: so another process has
// the thaw in hand.
void LoopFs::Freeze() {
  const Fd root(Sys(open(path_.c_str(), O_RDONLY | O_CLOEXEC), "open " + path_));
  int ends[2];
  Sys(pipe2(ends, O_CLOEXEC), "pipe");
  Fd told(ends[0]);
  thaw_ = Fd(ends[1]);
  thawer_ = Sys(fork(), "fork");
  if (thawer_ == 0) {
    setsid();
    thaw_.Reset();
    char byte;
    while (read(told.get(), &byte, 1) < 0 && errno == EINTR) {
    }
    ioctl(root.get(), FITHAW, 0);
    _exit(0);
  }
  Sys(ioctl(root.get(), FIFREEZE, 0), "FIFREEZE " + path_);
}

void LoopFs::Thaw() {
  if (thawer_ < 0) return;
  // Children of the test may have the pipe too, so its end alone would say nothing.
  (void)!write(thaw_.get(), "t", 1);
  thaw_.Reset();
  waitpid(thawer_, nullptr, 0);
  thawer_ = -1;
}

void LoopFs::RemountReadOnly() {
  if (mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY | MS_NOATIME, nullptr) == 0)
    return;
  // Somebody holds a file for writing: let the device refuse writes, and XFS shuts itself down at
  // the next one.
  Fd loop(Sys(open(device_.c_str(), O_RDONLY | O_CLOEXEC), "open " + device_));
  int read_only = 1;
  Sys(ioctl(loop.get(), BLKROSET, &read_only), "BLKROSET " + device_);
}

void LoopFs::Remount() {
  WaitUntil([&] { return umount2(path_.c_str(), 0) == 0; }, "unmount of " + path_);
  MountIt();
}

namespace {

// By inode, because a file that is renamed during the walk is met twice.
using Usage = std::map<std::pair<dev_t, ino_t>, uint64_t>;

void AddUsage(int directory, Usage& usage) {
  DIR* stream = fdopendir(directory);
  if (stream == nullptr) {
    close(directory);
    return;
  }
  while (const dirent* entry = readdir(stream)) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    struct stat st {};
    if (fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(st.st_mode)) {
      usage[{st.st_dev, st.st_ino}] = static_cast<uint64_t>(st.st_blocks) * 512;
    }
    if (!S_ISDIR(st.st_mode)) continue;
    const int below = openat(dirfd(stream), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (below >= 0) AddUsage(below, usage);
  }
  closedir(stream);
}

}  // namespace

uint64_t DiskUsage(const std::string& path) {
  Usage usage;
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) AddUsage(directory, usage);
  uint64_t total = 0;
  for (const auto& [inode, bytes] : usage) total += bytes;
  return total;
}

}  // namespace prefixfs::support
