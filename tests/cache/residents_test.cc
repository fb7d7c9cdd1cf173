#include "cache/residents.h"

#include <gmock/gmock.h>

namespace prefixfs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Probe = Residents::Probe;

class FakeClock : public Clock {
 public:
  int64_t MonotonicNs() const override { return now_ns; }
  int64_t now_ns = 1'000'000 * kNsPerMs;
};

class ResidentsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kLeaseMs = 1000;

  void Add(Ino ino, uint16_t drive = 0) { residents_.Insert(ino, {100, 1, drive, false}); }
  void Pass(int64_t ms) { clock_.now_ns += ms * kNsPerMs; }
  std::vector<Ino> Take(size_t max, int drive = -1) {
    std::vector<Ino> taken;
    for (const auto& victim : residents_.TakeVictims(max, drive, &leased_))
      taken.push_back(victim.ino);
    return taken;
  }
  bool Open(Ino ino) {
    bool unverified;
    return residents_.Open(ino, &unverified) == Probe::kLeased;
  }

  FakeClock clock_;
  bool leased_ = false;
  Residents residents_{std::move(MakePolicy("lru")).value(), kLeaseMs, clock_};
};

TEST_F(ResidentsTest, ColdestGoesFirst) {
  Add(1), Add(2), Add(3);
  ASSERT_TRUE(Open(1));
  residents_.Close(1);
  Pass(kLeaseMs * 2);
  EXPECT_THAT(Take(3), ElementsAre(2, 3, 1));
}

TEST_F(ResidentsTest, OpenBlocksStay) {
  Add(1), Add(2);
  ASSERT_TRUE(Open(1));
  Pass(kLeaseMs * 100);
  EXPECT_THAT(Take(9), ElementsAre(2));
  residents_.Close(1);
  EXPECT_THAT(Take(9), ElementsAre(1));
}

TEST_F(ResidentsTest, ProbeProtectsForTheLeaseAndTheKernelsTimeout) {
  Add(1);
  EXPECT_EQ(residents_.Touch(1), Probe::kLeased);
  Pass(kLeaseMs + kLeaseMs / 2 - 1);
  EXPECT_THAT(Take(1), IsEmpty());
  EXPECT_TRUE(leased_);
  Pass(1);
  EXPECT_THAT(Take(1), ElementsAre(1));
}

TEST_F(ResidentsTest, ProbesDoNotRefreshRecency) {
  Add(1), Add(2);
  (void)residents_.Touch(1);
  Pass(kLeaseMs * 2);
  EXPECT_THAT(Take(1), ElementsAre(1));
}

TEST_F(ResidentsTest, EndlessProbingDelaysAnEvictionByOneLeaseAtMost) {
  Add(1);
  (void)residents_.Touch(1);
  EXPECT_THAT(Take(1), IsEmpty());  // wanted from here on
  const int64_t until = clock_.now_ns + kLeaseMs * 3 / 2 * kNsPerMs;
  while (clock_.now_ns < until) {
    EXPECT_EQ(residents_.Touch(1), Probe::kLeased);
    Pass(100);
  }
  EXPECT_EQ(residents_.Touch(1), Probe::kGone);  // absent, rather than there without protection
  EXPECT_THAT(Take(1), ElementsAre(1));
}

TEST_F(ResidentsTest, OpenEndsTheWantedState) {
  Add(1);
  (void)residents_.Touch(1);
  EXPECT_THAT(Take(1), IsEmpty());
  ASSERT_TRUE(Open(1));
  residents_.Close(1);
  Pass(kLeaseMs);
  EXPECT_EQ(residents_.Touch(1), Probe::kLeased);
  Pass(kLeaseMs);
  EXPECT_THAT(Take(1), IsEmpty());
}

TEST_F(ResidentsTest, OneShortageEndsNoMoreLeasesThanItAsksFor) {
  for (Ino ino = 1; ino <= 10; ++ino) {
    Add(ino);
    (void)residents_.Touch(ino);
  }
  EXPECT_THAT(Take(2), IsEmpty());
  Pass(kLeaseMs * 3 / 2);
  int gone = 0;
  for (Ino ino = 1; ino <= 10; ++ino) gone += residents_.Touch(ino) == Probe::kGone ? 1 : 0;
  EXPECT_EQ(gone, 2);
}

TEST_F(ResidentsTest, AFreshBlockGoesAfterAllOthersUntilItIsRenamedOrHalfASecondOld) {
  residents_.Insert(1, {100, 1, 0, false}, 0, true);
  residents_.Insert(2, {100, 1, 0, false}, 0, true);
  Add(3);
  EXPECT_THAT(Take(3), ElementsAre(3));
  residents_.EndGrace(2);
  EXPECT_THAT(Take(3), ElementsAre(2));
  Add(4);
  Pass(500);
  EXPECT_THAT(Take(3), ElementsAre(1, 4));
}

TEST_F(ResidentsTest, VictimIsAbsentUntilPutBack) {
  Add(1), Add(2);
  EXPECT_THAT(Take(1), ElementsAre(1));
  std::vector<Ino> alone;
  EXPECT_TRUE(residents_.TakeWith(1, &alone));
  EXPECT_EQ(residents_.Touch(1), Probe::kGone);
  EXPECT_FALSE(Open(1));
  residents_.PutBack(1);
  EXPECT_EQ(residents_.Touch(1), Probe::kLeased);
  Pass(kLeaseMs * 2);
  EXPECT_THAT(Take(2), ElementsAre(2, 1));  // at the warm end
}

TEST_F(ResidentsTest, ReleasedVictimKeepsItsPlace) {
  Add(1), Add(2);
  EXPECT_THAT(Take(2), ElementsAre(1, 2));
  residents_.Release(1);
  residents_.Release(2);
  EXPECT_THAT(Take(2), ElementsAre(1, 2));
}

TEST_F(ResidentsTest, VictimsOfOneDriveOnly) {
  Add(1, 0), Add(2, 1), Add(3, 0);
  EXPECT_THAT(Take(9, 1), ElementsAre(2));
}

TEST_F(ResidentsTest, ModelsAreCountedInAndOut) {
  Add(1), Add(2);
  EXPECT_EQ(residents_.Models().at(1).blocks, 2u);
  EXPECT_EQ(residents_.SetAllocated(1, 60), -40);
  EXPECT_EQ(residents_.Models().at(1).bytes, 160u);
  residents_.Remove(1), residents_.Remove(2);
  EXPECT_THAT(residents_.Models(), IsEmpty());
}

TEST_F(ResidentsTest, AVictimIsThereUntilItIsTakenAndAProbeMayRescueIt) {
  Add(1);
  EXPECT_THAT(Take(9), ElementsAre(1));
  EXPECT_THAT(Take(9), IsEmpty()) << "chosen once";
  EXPECT_EQ(residents_.Touch(1), Probe::kLeased);
  std::vector<Ino> alone;
  EXPECT_FALSE(residents_.TakeWith(1, &alone));
  EXPECT_EQ(residents_.Touch(1), Probe::kLeased);
  Pass(kLeaseMs * 2);
  EXPECT_THAT(Take(9), ElementsAre(1));
  EXPECT_TRUE(residents_.TakeWith(1, &alone));
  EXPECT_EQ(residents_.Touch(1), Probe::kGone);
}

TEST_F(ResidentsTest, AGroupGoesOnlyIfNoneOfItIsOpenOrLeased) {
  Add(1), Add(2), Add(3);
  ASSERT_TRUE(Open(2));
  Pass(kLeaseMs * 2);
  EXPECT_THAT(Take(1), ElementsAre(1));
  std::vector<Ino> others{2, 77};
  EXPECT_FALSE(residents_.TakeWith(1, &others));
  // It stands aside for a while, so that others get their turn.
  EXPECT_THAT(Take(9), ElementsAre(3));
  residents_.Release(3);
  residents_.Close(2);
  Pass(kLeaseMs * 2);
  EXPECT_THAT(Take(1), ElementsAre(1));
  others = {2, 77};
  EXPECT_TRUE(residents_.TakeWith(1, &others));
  EXPECT_THAT(others, ElementsAre(2)) << "77 is no resident block";
  EXPECT_THAT(Take(9), ElementsAre(3));
}

TEST_F(ResidentsTest, ProbingOneOfAGroupDelaysTheOthersByOneLeaseAtMost) {
  Add(1), Add(2);
  EXPECT_EQ(residents_.Touch(2), Probe::kLeased);
  EXPECT_THAT(Take(1), ElementsAre(1));
  std::vector<Ino> others{2};
  EXPECT_FALSE(residents_.TakeWith(1, &others));
  for (int i = 0; i < 3; ++i) {
    Pass(kLeaseMs / 2);
    (void)residents_.Touch(2);
    (void)residents_.Touch(1);
  }
  EXPECT_THAT(Take(1), ElementsAre(1));
  EXPECT_TRUE(residents_.TakeWith(1, &others));
}

TEST_F(ResidentsTest, AVictimIsPutOffOnceBetweenTwoOpens) {
  Add(1), Add(2);
  EXPECT_THAT(Take(1), ElementsAre(1));
  EXPECT_TRUE(residents_.PutOff(1));
  EXPECT_THAT(Take(2), ElementsAre(2, 1));
  EXPECT_FALSE(residents_.PutOff(1));
  residents_.Release(1);
  ASSERT_TRUE(Open(1));
  residents_.Close(1);
  Pass(kLeaseMs * 2);
  EXPECT_THAT(Take(2), ElementsAre(1));
  EXPECT_TRUE(residents_.PutOff(1));
}

}  // namespace
}  // namespace prefixfs
