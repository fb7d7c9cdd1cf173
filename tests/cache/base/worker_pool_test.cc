#include "cache/base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

namespace prefixfs {
namespace {

TEST(WorkerPool, RefusesMoreThanItsQueueHolds) {
  std::promise<void> go, begun;
  const auto gone = go.get_future().share();
  WorkerPool pool(1, 1);
  ASSERT_TRUE(pool.Submit([&] {
                    begun.set_value();
                    gone.wait();
                  })
                  .ok());
  begun.get_future().wait();
  EXPECT_TRUE(pool.Submit([] {}).ok());
  EXPECT_TRUE(pool.Submit([] {}).Is(Code::kRejected));
  go.set_value();
}

TEST(WorkerPool, GetsAThreadMoreWhileAllOfItsOwnAreHeldUp) {
  std::promise<void> go, begun, other;
  const auto gone = go.get_future().share();
  WorkerPool pool(1, 16, 2);
  ASSERT_TRUE(pool.Submit([&] {
                    begun.set_value();
                    gone.wait();
                  })
                  .ok());
  begun.get_future().wait();
  ASSERT_TRUE(pool.Submit([&] { other.set_value(); }).ok());
  auto ran = other.get_future();
  pool.Relieve(60'000);  // not for as long as that
  EXPECT_EQ(ran.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  pool.Relieve(0);
  EXPECT_EQ(ran.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  go.set_value();
}

TEST(WorkerPool, GetsNoMoreThreadsThanItMayHave) {
  std::promise<void> go;
  const auto gone = go.get_future().share();
  std::atomic<int> running{0};
  {
    WorkerPool pool(1, 16, 3);
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(pool.Submit([&] {
                        ++running;
                        gone.wait();
                      })
                      .ok());
    }
    for (int i = 0; i < 8; ++i) pool.Relieve(0);
    while (running < 3) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(running, 3);
    go.set_value();
  }
  EXPECT_EQ(running, 8);
}

}  // namespace
}  // namespace prefixfs
