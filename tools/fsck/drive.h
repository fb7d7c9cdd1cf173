// Drives: opening and locking the directories that were given, what PREFIXFS says about them, and
// who may get at them.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cache/base/fd.h"
#include "cache/base/status.h"
#include "tools/fsck/report.h"

namespace prefixfs::fsck {

struct DriveFile {
  std::string uuid, pool;  // pool: empty while the drive is in none
  int slot = -1;           // -1: none yet
  uint32_t slots = 0;      // that the pool has given so far
};

struct Drive {
  std::string path;
  int number = 0;      // in the order given
  Fd root, lock;       // DIR and PREFIXFS, both locked
  bool usable = true;  // false: it is of another pool, and only reported
  DriveFile file;
};

// Why the text is no PREFIXFS; empty if it is one.
std::string ReadDriveFile(const std::string& text, DriveFile* file);
// The text of a drive that is in no pool yet, with a new uuid.
std::string NewDriveFile();

// Opens and locks. kRejected if a daemon has one of them; kInvalid for what is no drive; what is
// wrong inside goes into the report.
Result<std::vector<Drive>> OpenDrives(const std::vector<std::string>& paths, Report& report);

// Adds a finding if others than root may change what `path` names, or look into one of our own
// directories. `own_mode`: what the daemon gives it; 0 for a directory that the operator made.
void CheckAccess(const Drive& drive, const std::string& path, const struct stat& st,
                 uint32_t own_mode, Report& report);

}  // namespace prefixfs::fsck
