// A call to the drive fails, once or from then on, at any point of what a cache does. Whatever was
// published before is there after the next start with the bytes it had, and the cache works again.
#include "cache/store/drive_set.h"
#include "tests/cache/fault_fixture.h"

namespace prefixfs {
namespace {

TEST_F(FaultTest, ANewBlock) {
  Sweep({[&] { StartOrDie(); },
         [&] {
           Write("n", kNew);
           AwaitChecksums();
         }});
}

TEST_F(FaultTest, ATemporaryRenamedOverABlock) {
  Sweep({[&] { StartOrDie(); },
         [&] {
           Write("n.tmp", kNew);
           Also("n.tmp", {kAbsent});  // not renamed yet, so a kill may lose it
           Also("a", {kNew});
           if (cache_->Rename(kRootIno, "n.tmp", kRootIno, "a", 0, Self()).ok()) {
             Now("a", {kNew});
             Now("n.tmp", {kAbsent});
           }
           AwaitChecksums();
         }});
}

TEST_F(FaultTest, ABlockPublishedBeforeItIsWritten) {
  Sweep({[&] { StartOrDie(); },
         [&] {
           WriteAndRename("n", kNew);
           AwaitChecksums();
         }});
}

TEST_F(FaultTest, AVersionByCopy) {
  Sweep({[&] { StartOrDie(); },
         [&] {
           WriteOver("a", O_RDWR, kAModified);
           AwaitChecksums();
         }});
}

TEST_F(FaultTest, AVersionByReflink) {
  faults::ImitateReflinks(true);
  Sweep({[&] { StartOrDie(); },
         [&] {
           WriteOver("a", O_RDWR, kAModified);
           AwaitChecksums();
         }});
  faults::ImitateReflinks(false);
}

TEST_F(FaultTest, AVersionThatIsCut) {
  Sweep({[&] { StartOrDie(); },
         [&] {
           WriteOver("a", O_WRONLY | O_TRUNC, kNew);
           AwaitChecksums();
         }});
}

TEST_F(FaultTest, ABlockRenamedOverAnother) {
  Sweep({[&] { StartOrDie(); },
         [&] {
           if (cache_->Rename(kRootIno, "a", kRootIno, "b", 0, Self()).ok()) {
             Now("a", {kAbsent});
             Now("b", {kA});
           }
         }});
}

TEST_F(FaultTest, AnUnlink) {
  Sweep({[&] { StartOrDie(); },
         [&] {
           if (cache_->Unlink(kRootIno, "b", Self()).ok()) Now("b", {kAbsent});
         }});
}

TEST_F(FaultTest, ADirectoryMadeAndFilled) {
  Sweep({[&] { StartOrDie(); },
         [&] {
           (void)cache_->MakeNode(kRootIno, "m", S_IFDIR | 0755, "", Self()).ok();
           Write("m/n", kNew);
           AwaitChecksums();
         }});
}

TEST_F(FaultTest, ADirectoryRenamed) {
  Sweep({[&] { StartOrDie(); },
         [&] {
           if (!cache_->Rename(kRootIno, "d", kRootIno, "e", 0, Self()).ok()) return;
           Now("d/x", {kAbsent});
           Now("e/x", {kX});
         }});
}

// The budget has room for one more block only, so the coldest go.
TEST_F(FaultTest, EvictionUnderAFullBudget) {
  config_.capacity = {.bytes = 1 << 20};
  config_.reserve_initial = 1010 << 10;
  CopyTemplate();
  Start();
  for (const char* name : {"a", "b", "c", "d/x"}) Also(name, {kAbsent});
  EXPECT_EQ(CheckAll(), "");
  EXPECT_GT(cache_->counters().evicted_blocks.load(), 0u);
  cache_.reset();
  Sweep({[&] { StartOrDie(); },
         [&] {
           for (const char* name : {"a", "b", "c", "d/x"}) Also(name, {kAbsent});
           Write("n", kNew);
           Also("n", {kAbsent});
           AwaitChecksums();
         }});
}

// With nothing free every block would be evicted.
TEST_F(FaultTest, ADriveThatDoesNotSayWhatIsFreeKeepsItsLastAnswer) {
  const auto drives = DriveSet::Open({directory_ + "/another"});
  ASSERT_TRUE(drives.ok()) << drives.status().ToString();
  const int64_t before = (*drives)->Headroom(0, SizeSpec{});
  EXPECT_GT(before, 0);
  faults::Arm({directory_, 1, ENOMEM, true});
  (*drives)->RefreshSpace();
  (void)faults::Disarm();
  EXPECT_NE(faults::WhatFailed(), "");
  EXPECT_GT((*drives)->Headroom(0, SizeSpec{}), before / 2);
  faults::Arm({directory_, 1, EIO, true});
  (*drives)->RefreshSpace();
  (void)faults::Disarm();
  EXPECT_LE((*drives)->Headroom(0, SizeSpec{}), 0);
}

TEST_F(FaultTest, AStartWithACleanIndex) {
  Sweep({[] {}, [&] { TryToStart(); }});
}

// Nothing could be evicted otherwise.
TEST_F(FaultTest, AFullFilesystemIsStartedWithTheIndexThatItHas) {
  CopyTemplate();
  faults::Arm({directory_, 1, ENOSPC, true});
  Result<std::unique_ptr<Cache>> cache = Cache::Open(config_);
  (void)faults::Disarm();
  ASSERT_TRUE(cache.ok()) << cache.status().ToString();
  cache_ = std::move(cache).value();
  EXPECT_FALSE(cache_->MakeReport().index_rebuilt);
  EXPECT_NE(faults::WhatFailed(), "");
  EXPECT_EQ(CheckAll(), "");
}

// The daemon was killed while a block that others see was still open. An index that
// cannot be read is made anew, which has no checksum of that block.
TEST_F(FaultTest, AStartAfterAKill) {
  Sweep({[&] { LeaveOpen("n", kNew); }, [&] { TryToStart(); }, {EIO}});
}

TEST_F(FaultTest, AStartThatRebuildsTheIndex) {
  Sweep({[&] { std::filesystem::remove_all(config_.nvme[0] + "/index"); },
         [&] { TryToStart(); },
         {EIO}});
}

}  // namespace
}  // namespace prefixfs
