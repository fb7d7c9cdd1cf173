// Clock: the time, injected so that tests can bend it.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace prefixfs {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since the Unix epoch; for what users see.
  virtual int64_t WallNs() const;
  // Nanoseconds on a clock that never steps; for leases and deadlines.
  virtual int64_t MonotonicNs() const;

  static const Clock& Real();
};

inline int64_t Clock::WallNs() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

inline int64_t Clock::MonotonicNs() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline const Clock& Clock::Real() {
  static const Clock clock;
  return clock;
}

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;

// Also of times before 1970, whose nanoseconds still count upwards.
inline timespec ToTimespec(int64_t ns) {
  int64_t seconds = ns / kNsPerSecond;
  int64_t rest = ns % kNsPerSecond;
  if (rest < 0) {
    --seconds;
    rest += kNsPerSecond;
  }
  return {static_cast<time_t>(seconds), static_cast<long>(rest)};
}

}  // namespace prefixfs
