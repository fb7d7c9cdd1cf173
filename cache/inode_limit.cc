// The inode limit: a create, version or mkdir beyond `max_inodes` takes the place of the coldest
// blocks.
#include <spdlog/spdlog.h>

#include <chrono>
#include <thread>

#include "cache/cache.h"

namespace prefixfs {
namespace {
constexpr size_t kEvictedAtOnce = 16;  // in one commit; the creates that follow find room
constexpr int kFruitless = 4;          // batches in a row that freed nothing
constexpr int64_t kLogEveryNs = 60 * kNsPerSecond;
}  // namespace

// kRejected if it would have to wait and may not.
Result<InodeClaim> Cache::ClaimInode(bool may_wait) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(config_.space_wait_ms);
  int fruitless = 0;
  for (;;) {
    if (inodes_.TryAdd()) return InodeClaim(&inodes_);
    if (!may_wait) return Code::kRejected;  // removing a block takes a commit, and its drive
    const Waiting waiting(Wait::kSpace);
    bool leased_ahead = false;
    const auto victims = residents_->TakeVictims(kEvictedAtOnce, -1, &leased_ahead);
    if (!victims.empty() && fruitless < kFruitless) {
      const uint64_t before = inodes_.used();
      (void)EvictBatch(victims);
      fruitless = inodes_.used() < before ? 0 : fruitless + 1;
      continue;
    }
    for (const auto& victim : victims) residents_->Release(victim.ino);
    if (!leased_ahead || std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  counters_.no_space.fetch_add(1, std::memory_order_relaxed);
  LogInodeLimit();
  return Status(Code::kNoSpace, "max_inodes is reached and nothing can be evicted");
}

void Cache::LogInodeLimit() {
  const int64_t now = clock_.MonotonicNs();
  int64_t last = inode_limit_logged_ns_.load(std::memory_order_relaxed);
  if (last != 0 && now - last < kLogEveryNs) return;
  if (!inode_limit_logged_ns_.compare_exchange_strong(last, now)) return;
  spdlog::warn(
      "no space for new names: max_inodes = {} is reached, and of {} blocks none can be evicted "
      "(open or leased); directories and links are never evicted",
      inodes_.most(), residents_->count());
}

}  // namespace prefixfs
