// Rebuild: makes a fresh index from what the drives carry: records of directories and links,
// headers of blocks.
#pragma once

#include <cstdint>

#include "cache/base/status.h"
#include "cache/index/index.h"
#include "cache/naming/naming.h"
#include "cache/store/drive_set.h"

namespace prefixfs {

struct RebuildTally {
  uint64_t records = 0;  // directories, symlinks, special files
  uint64_t blocks = 0;   // kept; visible at once, their checksum is checked at first open
  uint64_t dropped =
      0;  // without a checksum, of the wrong size, without a directory, or replaced by a newer one
  bool complete = true;  // false: a drive failed, and what it has is not in the index
};

// `index` holds only the root. Drops what cannot be trusted: a block is whole or absent. Fails, and
// drops nothing for it, if a file could not be looked at for want of something else (descriptors,
// memory). One thread.
Result<RebuildTally> RebuildIndex(Index& index, DriveSet& drives, const Naming& naming);

}  // namespace prefixfs
