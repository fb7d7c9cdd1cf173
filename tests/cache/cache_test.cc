#include "cache/cache.h"

#include <linux/fs.h>

#include "tests/cache/cache_fixture.h"

namespace prefixfs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CacheTest : public CacheFixture {
 protected:
  std::vector<std::string> List(Ino parent, const Caller& caller, size_t page = 100) {
    std::vector<std::string> names;
    uint64_t cookie = 0;
    for (;;) {
      auto entries = cache_->List(parent, cookie, page, caller);
      if (!entries.ok() || entries->empty()) return names;
      for (const auto& entry : *entries) names.push_back(entry.entry.inode.name);
      cookie = entries->back().cookie;
    }
  }
  Ino MakeDirectory(std::string_view name) {
    Result<Entry> entry = cache_->MakeNode(kRootIno, name, S_IFDIR | 0755, "", Self());
    return entry.ok() ? entry->inode.ino : 0;
  }
};

TEST_F(CacheTest, NewNameIsSeenOnlyByItsWriterUntilItIsFlushed) {
  Result<Created> created = Create("a");
  ASSERT_TRUE(created.ok());
  EXPECT_NE(Find("a", Self()), 0u);
  EXPECT_EQ(Find("a", Stranger()), 0u);
  EXPECT_THAT(List(kRootIno, Self()), ElementsAre("a"));
  EXPECT_THAT(List(kRootIno, Stranger()), IsEmpty());
  EXPECT_TRUE(cache_->Flush(*created->handle, Self()).ok());
  EXPECT_NE(Find("a", Stranger()), 0u);
  cache_->Release(std::move(created->handle));
}

TEST_F(CacheTest, FlushBySomebodyElsePublishesNothing) {
  Result<Created> created = Create("a");
  ASSERT_TRUE(cache_->Flush(*created->handle, Stranger()).ok());
  EXPECT_EQ(Find("a", Stranger()), 0u);
  cache_->Release(std::move(created->handle));
  EXPECT_EQ(Find("a", Self()), 0u);  // never closed in good order
}

TEST_F(CacheTest, RenameBeforeClosePublishes) {
  Result<Created> created = Create("t");
  WriteTo(*created->handle, "kv");
  ASSERT_TRUE(cache_->Rename(kRootIno, "t", kRootIno, "final", 0, Self()).ok());
  EXPECT_EQ(Read("final"), "kv");
  EXPECT_EQ(Find("t", Self()), 0u);
  CloseFile(std::move(created->handle));
  EXPECT_EQ(Read("final"), "kv");
}

TEST_F(CacheTest, ExclusiveCreateLosesAgainstAnInvisibleWriter) {
  Result<Created> created = Create("a");
  EXPECT_TRUE(
      cache_->Create(kRootIno, "a", 0644, O_EXCL, Stranger(), true).status().Is(Code::kExists));
  cache_->Release(std::move(created->handle));
}

TEST_F(CacheTest, TwoWritersOfOneNameNeverMixAndTheLastPublishedWins) {
  Result<Created> one = Create("a", O_WRONLY | O_TRUNC);
  Result<Created> two = cache_->Create(kRootIno, "a", 0644, O_WRONLY | O_TRUNC, Stranger(), true);
  ASSERT_TRUE(one.ok() && two.ok());
  WriteTo(*one->handle, "11111111");
  WriteTo(*two->handle, "2222");
  CloseFile(std::move(one->handle));
  EXPECT_EQ(Read("a"), "2222");  // the stranger still sees its own
  EXPECT_TRUE(cache_->Flush(*two->handle, Stranger()).ok());
  cache_->Release(std::move(two->handle));
  EXPECT_EQ(Read("a"), "2222");
  EXPECT_EQ(cache_->MakeReport().blocks, 1u);
}

TEST_F(CacheTest, OpeningASealedBlockForWritingMakesAVersionAndReadersKeepTheirs) {
  Put("a", "old bytes");
  Result<HandlePtr> reader = Open("a", O_RDONLY, Stranger());
  ASSERT_TRUE(reader.ok());
  Result<HandlePtr> writer = Open("a", O_RDWR, Self());
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  EXPECT_EQ(ContentOf(**writer), "old bytes");
  WriteTo(**writer, "new");
  EXPECT_EQ(Read("a"), "old bytes");
  CloseFile(std::move(writer).value());
  EXPECT_EQ(Read("a"), "new bytes");
  EXPECT_EQ(ContentOf(**reader), "old bytes");
  cache_->Release(std::move(reader).value());
  EXPECT_EQ(cache_->MakeReport().blocks, 1u);
}

// The clock of the filesystem ticks every few milliseconds.
TEST_F(CacheTest, AWriteInTheTickOfTheLastOneIsAWrite) {
  for (int round = 0; round < 20; ++round) {
    const std::string name = "a" + std::to_string(round);
    Put(name, "one");
    Result<HandlePtr> writer = Open(name, O_RDWR, Self());
    ASSERT_TRUE(writer.ok());
    WriteTo(**writer, "two");
    CloseFile(std::move(writer).value());
    ASSERT_EQ(Read(name), "two");
  }
}

TEST_F(CacheTest, UnmodifiedVersionIsDropped) {
  Put("a", "bytes");
  const Ino before = Find("a", Stranger());
  Result<HandlePtr> writer = Open("a", O_RDWR, Self());
  ASSERT_TRUE(writer.ok());
  CloseFile(std::move(writer).value());
  EXPECT_EQ(Find("a", Self()), before);
  EXPECT_EQ(Read("a"), "bytes");
}

TEST_F(CacheTest, TruncatingOpenStartsEmpty) {
  Put("a", "long old content");
  Result<HandlePtr> writer = Open("a", O_WRONLY | O_TRUNC, Self());
  ASSERT_TRUE(writer.ok());
  WriteTo(**writer, "new");
  EXPECT_EQ(Read("a"), "long old content");
  CloseFile(std::move(writer).value());
  EXPECT_EQ(Read("a"), "new");
}

TEST_F(CacheTest, TruncateByNameMakesAndPublishesAVersion) {
  Put("a", "0123456789");
  AttributeChange change;
  change.size = 4;
  Result<Entry> entry = cache_->SetAttributes(Find("a", Self()), nullptr, change, Self(), true);
  ASSERT_TRUE(entry.status().Is(Code::kStale));
  entry = cache_->SetAttributes(Find("a", Self()), nullptr, change, Self(), true);
  ASSERT_TRUE(entry.ok()) << entry.status().ToString();
  EXPECT_EQ(entry->inode.size, 4u);
  EXPECT_EQ(Read("a"), "0123");
}

TEST_F(CacheTest, ReplacedBlockIsReadableThroughItsHandleAndThenFreed) {
  config_.index_sync_ms = 60'000;  // what the index takes is counted at a tick
  Restart();
  Put("a", std::string(1 << 20, 'x'));
  Result<HandlePtr> reader = Open("a", O_RDONLY, Stranger());
  Put("b", "short");
  ASSERT_TRUE(cache_->Rename(kRootIno, "b", kRootIno, "a", 0, Self()).ok());
  EXPECT_EQ(ContentOf(**reader).size(), 1u << 20);
  AwaitChecksums();
  const uint64_t held = cache_->MakeReport().used;
  cache_->Release(std::move(reader).value());
  for (int i = 0; i < 500 && cache_->MakeReport().used > held - (1u << 20); ++i) ::usleep(10'000);
  EXPECT_LE(cache_->MakeReport().used, held - (1u << 20));
}

// The kernel, which may have the first file under that name still, is to look it up again.
TEST_F(CacheTest, TheFirstRenameOfAVersionIsAnsweredStale) {
  Put("a.new", "head"), Put("other", "x");
  Result<HandlePtr> writer = Open("a.new", O_RDWR, Self());
  ASSERT_TRUE(writer.ok());
  WriteTo(**writer, " and tail", 4);
  CloseFile(std::move(writer).value());
  EXPECT_TRUE(cache_->Rename(kRootIno, "other", kRootIno, "b", 0, Self()).ok());
  EXPECT_TRUE(cache_->Rename(kRootIno, "a.new", kRootIno, "a", 0, Self()).Is(Code::kStale));
  EXPECT_TRUE(cache_->Rename(kRootIno, "a.new", kRootIno, "a", 0, Self()).ok());
  EXPECT_EQ(Read("a"), "head and tail");
  EXPECT_TRUE(cache_->Rename(kRootIno, "a", kRootIno, "c", 0, Self()).ok());
}

TEST_F(CacheTest, AReplacedBlockIsOpenedOnlyByWhoLookedTwice) {
  Put("a", "old"), Put("b", "new");
  const Ino old = Find("a", Self());
  ASSERT_TRUE(cache_->Rename(kRootIno, "b", kRootIno, "a", 0, Self()).ok());
  EXPECT_TRUE(cache_->Open(old, O_RDONLY, Self(), true).status().Is(Code::kStale));
  Result<HandlePtr> second = cache_->Open(old, O_RDONLY, Self(), true);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ(ContentOf(**second), "old");
  cache_->Release(std::move(second).value());
}

// Threads of a PID namespace that is not visible here have the number 0, all of them. The kernel
// looks up again for them too, so absent is never what they are told.
TEST_F(CacheTest, AReplacedBlockThatIsGoneIsStaleForCallersThatCannotBeToldApart) {
  Put("a", "old"), Put("b", "new");
  const Ino old = Find("a", Self());
  ASSERT_TRUE(cache_->Rename(kRootIno, "b", kRootIno, "a", 0, Self()).ok());
  ::usleep(600'000);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(cache_->Open(old, O_RDONLY, cache_->MakeCaller(0, 0, 0), true).status().code(),
              Code::kStale);
  }
}

TEST_F(CacheTest, AListSaysWhichNamesAreNotSettled) {
  Put("new", "x");
  const Result<std::vector<DirectoryEntry>> entries = cache_->List(kRootIno, 0, 10, Stranger());
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_FALSE(entries->front().settled);
  ::sleep(3);
  EXPECT_TRUE(cache_->List(kRootIno, 0, 10, Stranger())->front().settled);
}

// An ordinary file is settled at every last close, also a reader's.
TEST_F(CacheTest, TimesThatWereSetByNameOutlastACloseOfAnOrdinaryFile) {
  Put("kv_cache.data", "slots");
  AwaitChecksums();
  const Ino ino = Find("kv_cache.data", Self());
  AttributeChange change;
  change.mtime_ns = 1'100'000'002'987'654'321;
  ASSERT_TRUE(cache_->SetAttributes(ino, nullptr, change, Self(), true).ok());
  EXPECT_EQ(Read("kv_cache.data"), "slots");
  AwaitChecksums();
  Result<Entry> entry = cache_->GetAttributes(ino, nullptr);
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->inode.mtime_ns, change.mtime_ns);
}

TEST_F(CacheTest, RenameFlags) {
  Put("a", "1"), Put("b", "2");
  EXPECT_TRUE(
      cache_->Rename(kRootIno, "a", kRootIno, "b", RENAME_NOREPLACE, Self()).Is(Code::kExists));
  ASSERT_TRUE(cache_->Rename(kRootIno, "a", kRootIno, "b", RENAME_EXCHANGE, Self()).ok());
  EXPECT_EQ(Read("a"), "2");
  EXPECT_EQ(Read("b"), "1");
}

TEST_F(CacheTest, DirectoryWithAnInvisibleFileIsNotEmpty) {
  const Ino directory = MakeDirectory("d");
  Result<Created> created = Create("x", O_WRONLY | O_EXCL, directory);
  ASSERT_TRUE(created.ok());
  EXPECT_TRUE(cache_->RemoveDirectory(kRootIno, "d").Is(Code::kNotEmpty));
  cache_->Release(std::move(created->handle));
  EXPECT_TRUE(cache_->RemoveDirectory(kRootIno, "d").ok());
}

TEST_F(CacheTest, EverythingIsThereAfterARestart) {
  const Ino directory = MakeDirectory("d");
  Put("x", "block", directory);
  ASSERT_TRUE(cache_->MakeNode(kRootIno, "link", S_IFLNK | 0777, "d/x", Self()).ok());
  AwaitChecksums();
  const uint64_t used = cache_->MakeReport().used;
  Restart();
  EXPECT_THAT(List(kRootIno, Self()), ElementsAre("d", "link"));
  EXPECT_EQ(cache_->MakeReport().blocks, 1u);
  EXPECT_FALSE(cache_->MakeReport().index_rebuilt);
  EXPECT_LE(cache_->MakeReport().used, used);
  EXPECT_EQ(*cache_->ReadLink(Find("link", Self())), "d/x");
}

TEST_F(CacheTest, ListingPagesAreComplete) {
  for (int i = 0; i < 25; ++i) Put("n" + std::to_string(i), "x");
  EXPECT_EQ(List(kRootIno, Self(), 4).size(), 25u);
}

TEST_F(CacheTest, EvictionKeepsTheBudgetAndCountsIt) {
  const std::string block(4 << 20, 'b');
  for (int i = 0; i < 40; ++i) Put("b" + std::to_string(i), block);
  const Cache::Report report = cache_->MakeReport();
  EXPECT_LE(report.used + report.reserved, report.capacity);
  EXPECT_GT(cache_->counters().evicted_blocks.load(), 20u);
  EXPECT_EQ(Find("b0", Self()), 0u);
  EXPECT_NE(Find("b39", Self()), 0u);
}

TEST_F(CacheTest, NoSpaceOnlyWhenNothingIsEvictable) {
  std::vector<HandlePtr> held;
  const std::string block(8 << 20, 'b');
  for (int i = 0; i < 7; ++i) {
    Put("b" + std::to_string(i), block);
    Result<HandlePtr> reader = Open("b" + std::to_string(i), O_RDONLY, Self());
    ASSERT_TRUE(reader.ok());
    held.push_back(std::move(reader).value());
  }
  Status last = Ok();
  std::vector<HandlePtr> written;
  for (int i = 0; i < 8 && last.ok(); ++i) {
    Result<Created> created = Create("c" + std::to_string(i));
    last = created.status();
    if (created.ok()) written.push_back(std::move(created->handle));
  }
  EXPECT_TRUE(last.Is(Code::kNoSpace)) << last.ToString();
  for (auto& handle : written) cache_->Release(std::move(handle));
  for (auto& handle : held) cache_->Release(std::move(handle));
  EXPECT_TRUE(Create("d").ok());
}

TEST_F(CacheTest, NamespaceThatOutgrowsItsPromisesIsServedSoThatWritesCanWait) {
  Result<Created> big = Create("big");
  ASSERT_TRUE(big.ok());
  EXPECT_TRUE(cache_->PassthroughAllowed(*big->handle));
  const std::string piece(1 << 20, 'b');
  for (int i = 0; i < 62; ++i) WriteTo(*big->handle, piece, i << 20);
  while (cache_->MakeReport().used < 61u << 20) ::usleep(1000);
  ::usleep(100'000);  // measured once more, now that space is short
  Result<Created> next = Create("next");
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  EXPECT_FALSE(cache_->PassthroughAllowed(*next->handle));
  EXPECT_TRUE(cache_->PrepareWrite(*next->handle, 1000, true).ok());
  EXPECT_TRUE(cache_->PrepareWrite(*next->handle, 8 << 20, false).Is(Code::kRejected));
  EXPECT_TRUE(cache_->PrepareWrite(*next->handle, 8 << 20, true).Is(Code::kNoSpace));
  CloseFile(std::move(big->handle));
  EXPECT_TRUE(cache_->PrepareWrite(*next->handle, 8 << 20, true).ok()) << "big could go";
  CloseFile(std::move(next->handle));
  EXPECT_EQ(Find("big", Self()), 0u);
}

TEST_F(CacheTest, PosixFilesAreSharedVisibleAtOnceAndNeverEvicted) {
  Result<Created> pool = Create("obj_7_9c1e.bin", O_RDWR);
  ASSERT_TRUE(pool.ok());
  EXPECT_NE(Find("obj_7_9c1e.bin", Stranger()), 0u);
  WriteTo(*pool->handle, "pool");
  cache_->Release(std::move(pool->handle));
  Result<HandlePtr> again = Open("obj_7_9c1e.bin", O_RDWR, Stranger());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(ContentOf(**again), "pool");
  cache_->Release(std::move(again).value());
  for (int i = 0; i < 40; ++i) Put("b" + std::to_string(i), std::string(4 << 20, 'b'));
  EXPECT_EQ(Read("obj_7_9c1e.bin"), "pool");
}

TEST_F(CacheTest, ABlockThatWasAnOrdinaryFileMeanwhileGetsAChecksumOfWhatItIsNow) {
  config_.verify = "always";
  Restart();
  Put("block", "before");
  AwaitChecksums();
  ASSERT_TRUE(cache_->Rename(kRootIno, "block", kRootIno, "obj_1_x.bin", 0, Self()).ok());
  Result<HandlePtr> handle = Open("obj_1_x.bin", O_WRONLY, Self());
  ASSERT_TRUE(handle.ok());
  WriteTo(**handle, "behind");
  CloseFile(std::move(handle).value());
  ASSERT_TRUE(cache_->Rename(kRootIno, "obj_1_x.bin", kRootIno, "block", 0, Self()).ok());
  AwaitChecksums();
  EXPECT_EQ(Read("block"), "behind");
  Restart();
  EXPECT_EQ(Read("block"), "behind");
}

TEST_F(CacheTest, NamesAreFoundByHash) {
  const std::string hash(64, 'a');
  Put(hash + "_org-Model-8B_0_8.bin", "kv");
  auto found = cache_->LocateHash(hash);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().path, hash + "_org-Model-8B_0_8.bin");
  EXPECT_EQ(found->front().model, "org-Model-8B");
  ASSERT_EQ(cache_->MakeReport().models.size(), 1u);
  EXPECT_EQ(cache_->MakeReport().models.front().model, "org-Model-8B");
}

TEST_F(CacheTest, StatfsDescribesTheBudgetAndStaysBelowTheCleaners) {
  for (int i = 0; i < 14; ++i) Put("b" + std::to_string(i), std::string(4 << 20, 'b'));
  const struct statvfs status = cache_->FileSystemStatus();
  EXPECT_EQ(status.f_bsize, 4096u);
  EXPECT_EQ(status.f_blocks * status.f_frsize, 64u << 20);
  EXPECT_LT(static_cast<double>(status.f_blocks - status.f_bfree),
            0.8 * static_cast<double>(status.f_blocks));
}

TEST_F(CacheTest, HostileNamesAreRefused) {
  EXPECT_TRUE(Create(std::string(256, 'n')).status().Is(Code::kTooLong));
  EXPECT_TRUE(Create(".prefixfs").status().Is(Code::kDenied));
  EXPECT_TRUE(Create(std::string("\x01\xff\n")).ok());
}

}  // namespace
}  // namespace prefixfs
