// What the daemon does when memory or descriptors are short: threads that do work outlive it, and
// some descriptors are never given away.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <vector>

#include "cache/base/descriptors.h"
#include "cache/base/memory.h"
#include "cache/base/rarely.h"
#include "cache/base/ticker.h"
#include "cache/base/worker_pool.h"

namespace prefixfs {
namespace {

TEST(MemoryTest, OnlyWorkThatRanOutOfMemoryIsSaidToHaveDoneSo) {
  EXPECT_TRUE(SurvivesNoMemory([] {}));
  EXPECT_FALSE(SurvivesNoMemory([] { throw std::bad_alloc(); }));
  EXPECT_THROW((void)SurvivesNoMemory([] { throw 1; }), int);
}

TEST(MemoryTest, AWorkerGoesOnAfterWorkThatHadNone) {
  std::latch done(1);
  WorkerPool pool(1, 8);
  ASSERT_TRUE(pool.Submit([] { throw std::bad_alloc(); }).ok());
  ASSERT_TRUE(pool.Submit([&] { done.count_down(); }).ok());
  done.wait();
}

TEST(MemoryTest, ATickerGoesOnAfterATickThatHadNone) {
  std::latch done(3);
  std::atomic<int> ticks{0};
  Ticker ticker;
  ticker.Start(1, [&] {
    if (ticks.fetch_add(1) < 3) done.count_down();
    throw std::bad_alloc();
  });
  done.wait();
  ticker.Stop();
  EXPECT_GE(ticks.load(), 3);
}

TEST(DescriptorTest, TheLastOnesAreKept) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{std::min<rlim_t>(before.rlim_max, 100), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Fd> held;
  Status status = Ok();
  while (status.ok() && held.size() < 100) {
    Fd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) break;
    status = LeavesReserve(fd);
    if (status.ok()) held.push_back(std::move(fd));
  }
  EXPECT_EQ(status.code(), Code::kNoDescriptors);
  EXPECT_NE(status.message().find("100"), std::string::npos) << "the limit is named";
  EXPECT_EQ(held.back().get(), 74) << "a quarter of 100 is kept";
  held.pop_back();
  EXPECT_TRUE(LeavesReserve(Fd(open("/dev/null", O_RDONLY | O_CLOEXEC))).ok());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(RarelyTest, IsTrueOnceInAWhile) {
  Rarely rarely;
  EXPECT_TRUE(rarely.Now());
  EXPECT_FALSE(rarely.Now());
}

TEST(ClockTest, TimesBefore1970CountTheirNanosecondsUpwards) {
  const auto is = [](int64_t ns, time_t seconds, long nanoseconds) {
    const timespec time = ToTimespec(ns);
    return time.tv_sec == seconds && time.tv_nsec == nanoseconds;
  };
  EXPECT_TRUE(is(0, 0, 0));
  EXPECT_TRUE(is(1'500'000'000, 1, 500'000'000));
  EXPECT_TRUE(is(-1, -1, 999'999'999));
  EXPECT_TRUE(is(-1'000'000'000, -1, 0));
  EXPECT_TRUE(is(-1'500'000'000, -2, 500'000'000));
  EXPECT_TRUE(is(INT64_MIN, -9'223'372'037, 145'224'192));
}

}  // namespace
}  // namespace prefixfs
