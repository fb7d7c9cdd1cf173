#include "cache/policy/lru.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>

namespace prefixfs {
namespace {

using Key = EvictionPolicy::Key;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Key> Victims(
    EvictionPolicy& policy, size_t max, size_t max_scan = SIZE_MAX,
    const std::function<bool(Key)>& eligible = [](Key) { return true; }) {
  std::vector<Key> out;
  policy.Victims(eligible, max, max_scan, &out);
  return out;
}

TEST(LruTest, GivesUpTheLeastRecentlyInsertedFirst) {
  LruPolicy lru;
  for (const Key key : {7, 3, 9}) lru.Insert(key, 1);
  EXPECT_THAT(Victims(lru, 10), ElementsAre(7, 3, 9));
  EXPECT_THAT(Victims(lru, 2), ElementsAre(7, 3));
  EXPECT_EQ(lru.size(), 3u) << "victims stay until they are removed";
}

TEST(LruTest, TouchMakesABlockTheLastToGo) {
  LruPolicy lru;
  for (const Key key : {1, 2, 3}) lru.Insert(key, 1);
  lru.Touch(1);
  lru.Touch(1);
  EXPECT_THAT(Victims(lru, 10), ElementsAre(2, 3, 1));
}

TEST(LruTest, InsertOfAKnownKeyIsATouch) {
  LruPolicy lru;
  for (const Key key : {1, 2, 1}) lru.Insert(key, 1);
  EXPECT_EQ(lru.size(), 2u);
  EXPECT_THAT(Victims(lru, 10), ElementsAre(2, 1));
}

TEST(LruTest, UnknownKeysAreIgnored) {
  LruPolicy lru;
  lru.Touch(5);
  lru.Remove(5);
  EXPECT_EQ(lru.size(), 0u);
  EXPECT_THAT(Victims(lru, 10), IsEmpty());
}

TEST(LruTest, AppendsToTheCallersList) {
  LruPolicy lru;
  lru.Insert(4, 1);
  std::vector<Key> out = {99};
  lru.Victims([](Key) { return true; }, 1, 1, &out);
  EXPECT_THAT(out, ElementsAre(99, 4));
}

TEST(LruTest, PassesOverIneligibleBlocks) {
  LruPolicy lru;
  for (Key key = 1; key <= 6; ++key) lru.Insert(key, 1);
  EXPECT_THAT(Victims(lru, 2, SIZE_MAX, [](Key key) { return key % 2 == 0; }), ElementsAre(2, 4));
}

TEST(LruTest, LooksAtNoMoreThanMaxScan) {
  LruPolicy lru;
  for (Key key = 1; key <= 100; ++key) lru.Insert(key, 1);
  size_t looked = 0;
  EXPECT_THAT(Victims(lru, 100, 10,
                      [&](Key) {
                        ++looked;
                        return false;
                      }),
              IsEmpty());
  EXPECT_EQ(looked, 10u);
}

TEST(LruTest, ALongRunOfLeasedBlocksDoesNotHideTheRest) {
  LruPolicy lru;
  for (Key key = 1; key <= 25; ++key) lru.Insert(key, 1);
  const auto free = [](Key key) { return key > 22; };
  EXPECT_THAT(Victims(lru, 1, 10, free), IsEmpty());
  lru.Remove(11);  // the block where the scan would go on
  EXPECT_THAT(Victims(lru, 1, 10, free), IsEmpty());
  EXPECT_THAT(Victims(lru, 1, 10, free), ElementsAre(23));
  EXPECT_THAT(Victims(lru, 1, 10), ElementsAre(1))
      << "a fruitful scan starts again at the cold end";
}

TEST(LruTest, AScanThatReachedTheEndStartsAgain) {
  LruPolicy lru;
  for (Key key = 1; key <= 3; ++key) lru.Insert(key, 1);
  EXPECT_THAT(Victims(lru, 1, 10, [](Key) { return false; }), IsEmpty());
  EXPECT_THAT(Victims(lru, 1, 10), ElementsAre(1));
}

// A list and nothing else, to compare with.
struct Model {
  std::list<Key> order;
  void Insert(Key key) {
    order.remove(key);
    order.push_back(key);
  }
  void Touch(Key key) {
    if (std::find(order.begin(), order.end(), key) != order.end()) Insert(key);
  }
};

TEST(LruTest, AgreesWithAPlainListOverRandomOperations) {
  std::mt19937_64 random(20260214);
  LruPolicy lru;
  Model model;
  for (int step = 0; step < 20'000; ++step) {
    // Keys that collide in their low bits as well as sequences.
    const Key key = random() % 2 ? random() % 150 : (random() % 150) << 32;
    switch (random() % 4) {
      case 0:
      case 1:
        lru.Insert(key, 1);
        model.Insert(key);
        break;
      case 2:
        lru.Touch(key);
        model.Touch(key);
        break;
      default:
        lru.Remove(key);
        model.order.remove(key);
    }
    ASSERT_EQ(lru.size(), model.order.size());
    if (step % 100 == 0) {
      ASSERT_EQ(Victims(lru, SIZE_MAX), std::vector<Key>(model.order.begin(), model.order.end()));
    }
  }
}

TEST(LruTest, HoldsAMillionBlocks) {
  LruPolicy lru;
  constexpr Key kBlocks = 1'000'000;
  for (Key key = 0; key < kBlocks; ++key) lru.Insert(key, 1);
  EXPECT_EQ(lru.size(), kBlocks);
  for (Key key = 0; key < kBlocks; key += 2) lru.Remove(key);
  EXPECT_EQ(lru.size(), kBlocks / 2);
  EXPECT_THAT(Victims(lru, 2), ElementsAre(1, 3));
}

TEST(MakePolicyTest, MakesLru) {
  auto policy = MakePolicy("lru");
  ASSERT_TRUE(policy.ok());
  (*policy)->Insert(1, 1);
  EXPECT_EQ((*policy)->size(), 1u);
}

TEST(MakePolicyTest, RefusesAnUnknownNameAndSaysWhichAreKnown) {
  const auto policy = MakePolicy("lfu");
  EXPECT_EQ(policy.status().code(), Code::kInvalid);
  EXPECT_THAT(policy.status().message(), HasSubstr("lfu"));
  EXPECT_THAT(policy.status().message(), HasSubstr("lru"));
}

}  // namespace
}  // namespace prefixfs
