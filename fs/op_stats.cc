#include "fs/op_stats.h"

#include <bit>

namespace prefixfs {

std::string_view OpName(Op op) {
  static constexpr std::string_view kNames[] = {
      "lookup",   "forget",    "getattr",     "setattr",    "readlink", "mknod",     "mkdir",
      "symlink",  "unlink",    "rmdir",       "rename",     "link",     "open",      "create",
      "read",     "write",     "flush",       "release",    "fsync",    "fallocate", "lseek",
      "opendir",  "readdir",   "readdirplus", "releasedir", "fsyncdir", "statfs",    "setxattr",
      "getxattr", "listxattr", "removexattr", "ioctl",      "tmpfile",  "statx"};
  static_assert(std::size(kNames) == static_cast<size_t>(Op::kCount));
  return kNames[static_cast<size_t>(op)];
}

void OpStats::Record(Op op, int64_t elapsed_ns, bool error) {
  Cell& cell = cells_[static_cast<size_t>(op)];
  const auto ns = static_cast<uint64_t>(elapsed_ns < 0 ? 0 : elapsed_ns);
  const uint64_t us = ns == 0 ? 0 : (ns - 1) / 1000;
  const size_t bucket = std::min<size_t>(static_cast<size_t>(std::bit_width(us)), kBuckets - 1);
  cell.buckets[bucket].fetch_add(1, std::memory_order_relaxed);
  cell.sum_ns.fetch_add(ns, std::memory_order_relaxed);
  if (error) cell.errors.fetch_add(1, std::memory_order_relaxed);
  uint64_t seen = cell.max_ns.load(std::memory_order_relaxed);
  while (ns > seen && !cell.max_ns.compare_exchange_weak(seen, ns, std::memory_order_relaxed)) {
  }
}

OpStats::Snapshot OpStats::Read(Op op) const {
  const Cell& cell = cells_[static_cast<size_t>(op)];
  Snapshot snapshot;
  for (size_t i = 0; i < kBuckets; ++i) {
    snapshot.buckets[i] = cell.buckets[i].load(std::memory_order_relaxed);
    snapshot.count += snapshot.buckets[i];
  }
  snapshot.errors = cell.errors.load(std::memory_order_relaxed);
  snapshot.sum_us = cell.sum_ns.load(std::memory_order_relaxed) / 1000;
  snapshot.max_us = cell.max_ns.load(std::memory_order_relaxed) / 1000;
  return snapshot;
}

uint64_t OpStats::Snapshot::PercentileUs(double share) const {
  const auto wanted = static_cast<uint64_t>(share * static_cast<double>(count));
  uint64_t below = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    below += buckets[i];
    if (below > wanted) return BucketLimitUs(i);
  }
  return count == 0 ? 0 : BucketLimitUs(kBuckets - 1);
}

}  // namespace prefixfs
