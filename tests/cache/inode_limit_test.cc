#include <sys/statvfs.h>

#include "tests/cache/cache_fixture.h"

namespace prefixfs {
namespace {

class InodeLimitTest : public CacheFixture {
 protected:
  static constexpr uint64_t kMost = 16;

  void SetUp() override {
    config_.max_inodes = kMost;
    CacheFixture::SetUp();
  }
  uint64_t Inodes() { return cache_->MakeReport().inodes; }
  Status MakeDirectory(const std::string& name, bool may_wait = true) {
    return cache_->MakeNode(kRootIno, name, S_IFDIR | 0755, "", Self(), may_wait).status();
  }
};

TEST_F(InodeLimitTest, CountsWhatIsThere) {
  EXPECT_EQ(Inodes(), 1u);  // the root
  Put("a", "kv");
  Put("b", "kv");
  ASSERT_TRUE(MakeDirectory("d").ok());
  EXPECT_EQ(Inodes(), 4u);
  ASSERT_TRUE(cache_->Rename(kRootIno, "a", kRootIno, "b", 0, Self()).ok());
  EXPECT_EQ(Inodes(), 3u);
  ASSERT_TRUE(cache_->Unlink(kRootIno, "b", Self()).ok());
  ASSERT_TRUE(cache_->RemoveDirectory(kRootIno, "d").ok());
  EXPECT_EQ(Inodes(), 1u);
  Put("c", "kv");
  Restart();
  EXPECT_EQ(Inodes(), 2u);
}

TEST_F(InodeLimitTest, CountsFilesBeingWrittenUntilTheyAreGone) {
  Result<Created> created = Create("a");
  ASSERT_TRUE(created.ok());
  EXPECT_EQ(Inodes(), 2u);
  cache_->Release(std::move(created->handle));  // never flushed: nothing remains
  EXPECT_EQ(Inodes(), 1u);
  EXPECT_TRUE(MakeDirectory("d").ok());
  EXPECT_FALSE(MakeDirectory("d").ok());
  EXPECT_EQ(Inodes(), 2u);
}

TEST_F(InodeLimitTest, AVersionCountsBesideItsBaseUntilItReplacesIt) {
  Put("a", "one");
  Result<HandlePtr> handle = Open("a", O_WRONLY, Self());
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(Inodes(), 3u);
  WriteTo(**handle, "two");
  CloseFile(std::move(handle).value());
  EXPECT_EQ(Inodes(), 2u);
  EXPECT_EQ(Read("a"), "two");
}

TEST_F(InodeLimitTest, NewBlocksTakeThePlaceOfTheColdest) {
  for (int i = 0; i < 40; ++i) {
    Put("block" + std::to_string(i), "kv");
    ASSERT_LE(Inodes(), kMost);
  }
  EXPECT_EQ(Find("block0", Self()), 0u);
  EXPECT_EQ(Read("block39"), "kv");
}

TEST_F(InodeLimitTest, OpenBlocksStayAndThenThereIsNoSpace) {
  std::vector<HandlePtr> handles;
  for (uint64_t i = 0; i + 1 < kMost; ++i) {
    const std::string name = "block" + std::to_string(i);
    Put(name, "kv");
    Result<HandlePtr> handle = Open(name, O_RDONLY, Self());
    ASSERT_TRUE(handle.ok());
    handles.push_back(std::move(handle).value());
  }
  EXPECT_EQ(Create("more").status().code(), Code::kNoSpace);
  EXPECT_EQ(MakeDirectory("more").code(), Code::kNoSpace);
  EXPECT_EQ(Inodes(), kMost);
  cache_->Release(std::move(handles.back()));
  EXPECT_TRUE(MakeDirectory("more").ok());
  handles.pop_back();
  for (HandlePtr& handle : handles) cache_->Release(std::move(handle));
}

TEST_F(InodeLimitTest, ACallThatMayNotWaitSaysSoWhenOnlyALeaseIsInTheWay) {
  config_.lease_ms = 60'000;
  Restart();
  for (uint64_t i = 0; i + 1 < kMost; ++i) {
    Put("block" + std::to_string(i), "kv");
    ASSERT_NE(Find("block" + std::to_string(i), Self()), 0u);
  }
  EXPECT_EQ(MakeDirectory("more", false).code(), Code::kRejected);
  EXPECT_EQ(MakeDirectory("more", true).code(), Code::kNoSpace);
}

TEST_F(InodeLimitTest, StatfsReportsAgainstIt) {
  Put("a", "kv");
  const struct statvfs status = cache_->FileSystemStatus();
  EXPECT_EQ(status.f_files, kMost);
  EXPECT_EQ(status.f_ffree, kMost - 2);
}

}  // namespace
}  // namespace prefixfs
