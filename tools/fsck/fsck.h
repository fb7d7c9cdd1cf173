// fsck: an independent check of what is on the drives. It knows docs/DATA_FORMAT.md and shares
// nothing with the daemon but the layout of a record's head; tests/style sees to that. What each
// kind of finding means is in docs/FSCK.md.
//
// Memory: 64 bytes for every inode, 4 for every block, and each finding.
#pragma once

#include <string>
#include <vector>

#include "cache/base/status.h"
#include "tools/fsck/report.h"

namespace prefixfs::fsck {

struct Options {
  std::vector<std::string> drives;  // in the order in which the daemon is given them
  bool repair = false;
  bool checksums = false;  // read every sealed block
};

// Holds the drives' locks meanwhile. kRejected if a daemon has one of them, kDenied without root,
// kInvalid for a directory that is no drive; what is wrong with the data is in the report.
Result<Report> Run(const Options& options);

}  // namespace prefixfs::fsck
