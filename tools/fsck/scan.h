// Scan: what the parts of one check share.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tools/fsck/catalog.h"
#include "tools/fsck/drive.h"
#include "tools/fsck/report.h"
#include "tools/fsck/snapshot.h"

namespace prefixfs::fsck {

struct Scan {
  explicit Scan(Report& to) : report(to) {}

  Report& report;
  bool checksums = false;
  std::vector<Drive> drives;
  Fd index_directory, index_lock;      // of the first drive
  std::unique_ptr<Snapshot> snapshot;  // null if the next start makes the index anew
  bool in_use = false;                 // the daemon was killed, in this boot
  Catalog catalog;                     // empty without a snapshot
  std::set<std::pair<uint16_t, Block>> trash;
  // Without a snapshot: what hangs off the root by the files in records/, as a rebuild would find
  // it.
  std::unordered_set<uint64_t> directories;
  std::set<uint64_t> dropped;  // numbers of blocks whose header has been met, without a snapshot

  // What a kill between a commit and the write that follows it leaves. The index has it right.
  Severity lag() const { return in_use ? Severity::kInfo : Severity::kError; }
  const Drive* FindSlot(uint16_t slot) const {
    for (const Drive& drive : drives) {
      if (drive.usable && drive.file.slot == slot) return &drive;
    }
    return nullptr;
  }
  // Slots that the pool has given, and whether a drive of each is here.
  uint32_t slots() const {
    uint32_t given = 0;
    for (const Drive& drive : drives) given = std::max(given, drive.file.slots);
    return given;
  }
  bool is_whole_pool() const {
    for (uint32_t slot = 0; slot < slots(); ++slot) {
      if (FindSlot(static_cast<uint16_t>(slot)) == nullptr) return false;
    }
    return true;
  }
  // Of an inode: empty if there is none, or its record is damaged. The texts last as the snapshot.
  std::string_view RecordBytes(uint64_t ino) const;
  // "model/block (inode 5)"-like path from the root, as far as it can be told.
  std::string PathOf(uint64_t ino) const;

  // A finding of the index, and so mended by making it anew.
  void AddToIndex(Kind kind, uint64_t ino, std::string what);
};

// STATE and data.mdb; opens the snapshot if the daemon would use the index as it is.
Status OpenIndex(Scan& scan);
// The tables, against each other. Fills the catalog.
void CheckTables(Scan& scan);
// That every inode hangs off the root.
void CheckTree(Scan& scan);
// blocks/, incoming/, quarantine/, and what else is on the drives.
Status CheckFiles(Scan& scan);
// records/.
Status CheckRecords(Scan& scan);
// Does what the findings ask for.
void Repair(Scan& scan);

}  // namespace prefixfs::fsck
