// Mount: a PrefixFS mount for one test, through the real programs, on directories or filesystems of
// its own.
//
// With PREFIXFS_TEST_NATIVE=1 in the environment nothing is mounted and path() is a directory of
// the first drive's filesystem, so that a test of what POSIX says can be checked against XFS
// itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tests/support/loop_fs.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace prefixfs::support {

bool NativeMode();
// The daemon serves all data of every mount. PREFIXFS_TEST_PASSTHROUGH in the environment says so:
// `off` tells the mount, `absent` says that the kernel has none.
bool ServedMode();
// PREFIXFS_TEST_IO_URING=off: every mount reads its requests from /dev/fuse, as before Linux 6.14.
// So does a build with ThreadSanitizer, which cannot see that the kernel orders what one ring
// thread does before a reply and another after the request that follows.
bool DevFuseMode();
// PREFIXFS_TEST_FILESYSTEM, or xfs: what the drives of a test are that asks for none itself.
std::string DefaultFilesystem();

// The path of a program of the build under test, for example "prefixfs".
std::string ToolPath(const std::string& name);

struct MountOptions {
  int drives = 1;
  uint64_t drive_bytes = 2ull << 30;
  std::string filesystem = DefaultFilesystem();  // "xfs" or "ext4"; empty: directories below /tmp
  uint32_t sector_bytes = 512;                   // of the drives: 512 or 4096
  std::vector<std::string> mkfs = {};            // more arguments for mkfs
  std::string capacity = "1G";
  std::vector<std::string> set = {};  // KEY=VALUE, after the fixture's own
  Environment environment = {};       // of `prefixfs mount`, and so of the daemon
};

class Mount {
 public:
  // Prepares the drives and starts; throws with the programs' output on failure.
  explicit Mount(MountOptions options = {});
  // Stops whatever is left, by force if it must, and removes everything.
  ~Mount();
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  bool native() const { return NativeMode(); }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // The directory given as --nvme, and the filesystem it is on.
  std::string drive(int i = 0) const;
  LoopFs& filesystem(int i = 0) { return *filesystems_[static_cast<size_t>(i)]; }
  int drives() const { return options_.drives; }
  MountOptions& options() { return options_; }
  std::string log_path() const { return scratch_ / "daemon.log"; }
  std::string Log() const;

  void Start();
  // `prefixfs umount`; then the daemon must be gone too.
  void Stop();
  // Stop and Start; natively, a fresh mount of the filesystem. Page caches are empty after it.
  void Remount();
  // SIGKILL to the daemon; clients that were using the mount get errors.
  void KillDaemon();
  // `prefixfs umount` of a mount whose daemon is dead.
  void ClearDead();

  nlohmann::json ReadStats() const;
  uint64_t Stat(const std::string& key) const;  // a number of the statistics
  int daemon_pid() const;                       // 0 if there is none
  // The budget's view of the disk: all files of the tier that are blocks, published or not.
  uint64_t BlockUsage() const;
  uint64_t TierUsage() const;  // everything below the drives' directories

 private:
  void ForceAway();

  MountOptions options_;
  TempDir scratch_;
  std::vector<std::unique_ptr<LoopFs>> filesystems_;
  std::string path_;
};

}  // namespace prefixfs::support
