// IndexTxnImpl: one write transaction over the tables, shared by the changes of a batch. Private to
// cache/index.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/index/tables.h"

namespace prefixfs {

// Texts whose ids are committed. Owned by the group commit, used by the one who commits.
using ModelIds = std::unordered_map<std::string, uint32_t>;

class IndexTxnImpl final : public IndexTxn {
 public:
  IndexTxnImpl(MDB_txn* txn, const Tables& tables, NameHash name_hash, const ModelIds& known)
      : txn_(txn),
        tables_(tables),
        name_hash_(name_hash),
        known_models_(known),
        read_(txn, tables, name_hash) {}

  Result<Inode> Get(Ino ino) override { return read_.Get(ino); }
  Result<Ino> Lookup(Ino parent, std::string_view name) override;
  Result<bool> HasChildren(Ino parent) override { return read_.HasChildren(parent); }
  Status Insert(const Inode& inode) override;
  Status Put(const Inode& inode) override;
  Status Move(Ino ino, Ino parent, std::string_view name) override;
  Status Remove(Ino ino) override;
  Status AddTrash(const TrashEntry& entry) override;
  Status RemoveTrash(const TrashEntry& entry) override;
  Result<uint32_t> InternModel(std::string_view model) override;

  Status PutMeta(std::string_view key, std::string_view value);
  Status InsertRoot(const Inode& root) { return PutRecord(root); }

  // Whether anything was written since the last call.
  bool TakeDirty() { return std::exchange(dirty_, false); }
  // Whether anything was inserted since the last call.
  bool TakeInserted() { return std::exchange(inserted_, false); }
  // The first code of LMDB's own that says that this transaction cannot be committed; MDB_MAP_FULL
  // among them.
  int lmdb_error() const { return lmdb_error_ != 0 ? lmdb_error_ : read_.lmdb_error(); }
  const std::vector<std::pair<std::string, uint32_t>>& new_models() const { return new_models_; }

 private:
  Status Write(MDB_dbi table, std::string_view key, std::string_view value);
  Status Erase(MDB_dbi table, std::string_view key);
  Status PutRecord(const Inode& inode);
  Status PutEntries(const Inode& inode);
  Status EraseEntries(const Inode& inode);
  Status CheckFree(Ino parent, std::string_view name);
  Status CheckDirectory(Ino ino);
  // kInvalid if `directory` is `ino` or lies below it.
  Status CheckOutside(Ino ino, Ino directory);

  MDB_txn* txn_;
  const Tables& tables_;
  NameHash name_hash_;
  const ModelIds& known_models_;
  TableReader read_;
  bool dirty_ = false, inserted_ = false;
  int lmdb_error_ = 0;
  std::vector<std::pair<std::string, uint32_t>> new_models_;
};

}  // namespace prefixfs
