#include "cache/budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace prefixfs {
namespace {

class BudgetTest : public ::testing::Test {
 protected:
  std::atomic<int> pressure_{0};
  Budget budget_{{1000, 900, 800}, [this] { ++pressure_; }};
};

TEST_F(BudgetTest, GrantsUpToTheCapacityAndNoFurther) {
  EXPECT_TRUE(budget_.TryReserve(600).ok());
  EXPECT_TRUE(budget_.TryReserve(400).ok());
  EXPECT_TRUE(budget_.TryReserve(1).Is(Code::kRejected));
}

TEST_F(BudgetTest, WhatCanNeverFitIsNoSpaceAtOnce) {
  EXPECT_TRUE(budget_.TryReserve(1001).Is(Code::kNoSpace));
}

TEST_F(BudgetTest, WrittenBytesTakeThePlaceOfPromisedOnes) {
  ASSERT_TRUE(budget_.TryReserve(600).ok());
  budget_.Account(250, 250);
  EXPECT_EQ(budget_.used(), 250u);
  EXPECT_EQ(budget_.reserved(), 350u);
}

TEST_F(BudgetTest, PressureStartsAboveTheHighWatermark) {
  ASSERT_TRUE(budget_.TryReserve(900).ok());
  EXPECT_EQ(pressure_, 0);
  ASSERT_TRUE(budget_.TryReserve(1).ok());
  EXPECT_EQ(pressure_, 1);
}

TEST_F(BudgetTest, EvictionRunsDownToTheLowWatermark) {
  budget_.Account(901, 0);
  EXPECT_EQ(budget_.Wanted(), 101u);
  budget_.Account(-50, 0);
  EXPECT_EQ(budget_.Wanted(), 51u);
  budget_.Account(-51, 0);
  EXPECT_EQ(budget_.Wanted(), 0u);
  budget_.Account(50, 0);  // between the marks, and not on the way down
  EXPECT_EQ(budget_.Wanted(), 0u);
}

TEST_F(BudgetTest, WaiterIsGrantedWhenRoomIsMade) {
  budget_.Account(1000, 0);
  std::thread evictor([this] {
    while (pressure_ < 2) std::this_thread::yield();
    EXPECT_GE(budget_.Wanted(), 200u);
    budget_.Account(-300, 0);
  });
  EXPECT_TRUE(budget_.Reserve(200, 60'000).ok());
  evictor.join();
  EXPECT_EQ(budget_.reserved(), 200u);
}

TEST_F(BudgetTest, WaiterFailsAsSoonAsNothingIsEvictable) {
  budget_.Account(1000, 0);
  std::thread evictor([this] {
    while (pressure_ < 2) std::this_thread::yield();
    budget_.NothingEvictable();
  });
  EXPECT_TRUE(budget_.Reserve(200, 60'000).Is(Code::kNoSpace));
  evictor.join();
  EXPECT_EQ(budget_.reserved(), 0u);
  EXPECT_EQ(budget_.Wanted(), 200u);  // only what the watermarks ask for: nobody waits
}

TEST_F(BudgetTest, WaiterGivesUpInTime) {
  budget_.Account(1000, 0);
  EXPECT_TRUE(budget_.Reserve(200, 20).Is(Code::kNoSpace));
}

}  // namespace
}  // namespace prefixfs
