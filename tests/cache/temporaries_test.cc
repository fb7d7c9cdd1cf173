// Files closed under a temporary name, before their rename.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>

#include <thread>

#include "tests/cache/cache_fixture.h"

namespace prefixfs {
namespace {

class TemporariesTest : public CacheFixture {
 protected:
  bool IsCommitted() { return cache_->MakeReport().blocks > 0; }
  Status Rename(const char* from, const char* to, const Caller& caller) {
    return cache_->Rename(kRootIno, from, kRootIno, to, 0, caller);
  }
};

TEST_F(TemporariesTest, TheRenameCommits) {
  Put("a.tmp", "bytes");
  EXPECT_FALSE(IsCommitted());
  EXPECT_NE(Find("a.tmp", Self()), 0u);
  EXPECT_FALSE(IsCommitted());
  ASSERT_TRUE(Rename("a.tmp", "a", Self()).ok());
  EXPECT_TRUE(IsCommitted());
  EXPECT_EQ(Read("a"), "bytes");
  EXPECT_EQ(Find("a.tmp", Self()), 0u);
}

TEST_F(TemporariesTest, OtherNamesAreCommittedWhenTheyAreClosed) {
  Put("a.bin", "bytes"), Put("tmp", "bytes");
  EXPECT_EQ(cache_->MakeReport().blocks, 2u);
}

TEST_F(TemporariesTest, WhoeverElseLooksFindsIt) {
  Put("a.tmp", "bytes");
  EXPECT_NE(Find("a.tmp", Stranger()), 0u);
  EXPECT_TRUE(IsCommitted());
  EXPECT_EQ(Read("a.tmp"), "bytes");
  ASSERT_TRUE(Rename("a.tmp", "a", Self()).ok());
  EXPECT_EQ(Read("a"), "bytes");
}

TEST_F(TemporariesTest, ItIsListedToOthers) {
  Put("a.tmp", "bytes");
  const auto entries = cache_->List(kRootIno, 0, 10, Stranger());
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_EQ(entries->front().entry.inode.name, "a.tmp");
}

TEST_F(TemporariesTest, AnotherProcessMayRenameIt) {
  Put("a.tmp", "bytes");
  ASSERT_TRUE(Rename("a.tmp", "a", Stranger()).ok());
  EXPECT_EQ(Read("a"), "bytes");
}

TEST_F(TemporariesTest, ItIsUnlinkedByAnybody) {
  Put("a.tmp", "bytes"), Put("b.tmp", "bytes");
  EXPECT_TRUE(cache_->Unlink(kRootIno, "a.tmp", Self()).ok());
  EXPECT_TRUE(cache_->Unlink(kRootIno, "b.tmp", Stranger()).ok());
  EXPECT_EQ(Find("a.tmp", Self()), 0u);
  EXPECT_EQ(Find("b.tmp", Self()), 0u);
  EXPECT_FALSE(IsCommitted());
}

TEST_F(TemporariesTest, OpenedOnceMoreByItsWriterItIsTheSameFile) {
  Put("a.tmp", "head");
  const Ino first = Find("a.tmp", Self());
  Result<HandlePtr> again = Open("a.tmp", O_RDWR, Self());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(Find("a.tmp", Stranger()), 0u) << "being written again, it is its writer's alone";
  WriteTo(**again, " and tail", 4);
  CloseFile(std::move(again).value());
  EXPECT_EQ(Find("a.tmp", Self()), first);
  ASSERT_TRUE(Rename("a.tmp", "a", Self()).ok());
  EXPECT_EQ(Read("a"), "head and tail");
}

// Of one process, as the workers of an engine are.
TEST_F(TemporariesTest, AnotherThreadThatWritesTheNameGetsAFileOfItsOwn) {
  Put("a.tmp", "one");
  std::thread([&] {
    Result<HandlePtr> writer = Open("a.tmp", O_WRONLY | O_TRUNC, Self());
    ASSERT_TRUE(writer.ok());
    WriteTo(**writer, "half");
    cache_->Release(std::move(writer).value());
  }).join();
  ASSERT_TRUE(Rename("a.tmp", "a", Self()).ok());
  EXPECT_EQ(Read("a"), "one");
}

TEST_F(TemporariesTest, AnotherThreadRenamesWhatWasClosedLast) {
  Result<Created> mine = Create("a.tmp");
  ASSERT_TRUE(mine.ok());
  Result<Created> theirs = cache_->Create(kRootIno, "a.tmp", 0644, O_WRONLY, Stranger(), true);
  ASSERT_TRUE(theirs.ok());
  WriteTo(*theirs->handle, "old");
  EXPECT_TRUE(cache_->Flush(*theirs->handle, Stranger()).ok());
  cache_->Release(std::move(theirs->handle));
  WriteTo(*mine->handle, "new");
  CloseFile(std::move(mine->handle));
  EXPECT_NE(Find("a.tmp", Self()), 0u);
  std::thread([&] { EXPECT_TRUE(Rename("a.tmp", "a", Self()).ok()); }).join();
  EXPECT_EQ(Read("a"), "new");
  EXPECT_EQ(Find("a.tmp", Self()), 0u);
}

TEST_F(TemporariesTest, OfTwoUnderOneNameTheLastRenamedStays) {
  Put("a.tmp", "one");
  ASSERT_TRUE(Rename("a.tmp", "a", Self()).ok());
  Put("a.tmp", "two");
  ASSERT_TRUE(Rename("a.tmp", "a", Self()).ok());
  EXPECT_EQ(Read("a"), "two");
  EXPECT_TRUE(cache_->Rename(kRootIno, "a", kRootIno, "b", RENAME_NOREPLACE, Self()).ok());
  Put("c.tmp", "three");
  EXPECT_TRUE(
      cache_->Rename(kRootIno, "c.tmp", kRootIno, "b", RENAME_NOREPLACE, Self()).Is(Code::kExists));
  EXPECT_NE(Find("c.tmp", Self()), 0u);
}

TEST_F(TemporariesTest, WithoutARenameItIsCommittedAfterAWhile) {
  Put("a.tmp", "bytes");
  for (int i = 0; i < 500 && !IsCommitted(); ++i) ::usleep(10'000);
  EXPECT_TRUE(IsCommitted());
  EXPECT_EQ(Read("a.tmp"), "bytes");
}

TEST_F(TemporariesTest, ACleanStopKeepsIt) {
  Put("a.tmp", "bytes");
  Restart();
  EXPECT_EQ(Read("a.tmp"), "bytes");
}

}  // namespace
}  // namespace prefixfs
