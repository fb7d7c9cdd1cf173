#include "fs/nodes.h"

#include <gmock/gmock.h>

#include <vector>

namespace prefixfs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class NodesTest : public ::testing::Test {
 protected:
  int Open(Ino ino, bool allowed = true, bool writable = false) {
    return nodes_.Acquire(ino, allowed, writable, [this] { return next_id_++; });
  }
  std::vector<int> closed_;
  int next_id_ = 1;
  Nodes nodes_{2, [this](int id) { closed_.push_back(id); }};
};

TEST_F(NodesTest, SecondOpenSharesTheBackingId) {
  EXPECT_EQ(Open(7), 1);
  EXPECT_EQ(Open(7), 1);
  EXPECT_EQ(next_id_, 2);
}

TEST_F(NodesTest, IdOutlivesTheLastHandle) {
  Open(7);
  nodes_.Release(7);
  EXPECT_THAT(closed_, IsEmpty());
  EXPECT_EQ(Open(7), 1);
}

TEST_F(NodesTest, CountsTheIdsThatTheKernelHas) {
  EXPECT_EQ(nodes_.registered(), 0u);
  Open(7);
  Open(8);
  Open(9, false);
  EXPECT_EQ(nodes_.registered(), 2u);
  nodes_.Release(7);
  EXPECT_EQ(nodes_.registered(), 2u);
  nodes_.Drop(7);
  EXPECT_EQ(nodes_.registered(), 1u);
}

TEST_F(NodesTest, WritableIdIsGivenUpWithTheLastHandle) {
  Open(7, true, true);
  Open(7);
  nodes_.Release(7);
  EXPECT_THAT(closed_, IsEmpty());
  nodes_.Release(7);
  EXPECT_THAT(closed_, ElementsAre(1));
  EXPECT_EQ(Open(7), 2);
}

TEST_F(NodesTest, ServedHandlesKeepLaterOnesServed) {
  EXPECT_EQ(Open(7, false), Nodes::kServed);
  EXPECT_EQ(Open(7, true), Nodes::kServed);
  nodes_.Release(7);
  nodes_.Release(7);
  EXPECT_EQ(Open(7, true), 1);
}

TEST_F(NodesTest, FailedRegistrationIsServed) {
  EXPECT_EQ(nodes_.Acquire(7, true, false, [] { return 0; }), Nodes::kServed);
  EXPECT_EQ(Open(7), Nodes::kServed);
}

TEST_F(NodesTest, RaceOfTwoFirstOpensKeepsOneId) {
  const int outer = nodes_.Acquire(7, true, false, [this] {
    EXPECT_EQ(Open(7), 1);  // somebody else registers meanwhile
    return 99;
  });
  EXPECT_EQ(outer, 1);
  EXPECT_THAT(closed_, ElementsAre(99));
}

TEST_F(NodesTest, DropClosesIdleIdsAtOnceAndBusyOnesAtTheEnd) {
  Open(7);
  nodes_.Drop(7);
  EXPECT_THAT(closed_, IsEmpty());
  nodes_.Release(7);
  EXPECT_THAT(closed_, ElementsAre(1));
  Open(8);
  nodes_.Release(8);
  nodes_.Drop(8);
  EXPECT_THAT(closed_, ElementsAre(1, 2));
}

TEST_F(NodesTest, IdleIdsAreBoundedOldestFirst) {
  for (Ino ino = 1; ino <= 3; ++ino) {
    Open(ino);
    nodes_.Release(ino);
  }
  EXPECT_THAT(closed_, ElementsAre(1));
}

}  // namespace
}  // namespace prefixfs
