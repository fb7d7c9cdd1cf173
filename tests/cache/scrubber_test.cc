#include "cache/scrubber.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "cache/base/clock.h"

namespace prefixfs {
namespace {

class ScrubberTest : public ::testing::Test {
 protected:
  // Blocks 1 to 10, three a piece.
  Scrubber::Store Store(uint64_t block_bytes) {
    return {[](Ino after) {
              std::vector<Ino> next;
              for (Ino ino = after + 1; ino <= 10 && next.size() < 3; ++ino) next.push_back(ino);
              return next;
            },
            [this, block_bytes](Ino ino) {
              MutexLock lock(mutex_);
              checked_.push_back(ino);
              return block_bytes;
            },
            [this] { return busy_ ? ++activity_ : activity_.load(); }};
  }
  size_t checked() {
    MutexLock lock(mutex_);
    return checked_.size();
  }

  Mutex mutex_;
  std::vector<Ino> checked_;
  std::atomic<bool> busy_{false};
  std::atomic<uint64_t> activity_{0};
};

TEST_F(ScrubberTest, APassMeetsEveryBlockOnceInOrder) {
  Scrubber scrubber({1ull << 40, 1}, Store(100));
  scrubber.Start();
  while (scrubber.passes() < 2) ::usleep(100);
  scrubber.Stop();
  checked_.resize(20);
  EXPECT_THAT(checked_,
              ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(scrubber.bytes(), scrubber.blocks() * 100);
}

TEST_F(ScrubberTest, TheRateIsASixteenthWhileEnginesWork) {
  busy_ = true;
  // At full rate a block takes 1 ms, and all ten 10.
  Scrubber scrubber({1'000'000, 1}, Store(1000));
  const int64_t start_ns = Clock::Real().MonotonicNs();
  scrubber.Start();
  while (scrubber.passes() < 1) ::usleep(100);
  const int64_t took_ns = Clock::Real().MonotonicNs() - start_ns;
  scrubber.Stop();
  EXPECT_GE(took_ns, 10 * 16 * kNsPerMs);
}

TEST_F(ScrubberTest, ItIsOffAtRateZeroAndStopsInTheMidstOfALongWait) {
  Scrubber off({0, 1}, Store(100));
  off.Start();
  ::usleep(20'000);
  off.Stop();
  EXPECT_EQ(checked(), 0u);
  Scrubber slow({1, 1}, Store(1'000'000));
  slow.Start();
  while (checked() == 0) ::usleep(100);
  slow.Stop();
  EXPECT_EQ(slow.passes(), 0u);
}

}  // namespace
}  // namespace prefixfs
