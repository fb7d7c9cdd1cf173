// Several drives, one of which fails under load: its blocks become misses, everything else goes on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
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

constexpr uint64_t kSize = 1 << 20;
constexpr uint64_t kBlocks = 150;

// The drive a block is on, in whatever form the location has it.
std::string DriveOf(const std::string& path) {
  char text[4096];
  const ssize_t got = Sys(getxattr(path.c_str(), "user.prefixfs.location", text, sizeof(text)),
                          "location of " + path);
  return nlohmann::json::parse(std::string(text, static_cast<size_t>(got))).at("drive").dump();
}

class Drives : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS has one drive";
    mount_ = std::make_unique<Mount>(
        MountOptions{.drives = 3, .drive_bytes = 900ull << 20, .capacity = "1G"});
    for (uint64_t number = 0; number < kBlocks; ++number) blocks::Write(root(), number, kSize);
    for (uint64_t number = 0; number < kBlocks; ++number) {
      drive_of_[number] = DriveOf(blocks::Path(root(), number));
      ++on_drive_[drive_of_[number]];
    }
  }

  const std::string& root() const { return mount_->path(); }

  bool SomeDriveFailed() const {
    const nlohmann::json stats = mount_->ReadStats();
    for (const auto& drive : stats.at("drives")) {
      if (drive.at("failed").get<bool>()) return true;
    }
    return false;
  }

  std::unique_ptr<Mount> mount_;
  std::map<uint64_t, std::string> drive_of_;
  std::map<std::string, uint64_t> on_drive_;
};

TEST_F(Drives, BlocksAreSpreadOverAllOfThem) {
  ASSERT_EQ(on_drive_.size(), 3u);
  for (const auto& [drive, count] : on_drive_) EXPECT_GT(count, kBlocks / 6) << drive;
  EXPECT_EQ(mount_->ReadStats().at("drives").size(), 3u);
  mount_->Remount();
  EXPECT_EQ(blocks::CountRight(root(), 0, kBlocks, kSize), kBlocks);
}

// Writes until told to stop; a write that was under way on the drive when it failed may end in EIO.
void WriteThroughTheFailure(const std::string& root, uint64_t first,
                            const std::atomic<bool>& stop) {
  int failures = 0;
  for (uint64_t i = 0; !stop; ++i) {
    try {
      blocks::Write(root, first + i % 50, kSize);
    } catch (const SysFailure& failure) {
      // What had been written to the drive is gone: a rename of it may find nothing.
      Check(failure.error == EIO || failure.error == EROFS || failure.error == ENOENT,
            failure.what());
      Check(++failures <= 20, "new writes go on failing");
    }
  }
}

TEST_F(Drives, OneThatDiesUnderLoadIsABurstOfMisses) {
  Shared<std::atomic<bool>> stop;
  std::vector<Child> writers;
  for (uint64_t writer = 1; writer <= 4; ++writer) {
    writers.emplace_back([&, writer] { WriteThroughTheFailure(root(), writer * 1000, *stop); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  mount_->filesystem(1).ShutDown();
  // Reads that meet the drive before it is known to be dead may be told EIO, and make it known.
  EXPECT_NO_THROW(WaitUntil(
      [&] {
        for (uint64_t number = 0; number < kBlocks; ++number) {
          const Fd fd(open(blocks::Path(root(), number).c_str(), O_RDONLY));
          char byte;
          if (fd.valid() && read(fd.get(), &byte, 1) < 0) break;
        }
        return SomeDriveFailed();
      },
      "the drive is noticed as failed"));
  *stop = true;
  for (Child& writer : writers) EXPECT_NO_THROW(writer.Join());

  std::map<std::string, uint64_t> right;
  for (uint64_t number = 0; number < kBlocks; ++number) {
    ASSERT_NO_THROW({
      if (blocks::Read(root(), number, kSize) == blocks::Found::kRight) ++right[drive_of_[number]];
    }) << "a block of a dead drive is absent, not an error";
  }
  EXPECT_EQ(right.size(), 2u);
  for (const auto& [drive, count] : right)
    EXPECT_EQ(count, on_drive_[drive]) << "blocks of a living drive are lost";

  ASSERT_NO_THROW({
    for (uint64_t number = 10'000; number < 10'060; ++number) blocks::Write(root(), number, kSize);
  });
  EXPECT_EQ(blocks::CountRight(root(), 10'000, 10'060, kSize), 60u);
  EXPECT_NO_THROW(mount_->Stop());
}

TEST_F(Drives, OneThatTurnsReadOnlyStopsNobody) {
  mount_->filesystem(2).RemountReadOnly();
  // Nothing was under way there, and a create that meets the drive can go to another.
  EXPECT_NO_THROW({
    for (uint64_t number = 1000; number < 1100; ++number) blocks::Write(root(), number, kSize);
  });
  uint64_t right = 0;
  ASSERT_NO_THROW(right = blocks::CountRight(root(), 0, kBlocks, kSize));
  EXPECT_GE(right, kBlocks / 2) << "the other two drives' blocks are lost";
  ASSERT_NO_THROW({
    for (uint64_t number = 2000; number < 2060; ++number) blocks::Write(root(), number, kSize);
  });
  EXPECT_EQ(blocks::CountRight(root(), 2000, 2060, kSize), 60u);
  EXPECT_NO_THROW(mount_->Stop());
}

TEST_F(Drives, ASecondDaemonOnTheSameDirectoryIsRefused) {
  TempDir other;
  const RunResult result =
      support::Run({ToolPath("prefixfs"), "mount", "--nvme", mount_->drive(0), "--capacity", "1G",
                    "--set", "min_free=\"272M\"", other.path()});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_FALSE(IsMountPoint(other.path()));
  EXPECT_EQ(blocks::CountRight(root(), 0, 10, kSize), 10u);
}

}  // namespace
}  // namespace prefixfs
