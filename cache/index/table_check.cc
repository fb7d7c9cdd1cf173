#include "cache/index/table_check.h"

#include <string>

#include "cache/index/lmdb_env.h"

namespace prefixfs {
namespace {

Status Bad(Ino ino, std::string_view what) {
  return {Code::kCorrupt, "inode " + std::to_string(ino) + ": " + std::string(what)};
}

class TableCheck : private TableReader {
 public:
  TableCheck(MDB_txn* txn, const Tables& tables, NameHash name_hash)
      : TableReader(txn, tables, name_hash) {}

  Status Run() {
    PFS_TRY(CheckSettings());
    PFS_TRY(CheckInodes());
    PFS_TRY(CheckCount(tables_.dentries, names_, "dentries"));
    PFS_TRY(CheckCount(tables_.children, names_, "children"));
    PFS_TRY(CheckCount(tables_.hashes, hashes_, "hashes"));
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
      const std::vector<Inode> piece = Scan(next, kPiece, &end);
      for (const Inode& inode : piece) PFS_TRY(CheckInode(inode));
      PFS_TRY(end);
      more = piece.size() == kPiece;
      if (more) next = piece.back().ino + 1;
    }
    return saw_root_ ? Ok() : Status(Code::kCorrupt, "index: no root");
  }

  // That the entries are there. Keys end with the number, so equal counts later mean that there are
  // no others.
  Status CheckInode(const Inode& inode) {
    if (inode.ino == kRootIno) {
      saw_root_ = true;
      return Ok();
    }
    if (inode.ino >= next_ino_) return Bad(inode.ino, "its number was never given");
    PFS_TRY(CheckParent(inode));
    ++names_;
    const Key dentry = DentryKey(inode.parent, name_hash_(inode.name), inode.ino);
    if (!PFS_TRY(Has(tables_.dentries, dentry))) return Bad(inode.ino, "not in dentries");
    std::string_view type;
    const int rc = GetRaw(tables_.children, ChildKey(inode.parent, inode.ino), &type);
    if (rc != 0 || type.size() != 1 || type[0] != ChildType(inode.mode)) {
      return Bad(inode.ino, "not in children as it is");
    }
    if (inode.hash.empty()) return Ok();
    ++hashes_;
    if (!PFS_TRY(Has(tables_.hashes, HashKey(inode.hash, inode.ino)))) {
      return Bad(inode.ino, "not in hashes");
    }
    return Ok();
  }

  Status CheckParent(const Inode& inode) {
    if (inode.parent == last_parent_) return Ok();
    Result<Inode> parent = Get(inode.parent);
    if (!parent.ok()) return Bad(inode.ino, "its parent: " + parent.status().ToString());
    if (!parent->IsDirectory()) return Bad(inode.ino, "its parent is no directory");
    last_parent_ = inode.parent;
    return Ok();
  }

  Status CheckCount(MDB_dbi table, uint64_t want, std::string_view name) {
    uint64_t have = 0;
    PFS_TRY(CountEntries(table, &have));
    if (have == want) return Ok();
    return {Code::kCorrupt, "index: " + std::string(name) + " has " + std::to_string(have) +
                                " entries instead of " + std::to_string(want)};
  }

  Status CountEntries(MDB_dbi table, uint64_t* count) {
    Cursor cursor(txn_, table);
    std::string_view key, value;
    int rc = cursor.Get(&key, &value, MDB_FIRST);
    for (; rc == 0; rc = cursor.Get(&key, &value, MDB_NEXT)) ++*count;
    return rc == MDB_NOTFOUND ? Ok() : FromLmdb(rc, "index: read");
  }

  uint64_t next_ino_ = 0;
  uint64_t names_ = 0, hashes_ = 0;
  bool saw_root_ = false;
  Ino last_parent_ = 0;
};

}  // namespace

Status CheckTables(MDB_txn* txn, NameHash name_hash) {
  Result<Tables> tables = Tables::Open(txn, false);
  Status status = tables.ok() ? TableCheck(txn, *tables, name_hash).Run() : Status(tables.status());
  if (status.Is(Code::kNotFound)) return {Code::kCorrupt, status.message()};
  return status;
}

}  // namespace prefixfs
