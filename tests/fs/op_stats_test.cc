#include "fs/op_stats.h"

#include <gtest/gtest.h>

#include <set>

namespace prefixfs {
namespace {

TEST(OpStatsTest, CountsByOperation) {
  OpStats stats;
  stats.Record(Op::kOpen, 1500, false);
  stats.Record(Op::kOpen, 900, true);
  const auto open = stats.Read(Op::kOpen);
  EXPECT_EQ(open.count, 2u);
  EXPECT_EQ(open.errors, 1u);
  EXPECT_EQ(stats.Read(Op::kLookup).count, 0u);
}

TEST(OpStatsTest, BucketHoldsWhatIsAtMostItsLimit) {
  OpStats stats;
  stats.Record(Op::kOpen, 1000, false);  // exactly 1 us
  stats.Record(Op::kOpen, 1001, false);
  stats.Record(Op::kOpen, 4'000, false);
  stats.Record(Op::kOpen, 4'001, false);
  const auto open = stats.Read(Op::kOpen);
  EXPECT_EQ(open.buckets[0], 1u);
  EXPECT_EQ(open.buckets[1], 1u);
  EXPECT_EQ(open.buckets[2], 1u);
  EXPECT_EQ(open.buckets[3], 1u);
}

TEST(OpStatsTest, PercentilesAreBucketLimits) {
  OpStats stats;
  for (int i = 0; i < 99; ++i) stats.Record(Op::kOpen, 3'000, false);
  stats.Record(Op::kOpen, 900'000, false);
  const auto open = stats.Read(Op::kOpen);
  EXPECT_EQ(open.PercentileUs(0.50), 4u);
  EXPECT_EQ(open.PercentileUs(0.99), 1024u);
  EXPECT_EQ(open.max_us, 900u);
}

TEST(OpStatsTest, EveryOperationHasItsOwnName) {
  std::set<std::string_view> names;
  for (int i = 0; i < static_cast<int>(Op::kCount); ++i) names.insert(OpName(static_cast<Op>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(Op::kCount));
}

}  // namespace
}  // namespace prefixfs
