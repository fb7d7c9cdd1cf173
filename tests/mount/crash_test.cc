// The daemon dies, the machine dies, the index is damaged: what was acknowledged is there and
// exact, or (a machine's crash only) absent; never wrong.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
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

constexpr uint64_t kSize = 70'273;
constexpr int kWriters = 4;
constexpr uint64_t kRange = 1'000'000;  // block numbers of one writer

// What the writers of one round had acknowledged when the daemon died.
struct Acknowledged {
  std::atomic<uint64_t> written[kWriters];
  std::atomic<uint64_t> removed[kWriters];  // of the written ones, from the first
};

// Writes blocks, and removes every fourth step the oldest, until the mount fails.
void WriteUntilTheMountDies(const std::string& root, int writer, uint64_t first,
                            Acknowledged& acknowledged) {
  try {
    for (uint64_t i = 0;; ++i) {
      blocks::Write(root, writer * kRange + first + i, kSize);
      acknowledged.written[writer] = i + 1;
      if (i % 4 != 3) continue;
      Sys(unlink(blocks::Path(root, writer * kRange + first + i / 4).c_str()), "unlink");
      acknowledged.removed[writer] = i / 4 + 1;
    }
  } catch (const SysFailure& failure) {
    Check(failure.error != ENOSPC && failure.error != ENOENT, failure.what());
  }
}

void VerifyAcknowledged(const std::string& root, uint64_t first, Acknowledged& acknowledged) {
  for (int writer = 0; writer < kWriters; ++writer) {
    const uint64_t base = writer * kRange + first;
    const uint64_t written = acknowledged.written[writer];
    const uint64_t removed = acknowledged.removed[writer];
    for (uint64_t i = 0; i < removed; ++i) {
      Check(blocks::Read(root, base + i, kSize) == blocks::Found::kAbsent,
            "a removed block is back");
    }
    // The removal in flight may or may not have happened.
    for (uint64_t i = removed + 1; i < written; ++i) {
      Check(blocks::Read(root, base + i, kSize) == blocks::Found::kRight,
            "lost: block " + std::to_string(i) + " of " + std::to_string(written) + " of writer " +
                std::to_string(writer));
    }
    // And the write in flight is whole or absent.
    blocks::Read(root, base + written, kSize);
  }
}

void RemoveBlocks(const std::string& root) {
  for (const auto& entry : std::filesystem::directory_iterator(root))
    std::filesystem::remove(entry.path());
}

class Crash : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "no daemon to kill";
    mount_ = std::make_unique<Mount>();
  }
  // Of a store that nobody has mounted.
  void ExpectFsckFindsNoError(const std::string& when) {
    const RunResult result =
        support::Run({ToolPath("prefixfs"), "fsck", "--json", "--checksums", mount_->drive()},
                     std::chrono::seconds(60), mount_->options().environment);
    const auto json = nlohmann::json::parse(result.out, nullptr, false);
    ASSERT_TRUE(json.is_object()) << when << ": " << result.Describe();
    for (const auto& finding : json.at("findings")) {
      if (finding.at("severity") == "error") ADD_FAILURE() << when << ": " << finding.dump();
    }
    EXPECT_EQ(result.exit_code, 0) << when;
  }
  const std::string& root() const { return mount_->path(); }
  std::unique_ptr<Mount> mount_;
};

TEST_F(Crash, AKilledDaemonLosesNothingThatWasVisible) {
  const int rounds = getenv("PREFIXFS_FULL") != nullptr ? 100 : 10;
  std::minstd_rand random(7);
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const uint64_t first = static_cast<uint64_t>(round) * 5000;
    Shared<Acknowledged> acknowledged;
    std::vector<Child> writers;
    for (int writer = 0; writer < kWriters; ++writer) {
      writers.emplace_back(
          [&, writer] { WriteUntilTheMountDies(root(), writer, first, *acknowledged); });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 500));
    ASSERT_NO_THROW(mount_->KillDaemon());
    for (Child& writer : writers) ASSERT_NO_THROW(writer.Join(std::chrono::seconds(20)));
    ASSERT_NO_THROW(mount_->ClearDead());
    ExpectFsckFindsNoError("after the kill");
    ASSERT_NO_THROW(mount_->Start());
    ASSERT_NO_THROW(VerifyAcknowledged(root(), first, *acknowledged));
    EXPECT_FALSE(mount_->ReadStats().at("index_rebuilt").get<bool>());
    ASSERT_NO_THROW(mount_->Stop());
    ExpectFsckFindsNoError("after the stop");
    ASSERT_NO_THROW(mount_->Start());
    if (round % 3 == 2) RemoveBlocks(root());
  }
}

TEST_F(Crash, AWriterThatWasOpenWhenTheDaemonDiedLeavesNothing) {
  Channel channel;
  Child writer([&] {
    Fd fd(Sys(open((root() + "/open").c_str(), O_CREAT | O_WRONLY, 0644), "create"));
    Check(write(fd.get(), "torn", 4) == 4, "write");
    channel.SendToB("written");
    channel.ReceiveAtA();
  });
  channel.ReceiveAtB();
  mount_->KillDaemon();
  channel.SendToA("go");
  ASSERT_NO_THROW(writer.Join());
  mount_->ClearDead();
  mount_->Start();
  EXPECT_NE(access((root() + "/open").c_str(), F_OK), 0);
  EXPECT_LT(mount_->Stat("used_bytes"), 1u << 20);
}

// A tree with all kinds of names, whose blocks have their checksums.
class Rebuild : public Crash {
 protected:
  static constexpr uint64_t kBlocks = 200;

  void SetUp() override {
    Crash::SetUp();
    if (IsSkipped()) return;
    for (uint64_t number = 0; number < kBlocks; ++number) blocks::Write(root(), number, kSize);
    std::filesystem::create_directories(root() + "/m/sub/empty");
    for (uint64_t number = 0; number < 20; ++number)
      blocks::Write(root() + "/m/sub", number, kSize);
    std::filesystem::rename(root() + "/m", root() + "/renamed");
    std::filesystem::create_symlink("../block_1", root() + "/renamed/link");
    ASSERT_EQ(chmod(blocks::Path(root(), 3).c_str(), 0600), 0);
    for (uint64_t number = 0; number < 10; ++number) {
      ASSERT_EQ(unlink(blocks::Path(root(), number + 100).c_str()), 0);
    }
    WaitUntil([&] { return AllChecked() && mount_->Stat("unchecked_blocks") == 0; },
              "all checksums are computed");
  }

  // A block is sealed, and then gets its checksum, a little after its close has returned.
  bool AllChecked() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root())) {
      if (!entry.is_regular_file() || entry.is_symlink()) continue;
      char text[4096];
      const ssize_t got =
          getxattr(entry.path().c_str(), "user.prefixfs.location", text, sizeof(text));
      Check(got > 0, "no location of " + entry.path().string());
      const auto location = nlohmann::json::parse(std::string(text, static_cast<size_t>(got)));
      if (location.at("checksum").get<std::string>().empty()) return false;
    }
    return true;
  }

  void ExpectWholeTree() {
    EXPECT_NO_THROW({
      EXPECT_EQ(blocks::CountRight(root(), 0, 100, kSize), 100u);
      EXPECT_EQ(blocks::CountRight(root(), 100, 110, kSize), 0u) << "removed blocks are back";
      EXPECT_EQ(blocks::CountRight(root(), 110, kBlocks, kSize), kBlocks - 110);
      EXPECT_EQ(blocks::CountRight(root() + "/renamed/sub", 0, 20, kSize), 20u);
    });
    EXPECT_TRUE(std::filesystem::is_directory(root() + "/renamed/sub/empty"));
    EXPECT_FALSE(std::filesystem::exists(root() + "/m"));
    char target[32] = {};
    EXPECT_EQ(readlink((root() + "/renamed/link").c_str(), target, sizeof(target)), 10);
    EXPECT_STREQ(target, "../block_1");
    struct stat st {};
    EXPECT_EQ(stat(blocks::Path(root(), 3).c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0600u);
    EXPECT_EQ(mount_->Stat("corrupt_blocks"), 0u);
    EXPECT_NO_THROW(blocks::Write(root(), 5000, kSize));
    EXPECT_NO_THROW(EXPECT_EQ(blocks::CountRight(root(), 5000, 5001, kSize), 1u));
  }

  std::string IndexFile() const { return mount_->drive() + "/index/data.mdb"; }
};

TEST_F(Rebuild, AfterTheMachineCrashedTheIndexIsMadeAgainFromTheBlocks) {
  mount_->KillDaemon();
  mount_->ClearDead();
  mount_->options().environment = {{"PREFIXFS_BOOT_ID", "11111111-2222-3333-4444-555555555555"}};
  mount_->Start();
  EXPECT_TRUE(mount_->ReadStats().at("index_rebuilt").get<bool>());
  ExpectWholeTree();
  mount_->Stop();
  ExpectFsckFindsNoError("after the rebuild");
  mount_->Start();
  EXPECT_FALSE(mount_->ReadStats().at("index_rebuilt").get<bool>());
  ExpectWholeTree();
}

TEST_F(Rebuild, ACleanStopNeedsNoRebuildInTheNextBoot) {
  mount_->Stop();
  mount_->options().environment = {{"PREFIXFS_BOOT_ID", "11111111-2222-3333-4444-555555555555"}};
  mount_->Start();
  EXPECT_FALSE(mount_->ReadStats().at("index_rebuilt").get<bool>());
  ExpectWholeTree();
}

TEST_F(Rebuild, ABlockThatTheCrashDamagedIsAbsentNotWrong) {
  mount_->KillDaemon();
  mount_->ClearDead();
  // One byte in the middle of every backing file of exactly the block size.
  int damaged = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(mount_->drive() + "/blocks")) {
    if (!entry.is_regular_file() || damaged == 5) continue;
    Fd fd(open(entry.path().c_str(), O_RDWR));
    char byte = 0;
    ASSERT_EQ(pread(fd.get(), &byte, 1, 30'000), 1);
    byte = static_cast<char>(byte ^ 0x40);
    ASSERT_EQ(pwrite(fd.get(), &byte, 1, 30'000), 1);
    ++damaged;
  }
  mount_->options().environment = {{"PREFIXFS_BOOT_ID", "11111111-2222-3333-4444-555555555555"}};
  mount_->Start();
  uint64_t right = 0;
  ASSERT_NO_THROW(right = blocks::CountRight(root(), 0, kBlocks, kSize) +
                          blocks::CountRight(root() + "/renamed/sub", 0, 20, kSize));
  EXPECT_EQ(right, kBlocks - 10 + 20 - 5);
  EXPECT_EQ(mount_->Stat("corrupt_blocks"), 5u);
}

TEST_F(Rebuild, ARemovedIndexIsMadeAgain) {
  mount_->Stop();
  std::filesystem::remove_all(mount_->drive() + "/index");
  mount_->Start();
  EXPECT_TRUE(mount_->ReadStats().at("index_rebuilt").get<bool>());
  ExpectWholeTree();
}

TEST_F(Rebuild, ATruncatedIndexIsMadeAgain) {
  for (const double part : {0.5, 0.0}) {
    mount_->Stop();
    std::filesystem::resize_file(
        IndexFile(),
        static_cast<uint64_t>(static_cast<double>(std::filesystem::file_size(IndexFile())) * part));
    mount_->Start();
    EXPECT_TRUE(mount_->ReadStats().at("index_rebuilt").get<bool>());
    ExpectWholeTree();
  }
}

TEST_F(Rebuild, AnIndexWithFlippedBytesIsNeverTrusted) {
  std::minstd_rand random(3);
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    mount_->Stop();
    {
      Fd fd(open(IndexFile().c_str(), O_RDWR));
      const off_t size = lseek(fd.get(), 0, SEEK_END);
      for (int flip = 0; flip < 1 << round; ++flip) {
        const off_t offset = static_cast<off_t>(random()) % size;
        unsigned char byte = 0;
        ASSERT_EQ(pread(fd.get(), &byte, 1, offset), 1);
        byte = static_cast<unsigned char>(byte ^ (1u << (random() % 8)));
        ASSERT_EQ(pwrite(fd.get(), &byte, 1, offset), 1);
      }
    }
    ASSERT_NO_THROW(mount_->Start());
    ExpectWholeTree();
  }
}

}  // namespace
}  // namespace prefixfs
