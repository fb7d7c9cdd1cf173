#include "cache/index/index_txn.h"

#include <algorithm>

#include "cache/index/lmdb_env.h"
#include "cache/index/record_format.h"

namespace prefixfs {
namespace {

constexpr size_t kMaxModelText = 4096;

}  // namespace

Status IndexTxnImpl::Write(MDB_dbi table, std::string_view key, std::string_view value) {
  MDB_val k = ToVal(key), v = ToVal(value);
  dirty_ = true;
  const int rc = mdb_put(txn_, table, &k, &v, 0);
  if (rc != 0 && lmdb_error_ == 0) lmdb_error_ = rc;
  return FromLmdb(rc, "index: write");
}

Status IndexTxnImpl::Erase(MDB_dbi table, std::string_view key) {
  MDB_val k = ToVal(key);
  dirty_ = true;
  const int rc = mdb_del(txn_, table, &k, nullptr);
  if (rc == MDB_NOTFOUND) return {Code::kCorrupt, "index: an entry to remove is missing"};
  if (rc != 0 && lmdb_error_ == 0) lmdb_error_ = rc;
  return FromLmdb(rc, "index: remove");
}

Status IndexTxnImpl::PutRecord(const Inode& inode) {
  return Write(tables_.inodes, InodeKey(inode.ino), EncodeRecord(inode, RecordUse::kIndex));
}

Status IndexTxnImpl::PutEntries(const Inode& inode) {
  const char type = ChildType(inode.mode);
  PFS_TRY(Write(tables_.dentries, DentryKey(inode.parent, name_hash_(inode.name), inode.ino), {}));
  return Write(tables_.children, ChildKey(inode.parent, inode.ino), {&type, 1});
}

Status IndexTxnImpl::EraseEntries(const Inode& inode) {
  PFS_TRY(Erase(tables_.dentries, DentryKey(inode.parent, name_hash_(inode.name), inode.ino)));
  return Erase(tables_.children, ChildKey(inode.parent, inode.ino));
}

Result<Ino> IndexTxnImpl::Lookup(Ino parent, std::string_view name) {
  const Inode inode = PFS_TRY(read_.Lookup(parent, name));
  return inode.ino;
}

Status IndexTxnImpl::CheckFree(Ino parent, std::string_view name) {
  Result<Inode> taken = read_.Lookup(parent, name);
  if (taken.ok()) return {Code::kExists, "the name is taken"};
  return taken.status().Is(Code::kNotFound) ? Ok() : taken.status();
}

Status IndexTxnImpl::CheckDirectory(Ino ino) {
  const Inode inode = PFS_TRY(read_.Get(ino));
  return inode.IsDirectory() ? Ok() : Status(Code::kNotDirectory, "the parent is no directory");
}

Status IndexTxnImpl::CheckOutside(Ino ino, Ino directory) {
  while (directory != kRootIno) {
    if (directory == ino) return {Code::kInvalid, "a directory cannot move below itself"};
    const Inode inode = PFS_TRY(read_.Get(directory));
    directory = inode.parent;
  }
  return Ok();
}

Status IndexTxnImpl::Insert(const Inode& inode) {
  PFS_TRY(record_format::CheckInode(inode));
  if (PFS_TRY(read_.Has(tables_.inodes, InodeKey(inode.ino)))) {
    return {Code::kExists, "the inode number is taken"};
  }
  PFS_TRY(CheckDirectory(inode.parent));
  PFS_TRY(CheckFree(inode.parent, inode.name));
  inserted_ = true;
  PFS_TRY(PutRecord(inode));
  PFS_TRY(PutEntries(inode));
  if (inode.hash.empty()) return Ok();
  return Write(tables_.hashes, HashKey(inode.hash, inode.ino), {});
}

Status IndexTxnImpl::Put(const Inode& inode) {
  PFS_TRY(record_format::CheckInode(inode));
  const Inode before = PFS_TRY(read_.Get(inode.ino));
  if (before.parent != inode.parent || before.name != inode.name) {
    return {Code::kInvalid, "only Move changes parent or name"};
  }
  if (ChildType(before.mode) != ChildType(inode.mode)) {
    return {Code::kInvalid, "the type of an inode never changes"};
  }
  PFS_TRY(PutRecord(inode));
  if (before.hash == inode.hash) return Ok();
  if (!before.hash.empty()) PFS_TRY(Erase(tables_.hashes, HashKey(before.hash, inode.ino)));
  if (inode.hash.empty()) return Ok();
  return Write(tables_.hashes, HashKey(inode.hash, inode.ino), {});
}

Status IndexTxnImpl::Move(Ino ino, Ino parent, std::string_view name) {
  if (ino == kRootIno) return {Code::kInvalid, "the root cannot move"};
  const Inode before = PFS_TRY(read_.Get(ino));
  Inode after = before;
  after.parent = parent;
  after.name = name;
  PFS_TRY(record_format::CheckInode(after));
  PFS_TRY(CheckDirectory(parent));
  if (before.IsDirectory()) PFS_TRY(CheckOutside(ino, parent));
  PFS_TRY(CheckFree(parent, name));
  PFS_TRY(EraseEntries(before));
  PFS_TRY(PutRecord(after));
  return PutEntries(after);
}

Status IndexTxnImpl::Remove(Ino ino) {
  if (ino == kRootIno) return {Code::kInvalid, "the root cannot be removed"};
  const Inode inode = PFS_TRY(read_.Get(ino));
  PFS_TRY(EraseEntries(inode));
  if (!inode.hash.empty()) PFS_TRY(Erase(tables_.hashes, HashKey(inode.hash, ino)));
  return Erase(tables_.inodes, InodeKey(ino));
}

Status IndexTxnImpl::AddTrash(const TrashEntry& entry) {
  const Key key = TrashKey(entry);
  return Write(tables_.trash, key, Seal(key, {}));
}

Status IndexTxnImpl::RemoveTrash(const TrashEntry& entry) {
  const Key key = TrashKey(entry);
  if (!PFS_TRY(read_.Has(tables_.trash, key))) return Ok();
  return Erase(tables_.trash, key);
}

Result<uint32_t> IndexTxnImpl::InternModel(std::string_view model) {
  if (model.empty()) return {Code::kInvalid, "empty model"};
  if (model.size() > kMaxModelText) return {Code::kTooLong, "text of a model"};
  std::string text(model);
  if (const auto known = known_models_.find(text); known != known_models_.end()) {
    return known->second;
  }
  // Rare from here on: a model is new once. Those of this batch are only in the table yet.
  uint32_t last = 0;
  for (const auto& [id, have] : PFS_TRY(read_.Models())) {
    if (have == text) return id;
    last = std::max(last, id);
  }
  const Key key = ModelKey(last + 1);
  PFS_TRY(Write(tables_.models, key, Seal(key, text)));
  new_models_.emplace_back(std::move(text), last + 1);
  return last + 1;
}

Status IndexTxnImpl::PutMeta(std::string_view key, std::string_view value) {
  return Write(tables_.main, key, Seal(key, value));
}

}  // namespace prefixfs
