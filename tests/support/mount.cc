#include "tests/support/mount.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/pattern.h"

namespace prefixfs::support {

namespace {
std::string FromEnvironment(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value != nullptr ? value : otherwise;
}
}  // namespace

bool NativeMode() { return FromEnvironment("PREFIXFS_TEST_NATIVE", "") == "1"; }
bool ServedMode() {
  const std::string passthrough = FromEnvironment("PREFIXFS_TEST_PASSTHROUGH", "");
  return passthrough == "off" || passthrough == "absent";
}
bool DevFuseMode() {
#ifdef __SANITIZE_THREAD__
  return true;
#else
  return FromEnvironment("PREFIXFS_TEST_IO_URING", "") == "off";
#endif
}
std::string DefaultFilesystem() { return FromEnvironment("PREFIXFS_TEST_FILESYSTEM", "xfs"); }

std::string ToolPath(const std::string& name) {
  const char* other = getenv("PREFIXFS_TOOLS");  // another build's programs
  return std::string(other != nullptr ? other : PREFIXFS_TOOLS_DIR) + "/" + name;
}

Mount::Mount(MountOptions options) : options_(std::move(options)) {
  for (int i = 0; i < options_.drives; ++i) {
    if (!options_.filesystem.empty()) {
      filesystems_.push_back(std::make_unique<LoopFs>(options_.filesystem, options_.drive_bytes,
                                                      options_.sector_bytes, options_.mkfs));
    }
    std::filesystem::create_directories(drive(i));
  }
  path_ = scratch_ / "mnt";
  std::filesystem::create_directory(path_);
  if (native()) path_ = drive(0);
  Start();
}

Mount::~Mount() {
  if (!native()) {
    try {
      if (IsMountPoint(path_)) Stop();
    } catch (const std::exception& failure) {
      fprintf(stderr, "while a test cleans up: %s\n", failure.what());
    }
    ForceAway();
  }
  filesystems_.clear();
}

std::string Mount::drive(int i) const {
  if (filesystems_.empty()) return scratch_ / ("drive" + std::to_string(i));
  return filesystems_[static_cast<size_t>(i)]->path() + "/tier";
}

std::string Mount::Log() const {
  return access(log_path().c_str(), R_OK) == 0 ? ReadText(log_path()) : std::string();
}

void Mount::Start() {
  if (native()) return;
  std::vector<std::string> argv = {ToolPath("prefixfs"), "mount"};
  for (int i = 0; i < options_.drives; ++i) {
    argv.insert(argv.end(), {"--nvme", drive(i)});
  }
  argv.insert(argv.end(), {"--capacity", options_.capacity});
  // A test's filesystem is small; the default min_free would eat most of it.
  for (const std::string& assignment :
       {std::string("min_free=\"272M\""), "log=\"" + log_path() + "\""}) {
    argv.insert(argv.end(), {"--set", assignment});
  }
  if (FromEnvironment("PREFIXFS_TEST_PASSTHROUGH", "") == "off")
    argv.insert(argv.end(), {"--set", "passthrough=off"});
  if (DevFuseMode()) argv.insert(argv.end(), {"--set", "io_uring=off"});
  for (const std::string& assignment : options_.set) {
    argv.insert(argv.end(), {"--set", assignment});
  }
  argv.push_back(path_);
  const RunResult result = Run(argv, std::chrono::seconds(60), options_.environment);
  if (!result.ok()) Fail("prefixfs mount: " + result.Describe() + Log());
}

void Mount::Stop() {
  if (native()) return;
  const int pid = daemon_pid();
  RunOrFail({ToolPath("prefixfs"), "umount", path_}, std::chrono::seconds(45));
  Check(!IsMountPoint(path_), "prefixfs umount returned 0 but the mount is still there");
  if (pid > 0) Check(WaitGone(pid, std::chrono::seconds(20)), "the daemon outlives its mount");
}

void Mount::Remount() {
  if (native()) {
    if (!filesystems_.empty()) filesystems_[0]->Remount();
    return;
  }
  Stop();
  Start();
}

void Mount::KillDaemon() {
  const int pid = daemon_pid();
  Check(pid > 0, "no daemon to kill");
  kill(pid, SIGKILL);
  Check(WaitGone(pid, std::chrono::seconds(10)), "the daemon survives SIGKILL");
}

void Mount::ClearDead() {
  RunOrFail({ToolPath("prefixfs"), "umount", path_}, std::chrono::seconds(45));
  Check(!IsMountPoint(path_), "a dead mount is still there after prefixfs umount");
}

void Mount::ForceAway() {
  const int pid = daemon_pid();
  UnmountTree(path_);
  if (pid > 0 && !WaitGone(pid, std::chrono::seconds(3))) {
    kill(pid, SIGKILL);
    WaitGone(pid, std::chrono::seconds(3));
  }
}

int Mount::daemon_pid() const {
  std::ifstream in(drive(0) + "/daemon.pid");
  int pid = 0;
  if (!(in >> pid) || pid <= 1) return 0;
  // A stale file may name somebody else's process by now.
  std::ifstream cmdline("/proc/" + std::to_string(pid) + "/cmdline");
  std::string words;
  std::getline(cmdline, words, '\0');
  return words.ends_with("prefixfsd") ? pid : 0;
}

nlohmann::json Mount::ReadStats() const {
  return nlohmann::json::parse(ReadText(path_ + "/.prefixfs/stats"));
}

uint64_t Mount::Stat(const std::string& key) const { return ReadStats().at(key).get<uint64_t>(); }

uint64_t Mount::BlockUsage() const {
  uint64_t total = 0;
  for (int i = 0; i < options_.drives; ++i) {
    total += DiskUsage(drive(i) + "/blocks") + DiskUsage(drive(i) + "/incoming");
  }
  return total;
}

uint64_t Mount::TierUsage() const {
  uint64_t total = 0;
  for (int i = 0; i < options_.drives; ++i) total += DiskUsage(drive(i));
  return total;
}

}  // namespace prefixfs::support
