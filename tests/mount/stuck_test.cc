// A drive that does not answer, and clients that are killed while they wait: what needs the drive
// waits, all else goes on, and nothing is left behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cache/base/fd.h"
#include "tests/mount/blocks.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {
namespace {

using namespace support;
using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kSize = 256 << 10;
constexpr uint64_t kBlocks = 24;  // written before the drive stops
constexpr int kLocals = 2400;     // names that are looked up, of files that eviction leaves alone
constexpr int kRounds = 6, kLookups = 100, kTries = 3;
constexpr int kLookupWaitUs = 5000;

std::string DriveOf(const std::string& path) {
  char text[4096];
  const ssize_t got = Sys(getxattr(path.c_str(), "user.prefixfs.location", text, sizeof text),
                          "location of " + path);
  return json::parse(std::string(text, static_cast<size_t>(got))).at("drive").get<std::string>();
}

json RequestsOf(const Mount& mount) {
  return json::parse(
             RunOrFail({ToolPath("prefixfs"), "stat", "--requests", "--json", mount.path()}))
      .at("requests");
}

// How many requests of that kind wait for `what` of the drive (any, if that is empty).
size_t CountWaiting(const Mount& mount, const std::string& operation, const std::string& what,
                    const std::string& drive) {
  const json requests = RequestsOf(mount);
  return static_cast<size_t>(std::count_if(requests.begin(), requests.end(), [&](const json& r) {
    return r.at("operation") == operation && r.at("waits_for") == what &&
           (drive.empty() || r.at("drive") == drive);
  }));
}

class Stuck : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "there is no daemon";
  }
  void Start(std::vector<std::string> set) {
    set.push_back("rule=[{match=\"local_*\", policy=\"posix\"}]");
    set.push_back("lease=\"0s\"");
    mount_ = std::make_unique<Mount>(MountOptions{
        .drives = 2, .drive_bytes = 700ull << 20, .capacity = "200M", .set = std::move(set)});
    for (uint64_t number = 0; number < kBlocks; ++number) blocks::Write(root(), number, kSize);
  }
  const std::string& root() const { return mount_->path(); }
  std::string Local(int number) const { return root() + "/local_" + std::to_string(number); }
  // A block on the second drive; not one of those below `from`.
  uint64_t OnSecond(uint64_t from = 0) const {
    for (uint64_t number = from; number < kBlocks; ++number) {
      if (DriveOf(blocks::Path(root(), number)) == mount_->drive(1)) return number;
    }
    Fail("all blocks are on one drive");
  }
  void WaitUntilStalled() {
    WaitUntil([&] { return mount_->ReadStats().at("drives").at(1).at("stalled").get<bool>(); },
              "the drive is known not to answer");
  }

  std::unique_ptr<Mount> mount_;
};

// The 99th percentile of the next round's first lookups, in microseconds.
double LookUp(const std::function<std::string(int)>& name, int* next) {
  std::vector<double> took;
  for (int i = 0; i < kLookups; ++i, ++*next) {
    struct stat st {};
    const auto begun = std::chrono::steady_clock::now();
    Sys(stat(name(*next).c_str(), &st), "stat of a local name");
    took.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun)
            .count());
  }
  std::sort(took.begin(), took.end());
  return took[took.size() * 99 / 100];
}

double MedianOfRounds(const std::function<std::string(int)>& name, int* next) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    rounds.push_back(LookUp(name, next));
    std::this_thread::sleep_for(milliseconds(20));
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

// Writes blocks `first`, `first` + 1, ... until told to stop; `done` counts them.
void WriteOn(const std::string& root, uint64_t first, const std::atomic<bool>& stop,
             std::atomic<uint64_t>& done) {
  for (uint64_t number = first; !stop; ++number) {
    blocks::Write(root, number, kSize);
    ++done;
    std::this_thread::sleep_for(milliseconds(20));
  }
}

struct Progress {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> done[16]{};
};

TEST_F(Stuck, ADriveThatDoesNotAnswerHoldsUpNobodyElse) {
  Start({"request_limit=\"300ms\"", "deadline=\"10m\""});
  for (int i = 0; i < kLocals; ++i) WriteText(Local(i), "local");
  const uint64_t first = OnSecond();
  const uint64_t second = OnSecond(first + 1);
  mount_->Remount();  // the kernel knows no name any more
  const auto local = [&](int number) { return Local(number); };
  int next = 0;
  const double quiet_us = MedianOfRounds(local, &next);

  mount_->filesystem(1).Freeze();
  Shared<Progress> progress;
  std::vector<Child> openers, creators;
  // A new version of a block is made on the block's drive.
  for (int i = 0; i < 4; ++i) {
    openers.emplace_back([&] {
      Fd fd(Sys(open(blocks::Path(root(), first).c_str(), O_RDWR | O_CLOEXEC), "open to write"));
    });
  }
  for (uint64_t i = 0; i < 8; ++i) {
    creators.emplace_back(
        [&, i] { WriteOn(root(), 1000 * (i + 1), progress->stop, progress->done[i]); });
  }
  EXPECT_EQ(unlink(blocks::Path(root(), second).c_str()), 0);
  WaitUntilStalled();
  EXPECT_NO_THROW(
      WaitUntil([&] { return CountWaiting(*mount_, "open", "create", mount_->drive(1)) == 4; },
                "the openers are seen to wait for the drive"));
  // More clients, whose blocks all go to the drive that answers, and who keep the evictor busy.
  for (uint64_t i = 8; i < 12; ++i) {
    creators.emplace_back(
        [&, i] { WriteOn(root(), 1000 * (i + 1), progress->stop, progress->done[i]); });
  }
  WaitUntil([&] { return mount_->Stat("evicted_blocks") > 20; }, "the evictor is at work");

  const uint64_t before = mount_->Stat("evicted_blocks");
  // The floor and the tries are for a machine that is busy with other things.
  const double most_us = std::max(2 * quiet_us + kLookupWaitUs, 20'000.0);
  double stuck_us = MedianOfRounds(local, &next);
  for (int tries = 1; tries < kTries && stuck_us > most_us; ++tries)
    stuck_us = MedianOfRounds(local, &next);
  EXPECT_LE(stuck_us, most_us) << "quiet " << quiet_us;
  EXPECT_NO_THROW(
      WaitUntil([&] { return mount_->Stat("evicted_blocks") > before; }, "the evictor goes on"));
  printf("first lookups, p99: quiet %.0f us, with a stuck drive %.0f us\n", quiet_us, stuck_us);

  // Names, and the blocks of the other drive.
  RunInProcess([&] {
    Sys(mkdir((root() + "/dir").c_str(), 0755), "mkdir");
    blocks::Write(root() + "/dir", 1, kSize);
    Check(blocks::Read(root() + "/dir", 1, kSize) == blocks::Found::kRight, "a block is lost");
    Sys(rename(blocks::Path(root() + "/dir", 1).c_str(), (root() + "/dir/moved").c_str()),
        "rename");
    Sys(unlink((root() + "/dir/moved").c_str()), "unlink");
    Sys(rmdir((root() + "/dir").c_str()), "rmdir");
    Check(std::filesystem::directory_iterator(root()) != std::filesystem::directory_iterator(),
          "an empty listing");
  });
  const std::string table = RunOrFail({ToolPath("prefixfs"), "stat", "--requests", root()});
  EXPECT_NE(table.find("drive " + mount_->drive(1) + ": create"), std::string::npos) << table;
  EXPECT_GE(mount_->Stat("slow_requests"), 4u);
  EXPECT_NO_THROW(
      WaitUntil([&] { return mount_->Log().find("takes long: open by pid ") != std::string::npos; },
                "the log says so"));

  progress->stop = true;
  mount_->filesystem(1).Thaw();
  for (Child& opener : openers) EXPECT_NO_THROW(opener.Join());
  for (Child& creator : creators) EXPECT_NO_THROW(creator.Join());
  // The last block of each is there and right: nothing was lost, nor half written.
  for (uint64_t i = 0; i < 12; ++i) {
    ASSERT_GT(progress->done[i], 0u) << i;
    const uint64_t last = 1000 * (i + 1) + progress->done[i] - 1;
    EXPECT_EQ(blocks::Read(root(), last, kSize), blocks::Found::kRight) << last;
  }
  EXPECT_NO_THROW(
      WaitUntil([&] { return !mount_->ReadStats().at("drives").at(1).at("stalled").get<bool>(); },
                "the drive answers again"));
  EXPECT_NO_THROW(WaitUntil([&] { return CountWaiting(*mount_, "open", "create", "") == 0; },
                            "nobody waits any more"));
  EXPECT_NO_THROW(mount_->Stop());
}

// It has the index: nothing can be changed, but all that is there is there.
TEST_F(Stuck, WithoutTheFirstDriveNamesAreLookedUpAndBlocksOfOthersAreRead) {
  Start({"deadline=\"10m\""});
  for (int i = 0; i < kLookups; ++i) WriteText(Local(i), "local");
  ASSERT_EQ(mkdir((root() + "/other").c_str(), 0755), 0);
  const uint64_t number = OnSecond();
  mount_->Remount();
  mount_->filesystem(0).Freeze();
  Child maker([&] { Sys(mkdir((root() + "/other/new").c_str(), 0755), "mkdir"); });
  EXPECT_NO_THROW(WaitUntil([&] { return CountWaiting(*mount_, "mkdir", "index", "") == 1; },
                            "mkdir is seen to wait for the index"));
  EXPECT_NO_THROW(RunInProcess([&] {
    for (int i = 0; i < kLookups; ++i) {
      struct stat st {};
      Sys(stat(Local(i).c_str(), &st), "stat of a local name");
    }
    Check(blocks::Read(root(), number, kSize) == blocks::Found::kRight, "a block is lost");
    CheckErrno(open((root() + "/absent").c_str(), O_RDONLY), ENOENT, "open what is not there");
    Check(!ReadText(root() + "/.prefixfs/metrics").empty(), "no metrics");
  }));
  mount_->filesystem(0).Thaw();
  EXPECT_NO_THROW(maker.Join());
  EXPECT_TRUE(std::filesystem::is_directory(root() + "/other/new"));
}

TEST_F(Stuck, AnOpenThatWouldWaitBeyondItsDeadlineIsAMissAndLeavesNothing) {
  Start({"deadline=\"300ms\""});
  const uint64_t number = OnSecond();
  const std::string path = blocks::Path(root(), number);
  WaitUntil([&] { return mount_->Stat("reserved_bytes") == 0; }, "nothing is reserved");
  mount_->filesystem(1).Freeze();
  RunInProcess([&] { CheckErrno(open(path.c_str(), O_RDWR | O_CLOEXEC), ENOENT, "open"); });
  EXPECT_GE(mount_->Stat("late_requests"), 1u);
  mount_->filesystem(1).Thaw();
  RunInProcess(
      [&] { const Fd fd(Sys(open(path.c_str(), O_RDWR | O_CLOEXEC), "open after the thaw")); });
  EXPECT_EQ(blocks::Read(root(), number, kSize), blocks::Found::kRight);
}

// Descriptors of the daemon on files in that directory of its drives.
size_t DescriptorsIn(const Mount& mount, const std::string& folder) {
  size_t count = 0;
  std::error_code gone;
  const std::string all = "/proc/" + std::to_string(mount.daemon_pid()) + "/fd";
  for (const auto& fd : std::filesystem::directory_iterator(all)) {
    const std::string target = std::filesystem::read_symlink(fd.path(), gone);
    for (int drive = 0; drive < mount.drives(); ++drive)
      count += target.starts_with(mount.drive(drive) + folder) ? 1 : 0;
  }
  return count;
}

// One client that does something which waits, for ever.
void Call(const std::string& root, int client, unsigned seed, uint64_t big) {
  std::minstd_rand random(seed);
  for (unsigned i = 0;; ++i) {
    const unsigned turn = static_cast<unsigned>(random()) % 4;
    const std::string path = root + "/c" + std::to_string(client) + "_" + std::to_string(i % 8);
    if (turn == 0) {  // is verified
      const Fd fd(open(blocks::Path(root, 0).c_str(), O_RDONLY | O_CLOEXEC));
    } else if (turn == 1) {  // makes a version
      const Fd fd(open(blocks::Path(root, 1).c_str(), O_RDWR | O_CLOEXEC));
    } else {  // waits for space
      Fd fd(open((path + ".tmp").c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644));
      if (fd.valid()) (void)!ftruncate(fd.get(), static_cast<off_t>(big));
      if (turn == 2 && fd.valid()) rename((path + ".tmp").c_str(), path.c_str());
      unlink((path + ".tmp").c_str());
    }
  }
}

TEST_F(Stuck, ClientsKilledWhileTheyWaitLeaveNothing) {
  mount_ =
      std::make_unique<Mount>(MountOptions{.capacity = "300M",
                                           .set = {"verify=\"always\"", "reserve_initial=\"40M\"",
                                                   "space_wait=\"200ms\"", "lease=\"50ms\""}});
  constexpr uint64_t kBig = 32 << 20;
  blocks::Write(root(), 0, kBig);
  blocks::Write(root(), 1, kBig);
  const auto idle = [&] {
    const json requests = RequestsOf(*mount_);
    // The question itself is under way too.
    const bool quiet = std::all_of(requests.begin(), requests.end(), [](const json& request) {
      return request.at("command") == "prefixfs";
    });
    return quiet && mount_->Stat("reserved_bytes") == 0;
  };
  WaitUntil(idle, "a quiet mount");
  std::minstd_rand random(1);
  const int rounds = getenv("PREFIXFS_FULL") != nullptr ? 500 : 30;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Child> clients;
    for (int client = 0; client < 8; ++client) {
      clients.emplace_back([&, client, seed = static_cast<unsigned>(random())] {
        Call(root(), client, seed, kBig);
      });
    }
    std::this_thread::sleep_for(microseconds(random() % 40'000));
    for (Child& client : clients) client.Kill(SIGKILL);
  }
  printf("rounds: %d\n", rounds);
  // A version that was made for a client which did not come back is dropped after half a minute.
  EXPECT_NO_THROW(WaitUntil(idle, "requests and reservations are gone", std::chrono::seconds(60)));
  EXPECT_NO_THROW(WaitUntil([&] { return DescriptorsIn(*mount_, "/blocks/") == 0; },
                            "no backing file stays open"));
  EXPECT_LE(DescriptorsIn(*mount_, "/incoming/"), 40u) << "more than are made ahead";
  // No name that its writer did not publish, and everything can be evicted.
  for (const auto& entry : std::filesystem::directory_iterator(root()))
    EXPECT_FALSE(entry.path().string().ends_with(".tmp")) << entry.path();
  std::this_thread::sleep_for(milliseconds(200));  // the last leases
  for (uint64_t number = 10; number < 10 + 16; ++number) blocks::Write(root(), number, kBig);
  EXPECT_EQ(blocks::Read(root(), 0, kBig), blocks::Found::kAbsent) << "it was not evicted";
  EXPECT_NO_THROW(mount_->Stop());
}

}  // namespace
}  // namespace prefixfs
