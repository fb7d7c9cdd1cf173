// Expiry: numbers that each hold until a time of their own. What has run out is found without
// looking at the rest, so a million of them cost no more a tick than the few that run out.
//
// Not synchronised: the caller has a lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/index/record.h"

namespace prefixfs {

class Expiry {
 public:
  // From now on `ino` holds until `until`, whatever was said before.
  void Set(Ino ino, int64_t until) {
    auto [it, added] = untils_.try_emplace(ino, until);
    if (!added && std::exchange(it->second, until) == until) return;
    queue_.emplace(until, ino);
  }
  // Like Set, but may hold up to `slack` longer, so that a number that is renewed all the time is
  // not queued each time.
  void Renew(Ino ino, int64_t until, int64_t slack) {
    auto it = untils_.find(ino);
    if (it == untils_.end() || it->second < until) Set(ino, until + slack);
  }
  // Nothing if it does not hold, or has been given out by TakeExpired.
  std::optional<int64_t> UntilOf(Ino ino) const {
    auto it = untils_.find(ino);
    if (it == untils_.end()) return std::nullopt;
    return it->second;
  }
  // Those that hold until `now` or less; they are forgotten.
  std::vector<Ino> TakeExpired(int64_t now) {
    std::vector<Ino> expired;
    for (; !queue_.empty() && queue_.top().first <= now; queue_.pop()) {
      const auto [until, ino] = queue_.top();
      auto it = untils_.find(ino);
      // Otherwise it was set anew since, and stands further behind.
      if (it == untils_.end() || it->second != until) continue;
      untils_.erase(it);
      expired.push_back(ino);
    }
    return expired;
  }
  // It does not hold any more, and is not given out.
  bool Drop(Ino ino) { return untils_.erase(ino) > 0; }
  size_t size() const { return untils_.size(); }
  size_t queued() const { return queue_.size(); }

 private:
  using Turn = std::pair<int64_t, Ino>;
  // Every number of untils_ is queued with that time; the queue may have more.
  std::unordered_map<Ino, int64_t> untils_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> queue_;
};

}  // namespace prefixfs
