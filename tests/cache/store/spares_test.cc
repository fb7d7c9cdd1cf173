#include "cache/store/spares.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>

#include "cache/store/flow.h"

namespace prefixfs {
namespace {

constexpr int64_t kLongMs = 20'000;

class SparesTest : public ::testing::Test {
 protected:
  Result<SpareFile> Make() {
    if (stuck_.valid()) stuck_.wait();
    if (!failure_.load()) {
      ++made_;
      return SpareFile{RandomBlockId(), {}};
    }
    return Code::kNoSpace;
  }
  std::atomic<int> made_{0}, removed_{0};
  std::atomic<bool> failure_{false};
  std::shared_future<void> stuck_;
  Spares spares_{[this] { return Make(); }, [this](const SpareFile&) { ++removed_; }};
};

TEST_F(SparesTest, WhatIsTakenIsNeverTheSameAndTheRestIsRemoved) {
  spares_.Start();
  std::set<BlockId> blocks;
  for (int i = 0; i < 500; ++i) {
    Result<SpareFile> file = spares_.Take(kLongMs);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(blocks.insert(file->block).second);
  }
  spares_.Stop();
  EXPECT_EQ(made_ - removed_, 500);
  EXPECT_FALSE(spares_.Take().has_value());
}

TEST_F(SparesTest, ADriveThatDoesNotAnswerHoldsNobodyUpForLong) {
  std::promise<void> go;
  stuck_ = go.get_future().share();
  spares_.Start();
  EXPECT_FALSE(spares_.Take().has_value());
  EXPECT_TRUE(spares_.Take(5).status().Is(Code::kTimedOut));
  go.set_value();
  EXPECT_TRUE(spares_.Take(kLongMs).ok()) << "it answers again";
  spares_.Stop();
}

TEST_F(SparesTest, AFailureIsToldAndPasses) {
  failure_ = true;
  spares_.Start();
  EXPECT_TRUE(spares_.Take(kLongMs).status().Is(Code::kNoSpace));
  failure_ = false;
  EXPECT_TRUE(spares_.Take(kLongMs).ok());
  spares_.Stop();
}

TEST(Flow, IsStalledWhileCallsAreUnderWayAndNoneEnds) {
  Flow flow;
  int64_t now = 1'000 * kNsPerMs;
  const auto after = [&](int64_t ms) { return flow.Look(now += ms * kNsPerMs); };
  EXPECT_FALSE(after(0));
  EXPECT_FALSE(after(60'000)) << "it had nothing to do";
  flow.Begin();
  EXPECT_FALSE(after(50));
  EXPECT_TRUE(after(120));
  flow.Begin();
  EXPECT_TRUE(after(10));
  flow.End();
  EXPECT_FALSE(after(10)) << "it answers, if slowly";
  EXPECT_TRUE(after(150)) << "one is left";
  flow.End();
  EXPECT_FALSE(after(10));
  EXPECT_FALSE(after(60'000));
}

}  // namespace
}  // namespace prefixfs
