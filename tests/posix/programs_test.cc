// Programs that others wrote to find filesystems out: fio with its own verification, and the
// stressors of stress-ng that use files. Both must run clean, as they do on the filesystem below.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

namespace prefixfs {
namespace {

using namespace support;

bool Full() { return getenv("PREFIXFS_FULL") != nullptr; }

MountOptions Options(bool passthrough) {
  MountOptions options;
  options.drive_bytes = 4ull << 30;
  options.capacity = "2G";
  options.set = {"namespace.posix.policy=posix"};
  if (!passthrough) options.set.push_back("passthrough=off");
  return options;
}

struct Job {
  const char* name;
  std::vector<const char*> arguments;
  bool always;  // else only in a full run
};

// Sizes of KV blocks: 2 and 8 MiB, and tokens of 70,272 B, which are no multiple of anything.
const Job kJobs[] = {
    {"sequential", {"--rw=write", "--bs=2m", "--size=64m"}, true},
    {"sequential_direct", {"--rw=write", "--bs=8m", "--size=64m", "--direct=1"}, false},
    {"random", {"--rw=randwrite", "--bs=1124352", "--size=44974080"}, true},
    {"random_direct",
     {"--rw=randwrite", "--bs=1124352", "--size=44974080", "--direct=1", "--ioengine=libaio",
      "--iodepth=4"},
     true},
    {"odd", {"--rw=randwrite", "--bs=70273", "--size=14054600"}, true},
    {"mixed_direct",
     {"--rw=randrw", "--bs=64k", "--size=32m", "--direct=1", "--ioengine=io_uring", "--iodepth=8"},
     true},
    {"mapped", {"--rw=randwrite", "--bs=64k", "--size=32m", "--ioengine=mmap"}, false},
    {"several",
     {"--rw=randwrite", "--bs=8m", "--size=64m", "--direct=1", "--numjobs=4", "--group_reporting"},
     false},
    {"preallocated",
     {"--rw=write", "--bs=2m", "--size=64m", "--fallocate=keep", "--end_fsync=1"},
     false},
};

void RunFio(const std::string& directory) {
  for (const Job& job : kJobs) {
    if (!job.always && !Full()) continue;
    std::vector<std::string> argv = {"fio",
                                     std::string("--name=") + job.name,
                                     "--directory=" + directory,
                                     "--output-format=terse",
                                     "--verify=xxhash",
                                     "--verify_fatal=1",
                                     "--do_verify=1",
                                     "--verify_state_save=0"};
    argv.insert(argv.end(), job.arguments.begin(), job.arguments.end());
    if (Full()) argv.insert(argv.end(), {"--loops=8"});
    const RunResult result = Run(argv, std::chrono::seconds(300));
    EXPECT_TRUE(result.ok()) << directory << ", " << job.name << ": " << result.Describe();
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      std::filesystem::remove(entry.path());
  }
}

void FioOn(bool passthrough) {
  Mount mount(Options(passthrough));
  for (const char* policy : {"blocks", "posix"}) {
    const std::string directory = mount / policy;
    ASSERT_EQ(mkdir(directory.c_str(), 0755), 0);
    if (Full() || std::string(policy) == "blocks") RunFio(directory);
  }
}

TEST(Fio, VerifiesWhatItWroteByPassthrough) { FioOn(true); }

TEST(Fio, VerifiesWhatItWroteServedByTheDaemon) { FioOn(false); }

// Not run: `link` wants hard links, which are refused; those that need a device, and those that do
// not touch files.
constexpr std::array kAlways = {"dentry", "dir",   "rename",  "open",
                                "chmod",  "xattr", "getdent", "mmap"};
constexpr std::array kMore = {
    "access",  "aio",      "aiol",      "chdir",     "chown",  "copy-file",  "dirdeep",
    "dirmany", "dnotify",  "dup",       "fallocate", "fcntl",  "file-ioctl", "filename",
    "flock",   "fpunch",   "fsize",     "fstat",     "handle", "hdd",        "inotify",
    "io",      "io-uring", "iomix",     "lease",     "locka",  "lockf",      "lockofd",
    "mknod",   "msync",    "readahead", "revio",     "rmap",   "seek",       "sendfile",
    "splice",  "symlink",  "sync-file", "tee",       "touch",  "utime",      "vm-splice"};

void RunStressor(const std::string& stressor, const std::string& directory,
                 const std::string& native) {
  const auto argv_in = [&](const std::string& where) {
    return std::vector<std::string>{"stress-ng", "--" + stressor,      Full() ? "2" : "1",
                                    "--timeout", Full() ? "5s" : "1s", "--verify",
                                    "--oomable", "--temp-path",        where};
  };
  const RunResult result = Run(argv_in(directory), std::chrono::seconds(120));
  if (result.ok()) return;
  const RunResult below = Run(argv_in(native), std::chrono::seconds(120));
  if (!below.ok()) {
    printf("stress-ng --%s fails on the filesystem below as well\n", stressor.c_str());
    return;
  }
  ADD_FAILURE() << directory << ": " << result.Describe();
}

void StressorsOn(bool passthrough) {
  Mount mount(Options(passthrough));
  const std::string native = mount.filesystem().path() + "/native";
  ASSERT_EQ(mkdir(native.c_str(), 0755), 0);
  for (const char* policy : {"posix", "blocks"}) {
    const std::string directory = mount / policy;
    ASSERT_EQ(mkdir(directory.c_str(), 0755), 0);
    if (!Full() && std::string(policy) == "blocks") continue;
    for (const char* stressor : kAlways) RunStressor(stressor, directory, native);
    for (const char* stressor : kMore) {
      if (Full()) RunStressor(stressor, directory, native);
    }
  }
}

TEST(StressNg, RunsCleanByPassthrough) { StressorsOn(true); }

TEST(StressNg, RunsCleanServedByTheDaemon) {
  if (!Full()) GTEST_SKIP() << "in a full run";
  StressorsOn(false);
}

}  // namespace
}  // namespace prefixfs
