// Bytes that change on the drive behind the daemon's back: whatever is damaged is absent, and is
// never served.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cache/base/fd.h"
#include "tests/mount/blocks.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"

namespace prefixfs {
namespace {

using namespace support;

constexpr uint64_t kSize = 1'124'352;
constexpr uint64_t kBlocks = 6;
constexpr off_t kMiddle = 300'000;

using Damage = void (*)(const std::string& file, const std::string& other);

void FlipABit(const std::string& file, const std::string&) {
  Fd fd(Sys(open(file.c_str(), O_RDWR), "open"));
  char byte = 0;
  Sys(pread(fd.get(), &byte, 1, kMiddle), "pread");
  byte = static_cast<char>(byte ^ 0x10);
  Sys(pwrite(fd.get(), &byte, 1, kMiddle), "pwrite");
}

void ZeroAPage(const std::string& file, const std::string&) {
  Fd fd(Sys(open(file.c_str(), O_RDWR), "open"));
  Sys(pwrite(fd.get(), std::string(4096, '\0').data(), 4096, 4096 * 50), "pwrite");
}

void CutItShort(const std::string& file, const std::string&) {
  Sys(truncate(file.c_str(), kSize - 4096), "truncate");
}

// The second block gets the bytes of the first, and the other way round.
void SwapTwo(const std::string& file, const std::string& other) {
  const auto read = [](const std::string& path) {
    std::string data(kSize, '\0');
    Fd fd(Sys(open(path.c_str(), O_RDONLY), "open"));
    Sys(pread(fd.get(), data.data(), kSize, 0), "pread");
    return data;
  };
  const auto write = [](const std::string& path, const std::string& data) {
    Fd fd(Sys(open(path.c_str(), O_WRONLY), "open"));
    Sys(pwrite(fd.get(), data.data(), kSize, 0), "pwrite");
  };
  const std::string one = read(file), two = read(other);
  write(file, two);
  write(other, one);
}

void RemoveTheFile(const std::string& file, const std::string&) {
  Sys(unlink(file.c_str()), "unlink");
}

struct Kind {
  const char* name;
  Damage damage;
  uint64_t blocks;  // that are damaged: block 0, or 0 and 1
  bool kept;        // there is a file to keep
};
constexpr Kind kKinds[] = {
    {"FlippedBit", FlipABit, 1, true},        {"ZeroedPage", ZeroAPage, 1, true},
    {"CutShort", CutItShort, 1, true},        {"SwappedWithAnother", SwapTwo, 2, true},
    {"RemovedFile", RemoveTheFile, 1, false},
};

std::string KindName(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }

class Damaged : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS serves what is there";
  }
  void Make(std::vector<std::string> set) {
    MountOptions options;
    options.set = std::move(set);
    mount_ = std::make_unique<Mount>(options);
    for (uint64_t i = 0; i < kBlocks; ++i) blocks::Write(root(), i, kSize);
    AwaitChecksums();
  }
  const std::string& root() { return mount_->path(); }
  void AwaitChecksums() { Await("unchecked_blocks", 0); }
  void Await(const std::string& key, uint64_t value) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (mount_->Stat(key) != value) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << key << " is " << mount_->Stat(key);
      usleep(20'000);
    }
  }
  std::string FileOf(uint64_t number) {
    char json[4096];
    const ssize_t size = Sys(lgetxattr(blocks::Path(root(), number).c_str(),
                                       "user.prefixfs.location", json, sizeof json),
                             "location");
    const std::string block =
        nlohmann::json::parse(std::string(json, static_cast<size_t>(size))).at("block");
    return mount_->drive() + "/blocks/" + block.substr(0, 2) + "/" + block;
  }
  void DropCaches() {
    sync();
    Fd fd(Sys(open("/proc/sys/vm/drop_caches", O_WRONLY), "drop_caches"));
    Sys(write(fd.get(), "1", 1), "drop_caches");
  }
  size_t Kept() {
    const std::filesystem::directory_iterator files(mount_->drive() + "/quarantine");
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }
  // Everything but the damaged blocks is exact, those are absent, and can be written anew.
  void ExpectOnlyTheDamagedAreGone() {
    const uint64_t damaged = GetParam().blocks;
    ASSERT_NO_THROW({
      for (uint64_t i = 0; i < damaged; ++i) {
        EXPECT_EQ(blocks::Read(root(), i, kSize), blocks::Found::kAbsent) << i;
        struct stat st;
        EXPECT_EQ(stat(blocks::Path(root(), i).c_str(), &st), -1) << i;
      }
      EXPECT_EQ(blocks::CountRight(root(), damaged, kBlocks, kSize), kBlocks - damaged);
    });
    EXPECT_EQ(mount_->Stat("corrupt_blocks"), damaged);
    const size_t kept = GetParam().kept ? damaged : 0;
    EXPECT_EQ(mount_->Stat("quarantined_blocks"), kept);
    EXPECT_EQ(Kept(), kept);
    for (uint64_t i = 0; i < damaged; ++i) blocks::Write(root(), i, kSize);
    EXPECT_EQ(blocks::CountRight(root(), 0, kBlocks, kSize), kBlocks);
  }

  std::unique_ptr<Mount> mount_;
};

TEST_P(Damaged, WhileStoppedIsFoundAtTheFirstOpen) {
  Make({"scrub_rate=0"});
  const std::string one = FileOf(0), two = FileOf(1);
  mount_->Stop();
  GetParam().damage(one, two);
  mount_->Start();
  ExpectOnlyTheDamagedAreGone();
  EXPECT_GE(mount_->Stat("verified_blocks"), kBlocks - GetParam().blocks);
}

TEST_P(Damaged, IsFoundAtEachOpenWhereThatIsAskedFor) {
  Make({"scrub_rate=0", "verify=always"});
  ASSERT_EQ(blocks::CountRight(root(), 0, kBlocks, kSize), kBlocks);
  GetParam().damage(FileOf(0), FileOf(1));
  ExpectOnlyTheDamagedAreGone();
}

// By the scrubber; a process that has just looked the names up, and so holds their leases, is told
// the truth at once.
TEST_P(Damaged, WithHotPageCacheIsFoundByTheScrubber) {
  Make({"scrub_rate=1G", "scrub_interval=50ms"});
  ASSERT_EQ(blocks::CountRight(root(), 0, kBlocks, kSize), kBlocks);
  const std::string one = FileOf(0), two = FileOf(1);
  struct stat st;
  for (uint64_t i = 0; i < 2; ++i) Sys(stat(blocks::Path(root(), i).c_str(), &st), "stat");
  GetParam().damage(one, two);
  Await("corrupt_blocks", GetParam().blocks);
  ExpectOnlyTheDamagedAreGone();
}

TEST_P(Damaged, WithoutPageCacheIsFoundByTheScrubber) {
  Make({"scrub_rate=1G", "scrub_interval=50ms"});
  GetParam().damage(FileOf(0), FileOf(1));
  DropCaches();
  struct stat st;
  (void)stat(blocks::Path(root(), 0).c_str(), &st);
  Await("corrupt_blocks", GetParam().blocks);
  ExpectOnlyTheDamagedAreGone();
}

INSTANTIATE_TEST_SUITE_P(Kinds, Damaged, ::testing::ValuesIn(kKinds), KindName);

class Quarantined : public Damaged {};

TEST_P(Quarantined, TheFileKeepsTheDamagedBytesAndIsCounted) {
  Make({"scrub_rate=0", "verify=always"});
  const std::string file = FileOf(0);
  FlipABit(file, "");
  const uint64_t used = mount_->Stat("used_bytes");
  EXPECT_EQ(blocks::Read(root(), 0, kSize), blocks::Found::kAbsent);
  EXPECT_FALSE(std::filesystem::exists(file));
  const std::string kept =
      mount_->drive() + "/quarantine/" + std::filesystem::path(file).filename().string();
  EXPECT_EQ(std::filesystem::file_size(kept), kSize);
  EXPECT_GE(mount_->Stat("quarantined_bytes"), kSize);
  EXPECT_GE(mount_->Stat("used_bytes"), used) << "what is kept still takes its space";
  mount_->Remount();
  EXPECT_EQ(mount_->Stat("quarantined_blocks"), 1u);
  EXPECT_EQ(blocks::Read(root(), 0, kSize), blocks::Found::kAbsent);
}

TEST_P(Quarantined, TheOldestGoBeyondTheLimit) {
  Make({"scrub_rate=0", "verify=always", "quarantine=3M"});
  for (uint64_t i = 0; i < 5; ++i) {
    FlipABit(FileOf(i), "");
    EXPECT_EQ(blocks::Read(root(), i, kSize), blocks::Found::kAbsent);
  }
  EXPECT_EQ(mount_->Stat("corrupt_blocks"), 5u);
  EXPECT_EQ(Kept(), 2u);
  EXPECT_EQ(mount_->Stat("quarantined_blocks"), 2u);
}

// Engines unlink what disappointed them.
TEST_P(Quarantined, AnUnlinkRightAfterAReadLooksWhetherTheReaderWasRight) {
  Make({"scrub_rate=0"});
  ASSERT_EQ(blocks::CountRight(root(), 0, kBlocks, kSize), kBlocks);
  FlipABit(FileOf(0), "");
  for (const uint64_t i : {0, 1}) {
    Fd fd(Sys(open(blocks::Path(root(), i).c_str(), O_RDONLY), "open"));
    fd.Reset();
    Sys(unlink(blocks::Path(root(), i).c_str()), "unlink");
    EXPECT_EQ(blocks::Read(root(), i, kSize), blocks::Found::kAbsent);
  }
  Await("corrupt_blocks", 1);
  Await("quarantined_blocks", 1);
  EXPECT_EQ(mount_->Stat("suspected_blocks"), 2u);
  EXPECT_EQ(Kept(), 1u);
  // Others are just removed.
  RunInProcess([&] { Sys(unlink(blocks::Path(root(), 2).c_str()), "unlink"); });
  EXPECT_EQ(mount_->Stat("suspected_blocks"), 2u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Quarantined, ::testing::Values(kKinds[0]), KindName);

}  // namespace
}  // namespace prefixfs
