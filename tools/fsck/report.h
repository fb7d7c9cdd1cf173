// Report: what was found, and what is to be done about each. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/fsck/kinds.h"

namespace prefixfs::fsck {

// What --repair does about a finding. Nothing here makes up bytes: what cannot be trusted is put
// aside, and the index made anew from the rest.
enum class Remedy : uint8_t {
  kNone,            // nothing that a program should do
  kRebuildIndex,    // the index is removed: the next start makes it from the drives
  kQuarantine,      // the file goes to quarantine/
  kMove,            // the file goes where it belongs
  kRemove,          // the file is removed
  kWriteHeader,     // the header is written from the index, if the content is that of the index
  kWriteRecord,     // the file in records/ is written from the index
  kRestrictAccess,  // owner and mode as the daemon makes them
  kNewDriveFile,    // the drive joins the pool anew, and the index is removed
};

struct Finding {
  Kind kind = Kind::kCount;
  Severity severity = Severity::kError;
  int drive = -1;         // in the order of the command line; -1 is the index
  std::string path = {};  // below the drive, as it is on the disk
  uint64_t ino = 0;       // 0 if it is of no inode
  std::string what = {};  // may hold any bytes
  Remedy remedy = Remedy::kNone;
  std::string target = {};   // kMove: where to, below the drive
  bool drops_index = false;  // besides the remedy
  bool done = false;         // repaired
  std::string failure = {};  // why the repair failed
};

struct Report {
  std::vector<std::string> drives;  // paths as given
  std::vector<Finding> findings;
  std::array<uint64_t, static_cast<size_t>(Kind::kCount)> counts{};
  uint64_t inodes = 0, blocks = 0, records = 0, checked_bytes = 0;
  bool repaired = false;  // repairs were asked for

  Finding& Add(Finding finding);
  uint64_t errors() const;
  uint64_t errors_left() const;  // not repaired
  uint64_t Count(Kind kind) const { return counts[static_cast<size_t>(kind)]; }
  // What the index needs is that it goes.
  bool drops_index() const;
  int ExitCode() const;
  // Where a finding is, for people: control bytes escaped.
  std::string Where(const Finding& finding) const;
};

constexpr int kExitClean = 0;
constexpr int kExitRepaired = 1;
constexpr int kExitErrorsLeft = 4;
constexpr int kExitFailedToRun = 8;
constexpr int kExitWrongUsage = 16;

// Bytes that a terminal could act upon, and backslashes, as \xNN.
std::string Escape(std::string_view text);

void PrintHuman(const Report& report);
void PrintJson(const Report& report);

}  // namespace prefixfs::fsck
