// The byte budget, seen from outside: what `du` of the tier says while clients write far more than
// fits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
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
using std::chrono::milliseconds;

constexpr uint64_t kCapacity = 1ull << 30;
// "at most 2 % or 256 MiB, whichever is larger"
constexpr uint64_t kSlack = std::max<uint64_t>(kCapacity / 50, 256ull << 20);
constexpr uint64_t kBlock = 2 << 20;

class Budget : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS has no budget";
  }
  void Start(uint64_t drive_bytes, std::vector<std::string> set = {}) {
    set.push_back("lease=\"0s\"");  // blocks just read or written may go at once
    mount_ = std::make_unique<Mount>(
        MountOptions{.drive_bytes = drive_bytes, .capacity = "1G", .set = set});
  }
  const std::string& root() const { return mount_->path(); }
  void WriteBlocks(uint64_t first, uint64_t last) {
    for (uint64_t number = first; number < last; ++number) blocks::Write(root(), number, kBlock);
  }

  std::unique_ptr<Mount> mount_;
};

// Watches the tier as an outside `du` does, every 50 ms, in a process of its own.
class Sampler {
 public:
  explicit Sampler(const Mount& mount)
      : child_([&] {
          while (!shared_->stop) {
            const uint64_t now = mount.TierUsage();
            if (now > shared_->highest) shared_->highest = now;
            ++shared_->samples;
            std::this_thread::sleep_for(milliseconds(50));
          }
        }) {}
  uint64_t Stop() {
    shared_->stop = true;
    child_.Join();
    Check(shared_->samples > 5, "the sampler saw too little");
    return shared_->highest;
  }

 private:
  struct State {
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> highest{0};
    std::atomic<uint64_t> samples{0};
  };
  Shared<State> shared_;
  Child child_;
};

// One large temporary at a time, growing in pieces while it is open: no create announces its size.
void WriteLargeTemporaries(const std::string& root, int count) {
  const Buffer piece = Pattern(4 << 20, 1);
  for (int i = 0; i < count; ++i) {
    const std::string path = root + "/large";
    Fd fd(Sys(open((path + ".tmp").c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644),
              "create a large block"));
    for (int written = 0; written < 30; ++written) {
      Check(write(fd.get(), piece.data(), piece.size()) == static_cast<ssize_t>(piece.size()),
            "write");
    }
    Sys(close(fd.Release()), "close");
    Sys(rename((path + ".tmp").c_str(), path.c_str()), "rename");
  }
}

TEST_F(Budget, HoldsWhileEightWritersWriteFarMoreThanFits) {
  Start(3ull << 30);
  constexpr uint64_t kPerWriter = 110;
  constexpr uint64_t kWriters = 7;
  Shared<std::atomic<bool>> stop;
  Sampler sampler(*mount_);
  std::vector<Child> writers, readers;
  writers.emplace_back([&] { WriteLargeTemporaries(root(), 3); });
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (uint64_t i = 0; i < kPerWriter; ++i) {
        const uint64_t number = writer * kPerWriter + i;
        blocks::Write(root(), number, blocks::MixedSize(number));
      }
    });
  }
  for (unsigned reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&, reader] {
      std::minstd_rand random(reader + 1);
      while (!*stop) {
        const uint64_t number = random() % (kWriters * kPerWriter);
        blocks::Read(root(), number, blocks::MixedSize(number));
        std::this_thread::sleep_for(milliseconds(2));
      }
    });
  }
  for (Child& writer : writers) EXPECT_NO_THROW(writer.Join());
  *stop = true;
  for (Child& reader : readers) EXPECT_NO_THROW(reader.Join());
  EXPECT_LE(sampler.Stop(), kCapacity + kSlack);

  const auto stats = mount_->ReadStats();
  EXPECT_EQ(stats.at("capacity_bytes"), kCapacity);
  EXPECT_GT(stats.at("evicted_blocks"), 0u);
  EXPECT_GT(stats.at("evicted_bytes"), 0u);
  EXPECT_EQ(stats.at("corrupt_blocks"), 0u);
  const uint64_t right = blocks::CountRightMixed(root(), 0, kWriters * kPerWriter);
  EXPECT_GT(right, 50u) << "far fewer than fit";

  mount_->Remount();
  const uint64_t disk = mount_->BlockUsage();
  EXPECT_NEAR(static_cast<double>(mount_->Stat("used_bytes")), static_cast<double>(disk),
              static_cast<double>(disk) * 0.01);
  EXPECT_LE(disk, kCapacity);
  EXPECT_EQ(blocks::CountRightMixed(root(), 0, kWriters * kPerWriter), right)
      << "a clean restart loses nothing";
  const bool large = access((root() + "/large").c_str(), F_OK) == 0;
  EXPECT_EQ(mount_->Stat("blocks"), right + (large ? 1 : 0));
}

TEST_F(Budget, LeavesMinFreeToForeignFilesAndKeepsWriting) {
  Start(2ull << 30);
  WriteBlocks(0, 420);
  const std::string foreign = mount_->filesystem().path() + "/foreign";
  const auto free_bytes = [&] {
    struct statvfs space {};
    Sys(statvfs(mount_->filesystem().path().c_str(), &space), "statvfs");
    return space.f_bavail * space.f_frsize;
  };
  Fd fd(Sys(open(foreign.c_str(), O_CREAT | O_WRONLY, 0644), "create the foreign file"));
  constexpr uint64_t kLeft = 100ull << 20;
  constexpr uint64_t kMinFree = 272ull << 20;  // as the fixture sets it
  ASSERT_GT(free_bytes(), kLeft);
  Sys(fallocate(fd.get(), 0, 0, static_cast<off_t>(free_bytes() - kLeft)),
      "fallocate of the foreign file");
  // The evictor works in batches, and XFS keeps a little for itself.
  EXPECT_NO_THROW(
      WaitUntil([&] { return free_bytes() + (8 << 20) >= kMinFree; }, "min_free is free again"));
  EXPECT_NO_THROW(WriteBlocks(1000, 1100));
  EXPECT_NO_THROW(WaitUntil([&] { return free_bytes() + (8 << 20) >= kMinFree; },
                            "min_free after more blocks"));
  EXPECT_GT(mount_->Stat("evicted_blocks"), 0u);
  EXPECT_GT(blocks::CountRight(root(), 0, 1100, kBlock), 50u);
}

TEST_F(Budget, ABlockFileThatCannotBeDeletedNeverStopsTheEvictor) {
  Start(3ull << 30);
  WriteBlocks(0, 1);
  std::string backing;
  // It is moved there with its checksum.
  const auto find = [&] {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(mount_->drive() + "/blocks")) {
      if (entry.is_regular_file()) backing = entry.path();
    }
    return !backing.empty();
  };
  ASSERT_NO_THROW(WaitUntil(find, "the block's file in blocks/"));
  const Fd fd(open(backing.c_str(), O_RDONLY | O_CLOEXEC));
  int before = 0;
  ASSERT_EQ(ioctl(fd.get(), FS_IOC_GETFLAGS, &before), 0) << strerrordesc_np(errno);
  int flags = before | FS_IMMUTABLE_FL;
  ASSERT_EQ(ioctl(fd.get(), FS_IOC_SETFLAGS, &flags), 0) << strerrordesc_np(errno);
  EXPECT_NO_THROW(WriteBlocks(1, 1001));
  EXPECT_GT(mount_->Stat("evicted_blocks"), 100u);
  EXPECT_GT(blocks::CountRight(root(), 1, 1001, kBlock), 200u);
  EXPECT_LE(mount_->TierUsage(), kCapacity + kSlack);
  ASSERT_EQ(ioctl(fd.get(), FS_IOC_SETFLAGS, &before), 0);
}

TEST_F(Budget, OpenBlocksAreNeverEvicted) {
  Start(3ull << 30);
  WriteBlocks(0, 10);
  std::vector<Fd> held;
  for (uint64_t number = 0; number < 10; ++number) {
    held.emplace_back(Sys(open(blocks::Path(root(), number).c_str(), O_RDONLY), "open"));
  }
  WriteBlocks(100, 1000);
  EXPECT_GT(mount_->Stat("evicted_blocks"), 100u);
  for (uint64_t number = 0; number < 10; ++number) {
    Buffer data(kBlock);
    ASSERT_EQ(pread(held[number].get(), data.data(), kBlock, 0), static_cast<ssize_t>(kBlock));
    EXPECT_EQ(Verify(data, number + 1, kBlock), "");
    EXPECT_EQ(blocks::Read(root(), number, kBlock), blocks::Found::kRight);
  }
}

TEST_F(Budget, ALeaseProtectsWhatAProbeSaw) {
  mount_ =
      std::make_unique<Mount>(MountOptions{.drive_bytes = 3ull << 30, .set = {"lease=\"30s\""}});
  WriteBlocks(0, 100);
  // Let the leases that writing may have given end by a new mount, then probe ten.
  mount_->Remount();
  for (uint64_t number = 0; number < 10; ++number) {
    ASSERT_EQ(access(blocks::Path(root(), number).c_str(), F_OK), 0);
  }
  WriteBlocks(1000, 1480);
  EXPECT_EQ(blocks::CountRight(root(), 0, 10, kBlock), 10u);
}

TEST_F(Budget, NoSpaceOnlyWhenNothingCanBeEvicted) {
  Start(3ull << 30, {"space_wait=\"500ms\""});
  WriteBlocks(0, 300);
  const Buffer data = Pattern(16 << 20, 1);
  const auto path = [&](int i) {
    return root() + "/store_" + std::to_string(i) + "/kv_cache.data";
  };
  int written = 0;
  int error = 0;
  for (; written < 100 && error == 0; ++written) {
    std::filesystem::create_directories(root() + "/store_" + std::to_string(written));
    try {
      WriteFile(path(written), data);
    } catch (const SysFailure& failure) {
      error = failure.error;
    }
  }
  EXPECT_EQ(error, ENOSPC);
  EXPECT_GT(static_cast<uint64_t>(written) * data.size(), kCapacity * 8 / 10)
      << "refused while blocks could go";
  EXPECT_LE(mount_->TierUsage(), kCapacity + kSlack);
  EXPECT_LT(blocks::CountRight(root(), 0, 300, kBlock), 60u);
  for (int i = 0; i + 1 < written; ++i) EXPECT_EQ(VerifyFile(path(i), 1, data.size()), "");
  for (int i = 0; i < written / 2; ++i) EXPECT_EQ(unlink(path(i).c_str()), 0);
  EXPECT_NO_THROW(WriteBlocks(1000, 1050));
  EXPECT_EQ(blocks::CountRight(root(), 1000, 1050, kBlock), 50u);
}

// Writes by passthrough cannot be held back; the next files beside such a writer's are served.
TEST_F(Budget, AWriterFarBeyondItsPromiseMakesTheNextOfItsKindWait) {
  if (ServedMode()) GTEST_SKIP() << "every write is the daemon's, and can be held back";
  Start(3ull << 30, {"space_wait=\"2s\"", "reserve_initial=\"2M\"", "o_direct=\"native\""});
  const Buffer piece = Pattern(1 << 20, 1);
  const auto create = [&](const char* name, int flags) {
    const std::string path = root() + name;
    return Fd(Sys(open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | flags, 0644), "create"));
  };
  // Direct, because XFS preallocates for buffered writers as much as they have written.
  Fd big = create("/big.bin", O_DIRECT);
  void* aligned = std::aligned_alloc(4096, piece.size());
  memcpy(aligned, piece.data(), piece.size());
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(write(big.get(), aligned, piece.size()), static_cast<ssize_t>(piece.size()));
  }
  free(aligned);
  std::this_thread::sleep_for(milliseconds(200));
  Fd next = create("/next.bin", 0);
  int written = 0;
  while (written < 400 && write(next.get(), piece.data(), piece.size()) > 0) ++written;
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_LT(written, 100);
  EXPECT_LE(mount_->TierUsage(), kCapacity + kSlack);
  big.Reset();
  // Sealed, and perhaps evicted already.
  for (int i = 0; i < 1000 && mount_->Stat("blocks") + mount_->Stat("evicted_blocks") == 0; ++i)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(write(next.get(), piece.data(), piece.size()), static_cast<ssize_t>(piece.size()))
      << "the large one can go now";
  Buffer back(piece.size());
  EXPECT_EQ(pread(next.get(), back.data(), back.size(), 0), static_cast<ssize_t>(back.size()));
  EXPECT_EQ(Verify(back, 1, back.size()), "");
}

// --- empty directories

bool IsDirectory(const std::string& path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

std::string Leaf(const std::string& root, unsigned number) {
  return root + "/leaf_" + std::to_string(number) + "/sub";
}

TEST_F(Budget, DirectoriesThatEvictionEmptiedGoAfterTheirGraceAndOthersStay) {
  Start(2ull << 30, {"empty_dir_grace=\"200ms\""});
  for (unsigned leaf = 0; leaf < 20; ++leaf) {
    std::filesystem::create_directories(Leaf(root(), leaf));
    blocks::Write(Leaf(root(), leaf), leaf, kBlock);
  }
  std::filesystem::create_directories(root() + "/kept");
  WriteText(root() + "/kept/config.json", "{}");
  WriteBlocks(1000, 1700);
  // Asked of the statistics: a look at a directory keeps it for a while.
  EXPECT_NO_THROW(WaitUntil([&] { return mount_->ReadStats().at("reaped_directories") == 40; },
                            "every emptied directory and then its parent is reaped"));
  for (unsigned leaf = 0; leaf < 20; ++leaf) {
    EXPECT_FALSE(IsDirectory(root() + "/leaf_" + std::to_string(leaf))) << leaf;
  }
  EXPECT_EQ(ReadText(root() + "/kept/config.json"), "{}");
}

// Comes back to its directories again and again, as a client with hashed directories does. The
// create after a mkdir that made the directory, or that said it is there, must not fail, whatever
// the reaper does.
void WriteIntoDirectories(const std::string& root, unsigned writer) {
  constexpr unsigned kDirectories = 32;
  for (unsigned round = 0; round < 150; ++round) {
    const std::string directory =
        root + "/dir_" + std::to_string(writer) + "_" + std::to_string(round % kDirectories);
    if (mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) throw SysFailure(errno, "mkdir");
    blocks::Write(directory, round, kBlock);
  }
}

TEST_F(Budget, ReapingNeverFailsAWriterBetweenItsMkdirAndItsCreate) {
  mount_ = std::make_unique<Mount>(
      MountOptions{.capacity = "300M", .set = {"lease=\"300ms\"", "empty_dir_grace=\"20ms\""}});
  std::vector<Child> writers;
  for (unsigned writer = 0; writer < 8; ++writer) {
    writers.emplace_back([&, writer] { WriteIntoDirectories(root(), writer); });
  }
  for (Child& writer : writers) EXPECT_NO_THROW(writer.Join());
  EXPECT_GT(mount_->Stat("evicted_blocks"), 100u);
}

}  // namespace
}  // namespace prefixfs
