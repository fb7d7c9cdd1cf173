#include "cache/rebuild.h"

#include <sys/wait.h>

#include "tests/cache/cache_fixture.h"

namespace prefixfs {
namespace {

// Each test fills the tier in a child that dies without closing it, then starts as if after a
// reboot.
class RebuildTest : public CacheFixture {
 protected:
  void SetUp() override {
    CacheFixture::SetUp();
    cache_.reset();
  }
  template <typename Fill>
  void DieAfter(Fill fill) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      Start();
      fill();
      ::_exit(HasFailure() ? 1 : 0);
    }
    int status;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
  }
  void StartAfterReboot() {
    ::setenv("PREFIXFS_BOOT_ID", "another-boot", 1);
    Start();
    ::unsetenv("PREFIXFS_BOOT_ID");
  }
  // The backing file of the only block.
  std::string OnlyBlock() {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(directory_ + "/nvme/blocks")) {
      if (entry.is_regular_file()) return entry.path();
    }
    return {};
  }
};

TEST_F(RebuildTest, SameBootTrustsTheIndex) {
  DieAfter([this] { Put("a", "block"); });
  Start();
  EXPECT_FALSE(cache_->MakeReport().index_rebuilt);
  EXPECT_EQ(Read("a"), "block");
}

TEST_F(RebuildTest, BlocksDirectoriesAndLinksComeBackFromTheirHeaders) {
  DieAfter([this] {
    Result<Entry> outer = cache_->MakeNode(kRootIno, "outer", S_IFDIR | 0755, "", Self());
    Result<Entry> inner = cache_->MakeNode(outer->inode.ino, "inner", S_IFDIR | 0700, "", Self());
    ASSERT_TRUE(cache_->MakeNode(kRootIno, "link", S_IFLNK | 0777, "outer", Self()).ok());
    Put("x", "block", inner->inode.ino);
    ASSERT_TRUE(cache_->Rename(outer->inode.ino, "inner", kRootIno, "moved", 0, Self()).ok());
    AwaitChecksums();
  });
  StartAfterReboot();
  const Cache::Report report = cache_->MakeReport();
  EXPECT_TRUE(report.index_rebuilt);
  EXPECT_EQ(report.blocks, 1u);
  EXPECT_EQ(report.unverified, 1u);
  const Ino moved = Find("moved", Self());
  ASSERT_NE(moved, 0u);
  const Ino x = Find("x", Self(), moved);
  Result<HandlePtr> handle = cache_->Open(x, O_RDONLY, Self(), true);
  ASSERT_TRUE(handle.ok()) << handle.status().ToString();
  EXPECT_EQ(ContentOf(**handle), "block");
  cache_->Release(std::move(handle).value());
  EXPECT_EQ(cache_->MakeReport().unverified, 0u);
  EXPECT_EQ(*cache_->ReadLink(Find("link", Self())), "outer");
}

TEST_F(RebuildTest, ChangedBytesAreDroppedAtFirstOpen) {
  DieAfter([this] { Put("a", "right bytes"), AwaitChecksums(); });
  Fd fd(::open(OnlyBlock().c_str(), O_WRONLY));
  ASSERT_EQ(::pwrite(fd.get(), "W", 1, 0), 1);
  StartAfterReboot();
  EXPECT_NE(Find("a", Self()), 0u);
  EXPECT_EQ(Read("a"), "<not found>");
  EXPECT_EQ(Find("a", Self()), 0u);
  EXPECT_EQ(cache_->counters().corrupt_blocks.load(), 1u);
  EXPECT_EQ(OnlyBlock(), "");
}

TEST_F(RebuildTest, WrongSizeOrDamagedHeaderIsDropped) {
  DieAfter([this] { Put("a", "right bytes"), AwaitChecksums(); });
  ASSERT_EQ(::truncate(OnlyBlock().c_str(), 5), 0);
  StartAfterReboot();
  EXPECT_EQ(Find("a", Self()), 0u);
  EXPECT_EQ(cache_->MakeReport().blocks, 0u);
}

TEST_F(RebuildTest, UnpublishedFilesAreGone) {
  DieAfter([this] {
    Result<Created> created = Create("half");
    WriteTo(*created->handle, "half a block");
  });
  StartAfterReboot();
  EXPECT_EQ(Find("half", Self()), 0u);
  EXPECT_EQ(cache_->MakeReport().used, 0u);
}

TEST_F(RebuildTest, TheMountsOwnAttributesComeBack) {
  DieAfter([this] {
    AttributeChange change;
    change.mode = S_IFDIR | 01777;
    change.uid = 1000;
    ASSERT_TRUE(cache_->SetAttributes(kRootIno, nullptr, change, Self(), true).ok());
  });
  StartAfterReboot();
  const Result<Entry> root = cache_->GetAttributes(kRootIno, nullptr);
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->inode.mode & 07777, 01777u);
  EXPECT_EQ(root->inode.uid, 1000u);
}

TEST_F(RebuildTest, ARecordThatHangsOffNothingIsRemoved) {
  std::string lost;
  DieAfter([this] {
    Result<Entry> outer = cache_->MakeNode(kRootIno, "outer", S_IFDIR | 0755, "", Self());
    ASSERT_TRUE(cache_->MakeNode(outer->inode.ino, "inner", S_IFDIR | 0755, "", Self()).ok());
  });
  const auto records = [this] {
    std::vector<std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(directory_ + "/nvme/records")) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  };
  ASSERT_EQ(records().size(), 2u);
  std::filesystem::remove(records().front());  // the lower number: outer
  StartAfterReboot();
  EXPECT_EQ(records().size(), 0u);
}

TEST_F(RebuildTest, AKilledDaemonsOrdinaryFilesHaveTheSizeThatTheyHave) {
  DieAfter([this] {
    Result<Created> created = Create("obj_1_x.bin");
    ASSERT_TRUE(created.ok());
    WriteTo(*created->handle, std::string(5000, 'o'));
  });
  Start();
  double timeout;
  const Result<Entry> entry = cache_->Lookup(kRootIno, "obj_1_x.bin", Self(), &timeout);
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->inode.size, 5000u);
}

TEST_F(RebuildTest, ADriveThatWasAwayBringsItsBlocksWhenItIsBack) {
  config_.nvme = {directory_ + "/nvme", directory_ + "/second"};
  const std::vector<std::string> both = config_.nvme;
  constexpr int kBlocks = 20;
  DieAfter([this] {
    for (int i = 0; i < kBlocks; ++i) Put("block" + std::to_string(i), std::to_string(i));
    AwaitChecksums();
  });
  const auto count = [this] {
    int right = 0;
    for (int i = 0; i < kBlocks; ++i)
      right += Read("block" + std::to_string(i)) == std::to_string(i);
    return right;
  };
  config_.nvme = {both[0]};
  StartAfterReboot();
  const int first = count();
  EXPECT_GT(first, 0);
  EXPECT_LT(first, kBlocks);
  Restart();
  EXPECT_FALSE(cache_->MakeReport().index_rebuilt);
  config_.nvme = both;
  Restart();
  EXPECT_TRUE(cache_->MakeReport().index_rebuilt);
  EXPECT_EQ(count(), kBlocks);
  Restart();
  EXPECT_FALSE(cache_->MakeReport().index_rebuilt);
}

TEST_F(RebuildTest, DamagedIndexIsReplaced) {
  DieAfter([this] { Put("a", "block"), AwaitChecksums(); });
  ASSERT_EQ(::truncate((directory_ + "/nvme/index/data.mdb").c_str(), 5000), 0);
  Start();
  EXPECT_TRUE(cache_->MakeReport().index_rebuilt);
  EXPECT_EQ(Read("a"), "block");
}

TEST_F(RebuildTest, NumbersAreNeverUsedAgain) {
  Ino before = 0;
  DieAfter([this] { Put("a", "block"), AwaitChecksums(); });
  StartAfterReboot();
  before = Find("a", Self());
  Put("b", "block");
  EXPECT_GT(Find("b", Self()), before);
}

}  // namespace
}  // namespace prefixfs
