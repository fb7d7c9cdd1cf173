// What statistics and `locate` are made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/index/record.h"

namespace prefixfs {

// Where a file is, and what its name says.
struct BlockLocation {
  std::string path, drive, state, profile, hash, model;
  Inode inode;
};

// What the cache holds at a moment, for stats and metrics; what it did is in counters.h.
struct CacheReport {
  uint64_t capacity = 0, used = 0, reserved = 0, blocks = 0, unchecked = 0, unverified = 0;
  uint64_t inodes = 0, max_inodes = 0;
  uint64_t quarantined_blocks = 0, quarantined_bytes = 0;
  uint64_t scrubbed_blocks = 0, scrubbed_bytes = 0, scrub_passes = 0;
  bool index_rebuilt = false;
  struct ModelUse {
    std::string model;
    uint64_t blocks = 0, bytes = 0;
    std::vector<Ino> directories = {};  // some of those with its blocks
  };
  struct DriveUse {
    std::string path, uuid;
    unsigned slot = 0;
    bool failed = false, stalled = false;
    uint64_t total = 0, free = 0;
  };
  std::vector<ModelUse> models;
  std::vector<DriveUse> drives;
};

}  // namespace prefixfs
