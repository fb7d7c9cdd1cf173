// Catalog: what the index says of every inode, in a fixed number of bytes each, to be held against
// tables and drives. Names stay in the index.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tools/fsck/files.h"
#include "tools/fsck/record.h"

namespace prefixfs::fsck {

struct Entry {
  enum Mark : uint16_t {
    kDentry = 1,    // its entry in dentries was met
    kChild = 2,     // and in children
    kHash = 4,      // and in hashes
    kFile = 8,      // and its backing file
    kCurrent = 16,  // and a file in records/ that says the same
    kOld = 32,      // and one that does not
    kRooted = 64,   // hangs off the root
    kNotRooted = 128,
    kTwice = 256,  // another inode has its backing file
  };
  uint64_t ino = 0, parent = 0;
  uint64_t name_hash = 0;
  uint64_t prefix_hash = 0;  // digest of the hash; 0 if there is none
  uint64_t size = 0;
  Block block{};
  uint16_t drive = 0;
  uint8_t type = 0;  // DT_*
  uint8_t state = 0;
  uint8_t checksum_kind = 0;
  uint16_t marks = 0;

  bool Has(Mark mark) const { return (marks & mark) != 0; }
  void Set(Mark mark) { marks |= mark; }
  bool IsDirectory() const { return type == 4; }
  bool IsFile() const { return type == 8; }
  bool Is(FileState wanted) const { return state == static_cast<uint8_t>(wanted); }
  // May still be in incoming/: the daemon moves it with its checksum.
  bool IsYoung() const { return !Is(FileState::kSealed) || checksum_kind == 0; }
};
static_assert(sizeof(Entry) == 64);

uint64_t DigestOfName(std::string_view name);
Entry EntryOf(const Record& record);

class Catalog {
 public:
  // In the order of inode numbers.
  void Add(const Entry& entry) { entries_.push_back(entry); }
  void AddDamaged(uint64_t ino) { damaged_.insert(ino); }
  // Once all are there.
  void SortBlocks();

  Entry* Find(uint64_t ino);
  Entry* FindBlock(const Block& block);
  bool IsDamaged(uint64_t ino) const { return damaged_.contains(ino); }
  std::vector<Entry>& entries() { return entries_; }
  // Inodes that share a backing file, which nothing can be said of then: all but the first.
  std::vector<uint64_t> MarkBlocksTwice();

 private:
  std::vector<Entry> entries_;
  std::vector<uint32_t> by_block_;  // files only
  std::unordered_set<uint64_t> damaged_;
};

}  // namespace prefixfs::fsck
