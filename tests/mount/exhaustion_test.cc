// The daemon runs out of something: a clear error for the client, nothing lost that was published,
// and all is well again when there is some.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cache/base/fd.h"
#include "tests/mount/blocks.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {
namespace {

using namespace support;

constexpr uint64_t kSmall = 4096;

// A soft limit of another process, given back in the destructor.
class Limit {
 public:
  Limit(pid_t pid, __rlimit_resource resource, rlim_t soft) : pid_(pid), resource_(resource) {
    Sys(prlimit(pid, resource, nullptr, &before_), "prlimit");
    const rlimit lower{soft, before_.rlim_max};
    Sys(prlimit(pid, resource, &lower, nullptr), "prlimit");
  }
  ~Limit() { Lift(); }
  void Lift() { (void)prlimit(pid_, resource_, &before_, nullptr); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  pid_t pid_;
  __rlimit_resource resource_;
  rlimit before_{};
};

size_t DescriptorsOf(pid_t pid) {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

uint64_t FieldOfStatus(pid_t pid, const std::string& key) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  std::string word;
  uint64_t value = 0;
  while (in >> word) {
    if (word == key + ":" && in >> value) return value;
  }
  return 0;
}

// Opens until an open fails; its errno.
int OpenUntilItFails(const std::function<int(uint64_t)>& open_one, uint64_t most,
                     std::vector<Fd>* held) {
  for (uint64_t i = 0; i < most; ++i) {
    const int fd = open_one(i);
    if (fd < 0) return errno;
    held->emplace_back(fd);
  }
  return 0;
}

class Exhaustion : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "there is no daemon";
  }
};

TEST_F(Exhaustion, WithoutDescriptorsOpenSaysSoAndTheRestGoesOn) {
  MountOptions options;
  options.capacity = "300M";
  options.set = {"lease=0s", "namespace.pool.policy=posix", "reserve_initial=\"64K\""};
  Mount mount(options);
  constexpr uint64_t kBlocks = 400, kLarge = 20;
  for (uint64_t i = 0; i < kBlocks; ++i) blocks::Write(mount.path(), i, kSmall);
  for (uint64_t i = 0; i < kLarge; ++i) blocks::Write(mount.path(), kBlocks + i, 8 << 20);
  ASSERT_EQ(mkdir((mount / "pool").c_str(), 0755), 0);
  const Fd pool(
      Sys(open((mount / "pool/pool").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644), "pool"));
  const pid_t daemon = mount.daemon_pid();
  Limit limit(daemon, RLIMIT_NOFILE, DescriptorsOf(daemon) + 150);

  std::vector<Fd> held;
  const auto open_block = [&](uint64_t i) {
    return open(blocks::Path(mount.path(), i).c_str(), O_RDONLY | O_CLOEXEC);
  };
  const int refused = OpenUntilItFails(open_block, kBlocks, &held);
  EXPECT_STREQ(strerrorname_np(refused), "ENFILE");
  EXPECT_GT(held.size(), 50u);
  const uint64_t were_open = held.size();
  const auto create = [&](uint64_t i) {
    return open((mount / ("new" + std::to_string(i))).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC,
                0644);
  };
  // A few may have been free again by then.
  EXPECT_STREQ(strerrorname_np(OpenUntilItFails(create, 20, &held)), "ENFILE");
  EXPECT_FALSE(std::filesystem::exists(mount / ("new" + std::to_string(held.size() - were_open))));

  // What is open is read; names come and go; space is made.
  Buffer data(kSmall);
  ASSERT_EQ(pread(held.front().get(), data.data(), kSmall, 0), static_cast<ssize_t>(kSmall));
  EXPECT_EQ(Verify(data, 1, kSmall), "");
  EXPECT_EQ(unlink(blocks::Path(mount.path(), kBlocks - 1).c_str()), 0);
  EXPECT_EQ(rename(blocks::Path(mount.path(), kBlocks - 2).c_str(), (mount / "moved").c_str()), 0);
  EXPECT_EQ(mkdir((mount / "directory").c_str(), 0755), 0);
  EXPECT_EQ(fallocate(pool.get(), 0, 0, 200 << 20), 0) << strerrorname_np(errno);
  EXPECT_GT(mount.Stat("evicted_blocks"), 0u);
  EXPECT_GT(mount.Stat("no_descriptors"), 0u);
  EXPECT_NE(mount.Log().find("LimitNOFILE"), std::string::npos) << mount.Log();

  // Some are closed, and as many may be opened. What was open was not evicted.
  EXPECT_EQ(ftruncate(pool.get(), 0), 0);
  WaitUntil([&] { return mount.Stat("used_bytes") < 200u << 20; }, "the pool's space");
  held.resize(were_open - 10);
  WaitUntil([&] { return Fd(open_block(were_open - 5)).valid(); }, "an open after closes");
  held.clear();
  WaitUntil([&] { return Fd(create(100)).valid(); }, "a create after closes");
  limit.Lift();
  EXPECT_EQ(blocks::CountRight(mount.path(), 0, were_open, kSmall), were_open);
}

TEST_F(Exhaustion, InodesComeFromEvictionAndOtherwiseCreateSaysSo) {
  MountOptions options;
  options.filesystem = "ext4";
  options.drive_bytes = 400 << 20;
  options.capacity = "200M";
  options.mkfs = {"-N", "5200"};
  options.set = {"lease=0s", "min_free=\"16M\"", "namespace.pool.policy=posix",
                 "reserve_initial=\"4K\""};
  Mount mount(options);
  // Directories that the blocks would fan out to one by one, which take inodes for good.
  for (int i = 0; i < 4096; ++i) {
    char name[16];
    std::snprintf(name, sizeof name, "/blocks/%03x", static_cast<unsigned>(i));
    (void)!mkdir((mount.drive() + name).c_str(), 0711);
  }
  constexpr uint64_t kBlocks = 1500;
  for (uint64_t i = 0; i < kBlocks; ++i) blocks::Write(mount.path(), i, kSmall);
  EXPECT_GT(mount.Stat("evicted_blocks"), 500u);
  EXPECT_EQ(blocks::CountRight(mount.path(), kBlocks - 200, kBlocks, kSmall), 200u)
      << "the newest are there";

  // Files that are never evicted take all there are.
  ASSERT_EQ(mkdir((mount / "pool").c_str(), 0755), 0);
  uint64_t made = 0;
  int refused = 0;
  while (refused == 0 && made < 10'000) {
    const Fd fd(open((mount / ("pool/" + std::to_string(made))).c_str(), O_CREAT | O_WRONLY, 0644));
    if (!fd.valid()) refused = errno;
    if (fd.valid()) ++made;
  }
  EXPECT_STREQ(strerrorname_np(refused), "ENOSPC");
  EXPECT_GT(made, 300u);
  EXPECT_GT(mount.Stat("no_space"), 0u);
  for (uint64_t i = 0; i < 600 && i < made; ++i)
    ASSERT_EQ(unlink((mount / ("pool/" + std::to_string(i))).c_str()), 0);
  for (uint64_t i = 0; i < 20; ++i) blocks::Write(mount.path(), kBlocks + i, kSmall);
  EXPECT_EQ(blocks::CountRight(mount.path(), kBlocks, kBlocks + 20, kSmall), 20u);
}

// Keeps asking for what takes memory of the daemon: names, handles, large attributes.
int UseMemoryUntilItFails(const Mount& mount, const std::string& prefix, std::vector<Fd>* held) {
  const std::string value(60'000, 'v');
  const auto open_one = [&](uint64_t i) {
    const std::string path = mount / (prefix + std::to_string(i));
    const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    if (fd >= 0 && i % 64 == 0 && fsetxattr(fd, "user.value", value.data(), value.size(), 0) != 0 &&
        errno == ENOMEM) {
      close(fd);
      errno = ENOMEM;
      return -1;
    }
    return fd;
  };
  return OpenUntilItFails(open_one, 20'000, held);
}

// Everything at once, and whatever it answers, it answers.
void AskForEverything(const Mount& mount, uint64_t blocks) {
  for (uint64_t i = 0; i < blocks; ++i) {
    const std::string path = blocks::Path(mount.path(), i);
    const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid())
      Check(errno == ENOMEM || errno == ENFILE, path + ": " + strerrorname_np(errno));
    const std::string name = std::to_string(getpid()) + "_" + std::to_string(i);
    struct stat st {};
    (void)!stat((mount / ("absent" + name)).c_str(), &st);
    (void)!mkdir((mount / ("d" + name)).c_str(), 0755);
    (void)!rename((mount / ("d" + name)).c_str(), (mount / ("e" + name)).c_str());
    const Fd made(open((mount / ("f" + name)).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  }
  std::error_code error;
  for (std::filesystem::directory_iterator at(mount.path(), error), end; !error && at != end;)
    at.increment(error);
}

TEST_F(Exhaustion, WithoutMemoryACallSaysSoAndTheDaemonLivesOn) {
  MountOptions options;
  options.set = {"reserve_initial=\"64K\""};
  Mount mount(options);
  constexpr uint64_t kBlocks = 200;
  for (uint64_t i = 0; i < kBlocks; ++i) blocks::Write(mount.path(), i, kSmall);
  const pid_t daemon = mount.daemon_pid();
  for (const uint64_t spare_kib : {512, 64}) {
    std::vector<Fd> held;
    {
      const Limit limit(daemon, RLIMIT_DATA, (FieldOfStatus(daemon, "VmData") + spare_kib) << 10);
      const std::string prefix = std::string(200, 'n') + std::to_string(spare_kib) + "_";
      EXPECT_STREQ(strerrorname_np(UseMemoryUntilItFails(mount, prefix, &held)), "ENOMEM");
      std::vector<std::unique_ptr<Child>> clients;
      for (int client = 0; client < 4; ++client)
        clients.push_back(std::make_unique<Child>([&] { AskForEverything(mount, kBlocks); }));
      for (auto& client : clients) EXPECT_NO_THROW(client->Join());
      ASSERT_EQ(mount.daemon_pid(), daemon) << mount.Log();
    }
    held.clear();
    EXPECT_EQ(blocks::CountRight(mount.path(), 0, kBlocks, kSmall), kBlocks);
    for (uint64_t i = 0; i < 20; ++i) blocks::Write(mount.path(), kBlocks + i, kSmall);
    EXPECT_EQ(blocks::CountRight(mount.path(), kBlocks, kBlocks + 20, kSmall), 20u);
  }
  EXPECT_NE(mount.Log().find("out of memory"), std::string::npos) << mount.Log();
  mount.Remount();
  EXPECT_EQ(blocks::CountRight(mount.path(), 0, kBlocks + 20, kSmall), kBlocks + 20);
}

// A control group that may have so many threads; gone with the object. Without the controller
// valid() is false.
class ThreadGroup {
 public:
  ThreadGroup() {
    const std::string name = "/prefixfs-test-" + std::to_string(getpid());
    for (const char* root : {"/sys/fs/cgroup/pids", "/sys/fs/cgroup"}) {
      path_ = root + name;
      if (mkdir(path_.c_str(), 0755) != 0) continue;
      if (access((path_ + "/pids.max").c_str(), W_OK) == 0) return;
      rmdir(path_.c_str());
    }
    path_.clear();
  }
  ~ThreadGroup() {
    if (valid()) WaitUntil([&] { return rmdir(path_.c_str()) == 0; }, "an empty control group");
  }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  bool valid() const { return !path_.empty(); }
  void SetMost(uint64_t threads) const { Write("pids.max", threads); }
  void Add(pid_t pid) const { Write("cgroup.procs", static_cast<uint64_t>(pid)); }
  std::string procs() const { return path_ + "/cgroup.procs"; }

 private:
  void Write(const char* file, uint64_t value) const {
    const Fd fd(Sys(open((path_ + "/" + file).c_str(), O_WRONLY | O_CLOEXEC), file));
    const std::string text = std::to_string(value);
    Sys(write(fd.get(), text.data(), text.size()), file);
  }
  std::string path_;
};

TEST_F(Exhaustion, WithoutThreadsToStartTheMountFailsAndSaysWhy) {
  const ThreadGroup group;
  if (!group.valid()) GTEST_SKIP() << "no control group for threads is to be had here";
  Mount mount;
  mount.Stop();
  group.SetMost(6);
  const RunResult result = support::Run(
      {"sh", "-c", "echo $$ > " + group.procs() + " && exec \"$0\" \"$@\"", ToolPath("prefixfs"),
       "mount", "--nvme", mount.drive(), "--set", "min_free=\"272M\"", mount.path()});
  EXPECT_FALSE(result.ok());
  EXPECT_NE(result.err.find("thread"), std::string::npos) << result.Describe();
  EXPECT_EQ(mount.daemon_pid(), 0);
  mount.Start();
  blocks::Write(mount.path(), 1, kSmall);
}

TEST_F(Exhaustion, ARunningMountNeedsNoMoreThreads) {
  const ThreadGroup group;
  if (!group.valid()) GTEST_SKIP() << "no control group for threads is to be had here";
  Mount mount;
  const pid_t daemon = mount.daemon_pid();
  group.SetMost(FieldOfStatus(daemon, "Threads"));
  group.Add(daemon);
  std::vector<std::unique_ptr<Child>> clients;
  for (uint64_t client = 0; client < 8; ++client) {
    clients.push_back(std::make_unique<Child>([&mount, client] {
      for (uint64_t i = 0; i < 50; ++i) blocks::Write(mount.path(), client * 1000 + i, kSmall);
      const uint64_t right =
          blocks::CountRight(mount.path(), client * 1000, client * 1000 + 50, kSmall);
      Check(right == 50, std::to_string(right) + " of 50 blocks");
    }));
  }
  for (auto& client : clients) client->Join();
  EXPECT_EQ(mount.daemon_pid(), daemon);
  mount.Stop();
}

}  // namespace
}  // namespace prefixfs
