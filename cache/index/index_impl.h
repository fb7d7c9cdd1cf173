// IndexImpl: the Index on LMDB. Private to cache/index and its tests; everyone else has index.h.
#pragma once

#include <memory>
#include <string>

#include "cache/base/fd.h"
#include "cache/index/group_commit.h"
#include "cache/index/index.h"
#include "cache/index/ino_source.h"
#include "cache/index/lmdb_env.h"
#include "cache/index/tables.h"

namespace prefixfs {

// Takes the lock of the index in that directory: kRejected if somebody has it.
Result<Fd> LockIndex(int directory_fd);

class IndexImpl final : public Index {
 public:
  static Result<std::unique_ptr<IndexImpl>> Open(const IndexOptions& options, NameHash name_hash);

  const IndexLineage& lineage() const override { return lineage_; }
  Status SetPoolUuid(std::string_view uuid) override;
  Result<Inode> Get(Ino ino) const override;
  Result<Inode> Lookup(Ino parent, std::string_view name) const override;
  Result<std::vector<Inode>> List(Ino parent, Ino after, size_t max) const override;
  Result<std::vector<Inode>> FindByHash(std::string_view hash, size_t max) const override;
  Result<std::vector<Inode>> Scan(Ino after, size_t max) const override;
  Status ForEach(const std::function<bool(const Inode&)>& visit) const override {
    return ScanAll(DecodeRecord, visit);
  }
  Status ForEachNumbers(const std::function<bool(const Inode&)>& visit) const override {
    return ScanAll(DecodeRecordNumbers, visit);
  }
  Result<std::vector<TrashEntry>> Trash() const override;
  Result<std::vector<std::pair<uint32_t, std::string>>> Models() const override;
  Status Update(const std::function<Status(IndexTxn&)>& change) override;
  Result<Ino> NextIno() override;
  Status RaiseIno(Ino floor) override;
  Status Sync() override { return env_->Sync(); }
  void Warm() override { env_->Populate(kWarmBytes); }
  Status Close() override;
  uint64_t AllocatedBytes() const override;

 private:
  static constexpr uint64_t kWarmBytes = 256ull << 20;  // a few milliseconds
  explicit IndexImpl(NameHash name_hash) : name_hash_(name_hash) {}
  Status ScanAll(RecordDecoder decode, const std::function<bool(const Inode&)>& visit) const;
  // Reads who used the index last, and marks it as in use on the disk.
  Status TakeOver();
  // Makes the tables and the root, or checks the format and reads what is kept in memory.
  Status Start();
  Status OpenTables(WriteTxn& lmdb);
  Status CreateContents(IndexTxnImpl& txn, uint64_t txn_id);
  Status LoadContents(MDB_txn* txn, ModelIds* models);

  // Constant after Open.
  const NameHash name_hash_;
  Fd directory_;  // by descriptor, so that it may be renamed while in use
  Fd lock_;
  IndexLineage lineage_;
  bool stale_ = false;  // the last user's boot has ended without Close: nothing here may be trusted
  std::unique_ptr<LmdbEnv> env_;
  Tables tables_;

  // Own synchronization.
  InoSource inos_;
  std::unique_ptr<GroupCommit> commits_;
};

}  // namespace prefixfs
