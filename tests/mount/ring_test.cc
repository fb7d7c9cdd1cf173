// FUSE over io_uring: replies that come later and from other threads, clients and daemons that die
// or stop in between.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cache/base/fd.h"
#include "tests/mount/blocks.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"

namespace prefixfs {
namespace {

using namespace support;

constexpr uint64_t kSize = 70'273;
constexpr int kClients = 4;
constexpr uint64_t kKnown = 8;  // blocks that are there throughout

int Rounds(int plain, int full) { return getenv("PREFIXFS_FULL") != nullptr ? full : plain; }

bool KernelHasRing() { return access("/sys/module/fuse/parameters/enable_uring", W_OK) == 0; }

int CountOf(std::string_view what, const std::string& text) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

class Ring : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS sends no requests";
    if (!KernelHasRing()) GTEST_SKIP() << "this kernel has no FUSE over io_uring";
    if (DevFuseMode()) GTEST_SKIP() << "the ring is turned off";
  }
  void Start(std::vector<std::string> set) {
    set.push_back("io_uring=\"on\"");
    mount_ = std::make_unique<Mount>(MountOptions{.capacity = "300M", .set = std::move(set)});
    for (uint64_t number = 0; number < kKnown; ++number)
      blocks::Write(mount_->path(), number, kSize);
  }
  // The mount answers, on every processor's queue, and what it serves is right.
  void ExpectAnswers() {
    for (uint64_t number = 0; number < kKnown; ++number) {
      ASSERT_EQ(blocks::Read(mount_->path(), number, kSize), blocks::Found::kRight);
    }
    ASSERT_TRUE(mount_->ReadStats().at("io_uring").get<bool>());
  }

  std::unique_ptr<Mount> mount_;
};

// Calls that the daemon answers from its workers: fsync, fallocate, and opens that are verified.
void CallWhatIsDeferred(const std::string& root, int client, unsigned seed) {
  std::minstd_rand random(seed);
  for (unsigned i = 0;; ++i) {
    const std::string path = root + "/c" + std::to_string(client) + "_" + std::to_string(i % 4);
    Fd fd(Sys(open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR, 0644), "create"));
    Sys(fallocate(fd.get(), 0, 0, 65'536), "fallocate");
    Sys(fsync(fd.get()), "fsync");
    fd.Reset();
    for (int reads = 0; reads < 4; ++reads) {
      // Wrong bytes are a failure of another kind; an absent block may mean an absent mount.
      if (blocks::Read(root, random() % kKnown, kSize) == blocks::Found::kAbsent)
        throw SysFailure(ENOENT, "open a block");
    }
  }
}

TEST_F(Ring, IsInUseWhereTheKernelHasIt) {
  Start({});
  ExpectAnswers();
}

TEST_F(Ring, OffMeansOverDevFuse) {
  mount_ = std::make_unique<Mount>(MountOptions{.set = {"io_uring=\"off\""}});
  blocks::Write(mount_->path(), 1, kSize);
  EXPECT_EQ(blocks::Read(mount_->path(), 1, kSize), blocks::Found::kRight);
  EXPECT_FALSE(mount_->ReadStats().at("io_uring").get<bool>());
}

TEST_F(Ring, DeferredRepliesSurviveTheirKilledClients) {
  Start({"verify=\"always\"", "io_uring_depth=4"});
  std::minstd_rand random(1);
  const int rounds = Rounds(40, 1000);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Child> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client, seed = static_cast<unsigned>(random())] {
        CallWhatIsDeferred(mount_->path(), client, seed);
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    for (Child& client : clients) client.Kill(SIGKILL);
    ASSERT_NO_FATAL_FAILURE(ExpectAnswers()) << "round " << round;
  }
  EXPECT_NO_THROW(mount_->Stop());
}

// More creates wait for space than a queue has entries: they are answered all the same.
TEST_F(Ring, MoreWaitingRequestsThanEntriesEndInAnswers) {
  Start({"io_uring_depth=2", "space_wait=\"300ms\"", "reserve_initial=\"64M\"", "lease=\"10s\""});
  ExpectAnswers();  // from now on the blocks are leased
  std::vector<Child> clients;
  for (int client = 0; client < 12; ++client) {
    clients.emplace_back([&, client] {
      const std::string path = mount_->path() + "/dir" + std::to_string(client);
      Sys(mkdir(path.c_str(), 0755), "mkdir");
      Fd fd(open((path + "/big").c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644));
      Check(fd.valid() || errno == ENOSPC, "create");
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    });
  }
  for (Child& client : clients) EXPECT_NO_THROW(client.Join());
  ExpectAnswers();
}

// An end of the daemon with replies still to come from its workers.
TEST_F(Ring, AStopInTheMidstOfDeferredRepliesIsClean) {
  const int rounds = Rounds(5, 100);
  Start({"verify=\"always\""});
  for (int round = 0; round < rounds; ++round) {
    const int daemon = mount_->daemon_pid();
    std::vector<Child> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        try {
          CallWhatIsDeferred(mount_->path(), client, static_cast<unsigned>(round));
        } catch (const SysFailure&) {  // the mount went
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + round % 20));
    ASSERT_EQ(kill(daemon, SIGTERM), 0);
    ASSERT_TRUE(WaitGone(daemon, std::chrono::seconds(20))) << "the daemon hangs at its end";
    for (Child& client : clients) EXPECT_NO_THROW(client.Join());
    ASSERT_EQ(CountOf("unmounted", mount_->Log()), round + 1) << mount_->Log();
    ASSERT_FALSE(IsMountPoint(mount_->path()));
    mount_->Start();
    ASSERT_NO_FATAL_FAILURE(ExpectAnswers()) << "round " << round;
  }
  const std::string log = mount_->Log();
  for (const char* sign : {"terminate called", "Failed to get a ring", "libfuse: "}) {
    EXPECT_EQ(log.find(sign), std::string::npos) << log;
  }
}

}  // namespace
}  // namespace prefixfs
