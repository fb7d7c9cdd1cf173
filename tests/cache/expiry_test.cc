#include "cache/expiry.h"

#include <gmock/gmock.h>

namespace prefixfs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Expiry, GivesOutWhatHasRunOutOnceInOrder) {
  Expiry expiry;
  expiry.Set(7, 30);
  expiry.Set(8, 10);
  expiry.Set(9, 20);
  EXPECT_THAT(expiry.TakeExpired(9), IsEmpty());
  EXPECT_THAT(expiry.TakeExpired(20), ElementsAre(8, 9));
  EXPECT_THAT(expiry.TakeExpired(20), IsEmpty());
  EXPECT_EQ(expiry.UntilOf(7), 30);
  EXPECT_EQ(expiry.UntilOf(8), std::nullopt);
  EXPECT_EQ(expiry.size(), 1u);
}

TEST(Expiry, TheLastWordCounts) {
  Expiry expiry;
  expiry.Set(7, 10);
  expiry.Set(7, 30);
  expiry.Set(8, 30);
  expiry.Set(8, 10);
  EXPECT_THAT(expiry.TakeExpired(20), ElementsAre(8));
  EXPECT_THAT(expiry.TakeExpired(30), ElementsAre(7));
  expiry.Set(7, 40);  // and again after it had run out
  EXPECT_THAT(expiry.TakeExpired(40), ElementsAre(7));
}

TEST(Expiry, SettingTheSameTimeAgainGivesItOutOnce) {
  Expiry expiry;
  expiry.Set(7, 10);
  expiry.Set(7, 20);
  expiry.Set(7, 10);
  EXPECT_THAT(expiry.TakeExpired(30), ElementsAre(7));
}

TEST(Expiry, RenewingAllTheTimeHoldsLongEnoughAndQueuesLittle) {
  Expiry expiry;
  for (int64_t now = 0; now < 1000; ++now) {
    expiry.Renew(7, now + 100, 50);
    ASSERT_GE(*expiry.UntilOf(7), now + 100);
    ASSERT_LE(*expiry.UntilOf(7), now + 150);
    ASSERT_THAT(expiry.TakeExpired(now), IsEmpty());
    ASSERT_LE(expiry.queued(), 4u);
  }
}

}  // namespace
}  // namespace prefixfs
