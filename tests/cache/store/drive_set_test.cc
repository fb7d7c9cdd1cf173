#include "cache/store/drive_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/cache/store/drive_fixture.h"
#include "tests/support/temp_dir.h"

namespace prefixfs {
namespace {

using ::testing::HasSubstr;

class DriveSetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "trusted extended attributes need root";
  }

  std::unique_ptr<DriveSet> Open(const std::vector<std::string>& paths) {
    Result<std::unique_ptr<DriveSet>> set = DriveSet::Open(paths);
    EXPECT_TRUE(set.ok()) << set.status().ToString();
    return set.ok() ? std::move(set).value() : nullptr;
  }

  support::TempDir temp_;
  support::TempDir shm_{"/dev/shm"};  // another filesystem
  std::string a_ = temp_ / "a", b_ = temp_ / "b", c_ = shm_ / "c";
};

TEST_F(DriveSetTest, NewDrivesFormAPoolWithSlotsInOrder) {
  std::string pool;
  {
    const auto set = Open({a_, b_, c_});
    ASSERT_TRUE(set);
    pool = set->pool_uuid();
    for (const uint16_t slot : {0, 1, 2}) EXPECT_EQ(set->drives()[slot]->slot(), slot);
    EXPECT_EQ(&set->first(), set->drives()[0].get());
  }
  const auto set = Open({c_, a_, b_});
  ASSERT_TRUE(set);
  EXPECT_EQ(set->pool_uuid(), pool);
  EXPECT_EQ(set->Find(2)->path(), c_) << "slots go with the drive, not with the order";
  EXPECT_EQ(set->Find(0)->path(), a_);
  EXPECT_EQ(set->Find(3), nullptr);
}

TEST_F(DriveSetTest, ANewDriveJoinsAndNeverTakesTheSlotOfAnAbsentOne) {
  const std::string pool = Open({a_, b_})->pool_uuid();
  const auto set = Open({a_, c_});
  ASSERT_TRUE(set);
  EXPECT_EQ(set->pool_uuid(), pool);
  EXPECT_EQ(set->drives()[1]->slot(), 2);
  EXPECT_EQ(set->Find(1), nullptr);
}

TEST_F(DriveSetTest, ASlotGivenWhileAnotherDriveWasAbsentIsKnownToAllThatWereThere) {
  Open({a_, b_});
  Open({b_, c_});  // c gets 2, and b learns of it
  const auto set = Open({b_, temp_ / "d"});
  ASSERT_TRUE(set);
  EXPECT_EQ(set->drives()[1]->slot(), 3);
}

TEST_F(DriveSetTest, RefusesDrivesOfTwoPools) {
  Open({a_});
  Open({b_});
  const Status refused = DriveSet::Open({a_, b_}).status();
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr(a_));
  EXPECT_THAT(refused.message(), HasSubstr(b_));
}

TEST_F(DriveSetTest, RefusesACopyOfADriveBesideIt) {
  Open({a_});
  ASSERT_EQ(mkdir(b_.c_str(), 0755), 0);
  const Fd format(open((a_ + "/PREFIXFS").c_str(), O_RDONLY | O_CLOEXEC));
  WriteFile(b_ + "/PREFIXFS", ReadFd(format.get()));
  const Status refused = DriveSet::Open({a_, b_}).status();
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr("copy"));
}

TEST_F(DriveSetTest, RefusesNoDriveAndTheSameDriveTwice) {
  EXPECT_EQ(DriveSet::Open({}).status().code(), Code::kInvalid);
  EXPECT_EQ(DriveSet::Open({a_, a_}).status().code(), Code::kRejected);
  EXPECT_TRUE(Open({a_})) << "and nothing stays locked";
}

TEST_F(DriveSetTest, EqualDrivesTakeTurns) {
  const auto set = Open({a_, b_});
  ASSERT_TRUE(set);
  std::set<uint16_t> used;
  for (int i = 0; i < 4; ++i) used.insert(set->Place(1 << 20).value()->slot());
  EXPECT_EQ(used.size(), 2u);
}

TEST_F(DriveSetTest, PlacesWhereLessIsBeingWritten) {
  const auto set = Open({a_, b_});
  ASSERT_TRUE(set);
  set->AddQueued(0, 64 << 20);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(set->Place(1 << 20).value()->slot(), 1);
  set->AddQueued(0, -(64 << 20));
  set->RefreshSpace();
  set->AddQueued(1, 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(set->Place(1 << 20).value()->slot(), 0);
}

TEST_F(DriveSetTest, WhatWasPlacedCountsUntilTheNextLookAtTheSpace) {
  const auto set = Open({a_, b_});
  ASSERT_TRUE(set);
  int first = 0;
  for (int i = 0; i < 100; ++i) {
    const uint16_t slot = set->Place(1 << 20).value()->slot();
    set->AddQueued(slot, 1 << 20);
    set->AddQueued(slot, -(1 << 20));  // written and closed at once
    first += slot == 0 ? 1 : 0;
  }
  EXPECT_NEAR(first, 50, 5);
}

TEST_F(DriveSetTest, AFailedDriveGetsNoBlocksAndIsNotFound) {
  const auto set = Open({a_, b_});
  ASSERT_TRUE(set);
  (void)set->Find(0)->Note(Status(Code::kUnavailable, "pulled out"));
  EXPECT_EQ(set->Find(0), nullptr);
  EXPECT_EQ(set->Headroom(0, {.bytes = 0}), 0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(set->Place(1).value()->slot(), 1);
  (void)set->Find(1)->Note(Status(Code::kIo, "and the other"));
  EXPECT_EQ(set->Place(1).status().code(), Code::kUnavailable);
}

TEST_F(DriveSetTest, DrivesOnOneFilesystemCountItsSpaceOnce) {
  const auto set = Open({a_, b_, c_});
  ASSERT_TRUE(set);
  const uint64_t on_disk = set->Find(0)->Space().value().total_bytes;
  const uint64_t on_shm = set->Find(2)->Space().value().total_bytes;
  EXPECT_EQ(set->TotalBytes(), on_disk + on_shm);
}

TEST_F(DriveSetTest, LosingADriveDoesNotShrinkTheTotal) {
  const auto set = Open({a_, c_});
  ASSERT_TRUE(set);
  const uint64_t before = set->TotalBytes();
  (void)set->Find(1)->Note(Status(Code::kIo, "lost"));
  set->RefreshSpace();
  EXPECT_EQ(set->TotalBytes(), before);
}

TEST_F(DriveSetTest, HeadroomIsWhatIsFreeLessWhatIsQueuedOnThatFilesystem) {
  const auto set = Open({a_, b_, c_});
  ASSERT_TRUE(set);
  const int64_t free = set->Headroom(0, {.bytes = 0});
  EXPECT_GT(free, 0);
  EXPECT_EQ(set->Headroom(1, {.bytes = 0}), free);
  EXPECT_EQ(set->Headroom(0, {.bytes = 4096}), free - 4096);
  set->AddQueued(1, 1000);  // the same filesystem
  EXPECT_EQ(set->Headroom(0, {.bytes = 0}), free - 1000);
  set->AddQueued(2, 1000);  // another
  EXPECT_EQ(set->Headroom(0, {.bytes = 0}), free - 1000);
  EXPECT_LT(set->Headroom(0, {.bytes = static_cast<uint64_t>(free)}), 0);
  EXPECT_EQ(set->Headroom(9, {.bytes = 0}), 0);
  const uint64_t total = set->Find(0)->Space().value().total_bytes;
  const auto share = static_cast<int64_t>(0.25 * static_cast<double>(total));
  EXPECT_NEAR(static_cast<double>(set->Headroom(0, {.fraction = 0.25})),
              static_cast<double>(free - 1000 - share), 1.0);
}

}  // namespace
}  // namespace prefixfs
