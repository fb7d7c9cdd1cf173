#include "cache/index/table_check.h"

#include <xxhash.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cache/index/lmdb_env.h"

namespace prefixfs {
namespace {

Status Bad(Ino ino, std::string_view what) {
  return {Code::kCorrupt, "inode " + std::to_string(ino) + ": " + std::string(what)};
}

// A set of entries, as the sum of their hashes (Bellare and Micciancio, 1997: AdHash), so that two
// tables can be compared by reading each once, in its own order, instead of looking every entry up.
// An entry's key occurs once in a table, which the page check has seen to.
class EntrySet {
 public:
  void Add(std::string_view key, std::string_view value) {
    const XXH64_hash_t seed = XXH3_64bits(value.data(), value.size());
    const XXH128_hash_t hash = XXH3_128bits_withSeed(key.data(), key.size(), seed);
    ++count_;
    low_ += hash.low64;
    high_ += hash.high64;
  }
  uint64_t count() const { return count_; }
  bool operator==(const EntrySet&) const = default;

 private:
  uint64_t count_ = 0, low_ = 0, high_ = 0;
};

class TableCheck : private TableReader {
 public:
  TableCheck(MDB_txn* txn, const Tables& tables, NameHash name_hash)
      : TableReader(txn, tables, name_hash) {}

  Status Run() {
    PFS_TRY(CheckSettings());
    PFS_TRY(CheckInodes());
    PFS_TRY(CheckParents());
    PFS_TRY(CheckEntries(tables_.dentries, dentries_, "dentries"));
    PFS_TRY(CheckEntries(tables_.children, children_, "children"));
    PFS_TRY(CheckEntries(tables_.hashes, hashes_, "hashes"));
    PFS_TRY(Models());
    PFS_TRY(Trash());
    return Ok();
  }

 private:
  static constexpr size_t kPiece = 256;

  Status CheckSettings() {
    const uint64_t format = PFS_TRY(MetaNumber(meta_key::kFormat));
    if (format != kIndexFormat) return {Code::kCorrupt, "index: unknown format"};
    next_ino_ = PFS_TRY(MetaNumber(meta_key::kNextIno));
    Result<std::string> pool = Meta(meta_key::kPoolUuid);
    return pool.ok() || pool.status().Is(Code::kNotFound) ? Ok() : pool.status();
  }

  Status CheckInodes() {
    Ino next = 0;
    for (bool more = true; more;) {
      Status end;
      const std::vector<Inode> piece = Scan(next, kPiece, DecodeRecord, &end);
      for (const Inode& inode : piece) PFS_TRY(CheckInode(inode));
      PFS_TRY(end);
      more = piece.size() == kPiece;
      if (more) next = piece.back().ino + 1;
    }
    return saw_root_ ? Ok() : Status(Code::kCorrupt, "index: no root");
  }

  // Notes which entries there must be.
  Status CheckInode(const Inode& inode) {
    if (inode.IsDirectory()) directories_.push_back(inode.ino);
    if (inode.ino == kRootIno) {
      saw_root_ = true;
      return Ok();
    }
    if (inode.ino >= next_ino_) return Bad(inode.ino, "its number was never given");
    if (parents_.empty() || parents_.back() != inode.parent) parents_.push_back(inode.parent);
    const char type = ChildType(inode.mode);
    dentries_.Add(DentryKey(inode.parent, name_hash_(inode.name), inode.ino), {});
    children_.Add(ChildKey(inode.parent, inode.ino), {&type, 1});
    if (!inode.hash.empty()) hashes_.Add(HashKey(inode.hash, inode.ino), {});
    return Ok();
  }

  Status CheckParents() {
    std::sort(parents_.begin(), parents_.end());
    auto directory = directories_.begin();  // in order, as the inodes were read
    for (const Ino parent : parents_) {
      directory = std::lower_bound(directory, directories_.end(), parent);
      if (directory == directories_.end() || *directory != parent) {
        return Bad(parent, "has children and is no directory");
      }
    }
    return Ok();
  }

  Status CheckEntries(MDB_dbi table, const EntrySet& want, std::string_view name) {
    EntrySet have;
    Cursor cursor(txn_, table);
    std::string_view key, value;
    int rc = cursor.Get(&key, &value, MDB_FIRST);
    for (; rc == 0; rc = cursor.Get(&key, &value, MDB_NEXT)) have.Add(key, value);
    if (rc != MDB_NOTFOUND) return FromLmdb(rc, "index: read");
    if (have == want) return Ok();
    return {Code::kCorrupt, "index: " + std::string(name) + " has " + std::to_string(have.count()) +
                                " entries, and not those of the " + std::to_string(want.count()) +
                                " in inodes"};
  }

  uint64_t next_ino_ = 0;
  bool saw_root_ = false;
  std::vector<Ino> directories_, parents_;
  EntrySet dentries_, children_, hashes_;  // as they follow from the inodes
};

}  // namespace

Status CheckTables(MDB_txn* txn, NameHash name_hash) {
  Result<Tables> tables = Tables::Open(txn, false);
  Status status = tables.ok() ? TableCheck(txn, *tables, name_hash).Run() : Status(tables.status());
  if (status.Is(Code::kNotFound)) return {Code::kCorrupt, status.message()};
  return status;
}

}  // namespace prefixfs
