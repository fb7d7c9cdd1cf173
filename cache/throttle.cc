// Throttle: what is done about writers that take far more than they were promised.
//
// Under passthrough a write cannot be held back. Where one goes far beyond its promise while space
// is short, others of its kind will follow, so for a while the new files of its namespace are
// served by the daemon, where a write can wait.
#include <algorithm>

#include "cache/cache.h"

namespace prefixfs {
namespace {
constexpr uint64_t kFarBeyond = 2;   // times what was promised
constexpr uint64_t kStep = 4 << 20;  // reserved at once, so that not every write asks
constexpr int64_t kThrottleNs = 10 * kNsPerSecond;
}  // namespace

bool Cache::IsFarBeyond(const File& file, uint64_t allocated) {
  return !file.posix() && !file.served && file.promised > 0 &&
         allocated > kFarBeyond * file.promised;
}

void Cache::Throttle(Ino parent) {
  const Ino space = NamespaceOf(parent);
  const int64_t until = clock_.MonotonicNs() + kThrottleNs;
  MutexLock lock(side_mutex_);
  throttled_[space] = until;
  any_throttled_.store(true, std::memory_order_release);
}

bool Cache::IsThrottled(Ino parent) {
  if (!any_throttled_.load(std::memory_order_acquire)) return false;
  const Ino space = NamespaceOf(parent);
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(side_mutex_);
  std::erase_if(throttled_, [now](const auto& item) { return item.second < now; });
  any_throttled_.store(!throttled_.empty(), std::memory_order_release);
  return throttled_.contains(space);
}

Status Cache::MakeRoom(File& file, uint64_t bytes, bool may_wait) {
  uint64_t missing = 0;
  {
    MutexLock lock(open_.mutex);
    if (file.written + bytes > file.promised) missing = file.written + bytes - file.promised;
  }
  return missing == 0 ? Ok() : ReserveFor(file, std::max(missing, kStep), may_wait);
}

}  // namespace prefixfs
