// Counters: what the cache did, for stats and metrics. Relaxed atomics; readers see each by itself.
#pragma once

#include <atomic>
#include <cstdint>

namespace prefixfs {

struct Counters {
  using Count = std::atomic<uint64_t>;
  Count opens{0};            // opens of existing files
  Count hits{0}, misses{0};  // lookups of names that were, or were not, there
  Count evicted_blocks{0}, evicted_bytes{0};
  Count corrupt_blocks{0};
  Count verified_blocks{0};   // compared with their checksum at an open
  Count checksum_reread{0};   // bytes read from a drive for a first checksum: not in the page cache
  Count orphans{0};           // removed from under a temporary name
  Count suspected_blocks{0};  // unlinked by a process that had just read them
  Count published{0}, torn{0}, versions{0};
  Count reaped_directories{0};
  Count no_space{0};
  Count no_descriptors{0};
  Count undeletable_blocks{0};
  Count slow_requests{0};  // beyond `request_limit`
  Count late_requests{0};  // answered at their deadline, before what they asked for was done
};

}  // namespace prefixfs
