// OpStats: how often each operation came, how it ended and how long it took.
//
// Threads: every call from any thread; relaxed atomics, so a report is a close picture and not a
// snapshot.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace prefixfs {

enum class Op : uint8_t {
  kLookup,
  kForget,
  kGetattr,
  kSetattr,
  kReadlink,
  kMknod,
  kMkdir,
  kSymlink,
  kUnlink,
  kRmdir,
  kRename,
  kLink,
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kFlush,
  kRelease,
  kFsync,
  kFallocate,
  kLseek,
  kOpendir,
  kReaddir,
  kReaddirplus,
  kReleasedir,
  kFsyncdir,
  kStatfs,
  kSetxattr,
  kGetxattr,
  kListxattr,
  kRemovexattr,
  kIoctl,
  kTmpfile,
  kStatx,
  kCount
};

std::string_view OpName(Op op);

class OpStats {
 public:
  // Bucket i counts what took at most 2^i microseconds, the last one everything longer.
  static constexpr size_t kBuckets = 24;
  static uint64_t BucketLimitUs(size_t bucket) { return uint64_t{1} << bucket; }

  void Record(Op op, int64_t elapsed_ns, bool error);

  struct Snapshot {
    uint64_t count = 0, errors = 0, sum_us = 0, max_us = 0;
    std::array<uint64_t, kBuckets> buckets{};
    // Upper limit of the bucket in which that share of the calls lies.
    uint64_t PercentileUs(double share) const;
  };
  Snapshot Read(Op op) const;

 private:
  struct Cell {
    std::atomic<uint64_t> errors{0}, sum_ns{0}, max_ns{0};
    std::array<std::atomic<uint64_t>, kBuckets> buckets{};
  };
  std::array<Cell, static_cast<size_t>(Op::kCount)> cells_;
};

}  // namespace prefixfs
