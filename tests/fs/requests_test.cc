#include "fs/requests.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace prefixfs {
namespace {

TEST(Requests, TellsThoseUnderWayOldestFirst) {
  Requests requests;
  const RequestSlot young(requests.Begin(Op::kOpen, 7, 100, 1000, 2'000));
  {
    const RequestSlot over(requests.Begin(Op::kRead, 8, 101, 1001, 500));
    EXPECT_EQ(requests.All().size(), 2u);
  }
  const RequestSlot old(requests.Begin(Op::kCreate, 9, 102, 1002, 1'000));
  const auto all = requests.All();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].op, Op::kCreate);
  EXPECT_EQ(all[1].op, Op::kOpen);
  EXPECT_EQ(all[1].ino, 7u);
  EXPECT_EQ(all[1].tid, 100);
  EXPECT_EQ(all[1].uid, 1000u);
  EXPECT_EQ(all[1].start_ns, 2'000);
  EXPECT_NE(all[0].id, all[1].id);
}

TEST(Requests, ASlotThatIsUsedAgainIsAnotherRequest) {
  Requests requests;
  RequestSlot slot(requests.Begin(Op::kOpen, 1, 1, 1, 10));
  const uint64_t before = requests.All().at(0).id;
  { const RequestSlot gone(std::move(slot)); }
  EXPECT_TRUE(requests.All().empty());
  const RequestSlot again(requests.Begin(Op::kOpen, 1, 1, 1, 10));
  EXPECT_NE(requests.All().at(0).id, before);
}

TEST(Requests, SaysWhatTheThreadThatWorksForItWaitsFor) {
  Requests requests;
  const RequestSlot slot(requests.Begin(Op::kOpen, 1, 1, 1, 10));
  const auto waits_for = [&] { return requests.All().at(0).wait; };
  std::thread([&] {
    const Waiting unheard(Wait::kSpace);  // works for nobody yet
    EXPECT_EQ(waits_for(), Wait::kNothing);
    const WorksFor works(slot.mark());
    const Waiting outer(Wait::kChecksum);
    EXPECT_EQ(waits_for(), Wait::kChecksum);
    {
      const Waiting inner(Wait::kOpen, 3);
      EXPECT_EQ(waits_for(), Wait::kOpen);
      EXPECT_EQ(requests.All().at(0).drive, 3);
    }
    EXPECT_EQ(waits_for(), Wait::kChecksum);
  }).join();
  EXPECT_EQ(waits_for(), Wait::kNothing);
}

TEST(Requests, MoreThanThereAreSlotsAreCountedAndNothingElse) {
  Requests requests;
  std::vector<RequestSlot> slots;
  for (size_t i = 0; i < Requests::kSlots + 3; ++i)
    slots.emplace_back(requests.Begin(Op::kOpen, i, 1, 1, 10));
  EXPECT_EQ(requests.All().size(), Requests::kSlots);
  EXPECT_EQ(requests.untracked(), 3u);
  EXPECT_EQ(slots.back().mark(), nullptr);
}

// Every picture is of whole requests: each field of one is made from its number.
TEST(Requests, APictureTakenUnderLoadHasNoRequestThatIsMadeOfTwo) {
  Requests requests;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (pid_t thread = 1; thread <= 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t i = 1; !stop; ++i) {
        const auto number = static_cast<uint32_t>(i * 8 + thread);
        const RequestSlot slot(requests.Begin(Op::kOpen, number, static_cast<pid_t>(number), number,
                                              static_cast<int64_t>(number)));
        for (volatile int at = 0; at < 300;) at = at + 1;
      }
    });
  }
  size_t seen = 0;
  for (int i = 0; i < 100'000 && seen < 2000; ++i) {
    for (const auto& request : requests.All()) {
      ++seen;
      ASSERT_EQ(request.ino, static_cast<Ino>(request.start_ns));
      ASSERT_EQ(request.uid, request.ino);
      ASSERT_EQ(static_cast<Ino>(request.tid), request.ino);
    }
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace prefixfs
