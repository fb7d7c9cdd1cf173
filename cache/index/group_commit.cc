#include "cache/index/group_commit.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace prefixfs {
namespace {

// Less free than this and a short write was for lack of space.
constexpr uint64_t kFullBelowBytes = 4 << 20;

// The index whose change this thread is running.
thread_local const GroupCommit* inside_change = nullptr;

}  // namespace

bool GroupCommit::InsideChange() const { return inside_change == this; }

Status GroupCommit::Run(const Change& change) {
  if (InsideChange()) return {Code::kInvalid, "index: a change within a change"};
  Pending self(change);
  mutex_.lock();
  try {
    queue_.push_back(&self);
  } catch (const std::bad_alloc&) {
    mutex_.unlock();
    return Code::kNoMemory;
  }
  while (!self.done) {
    if (leading_) {
      self.wake.Wait(mutex_);
      continue;
    }
    leading_ = true;
    const size_t count = std::min(queue_.size(), kMaxBatch);
    batch_.assign(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(count));
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(count));
    mutex_.unlock();
    try {
      Execute(batch_);
    } catch (const std::bad_alloc&) {
      FailRest(batch_, Code::kNoMemory);
    }
    mutex_.lock();
    leading_ = false;
    // Under the mutex: a Pending is gone as soon as its thread sees `done`.
    for (Pending* pending : batch_) {
      pending->done = true;
      pending->wake.NotifyOne();
    }
    if (!queue_.empty()) queue_.front()->wake.NotifyOne();
  }
  mutex_.unlock();
  return self.status;
}

void GroupCommit::FailRest(const Batch& batch, const Status& status) {
  for (Pending* pending : batch) {
    if (pending->settled) continue;
    pending->settled = true;
    // A change that refused by itself keeps its own reason.
    if (pending->status.ok()) pending->status = status;
  }
}

void GroupCommit::Execute(const Batch& batch) {
  for (;;) {
    Status why;
    const Outcome outcome = Attempt(batch, &why);
    if (outcome == Outcome::kFinished) return;
    if (outcome == Outcome::kRunAgain) continue;
    const bool map_full = outcome == Outcome::kGrow;
    if (map_full) {
      why = env_.Grow();
      if (why.ok()) continue;
    }
    if (batch.size() == 1) {
      return map_full ? ExecuteStretched(batch, why) : FailRest(batch, why);
    }
    for (Pending* pending : batch) {
      if (!pending->settled) Execute({pending});
    }
    return;
  }
}

void GroupCommit::ExecuteStretched(const Batch& batch, Status why) {
  if (!batch[0]->inserts && why.Is(Code::kNoSpace) && env_.Stretch().ok()) {
    Status ignored;
    while (Attempt(batch, &ignored) == Outcome::kRunAgain) {
    }
    env_.Retract();
  }
  FailRest(batch, why);
}

GroupCommit::Outcome GroupCommit::Attempt(const Batch& batch, Status* why) {
  for (Pending* pending : batch) {
    if (!pending->settled) pending->status = Ok();
  }
  Result<WriteTxn> lmdb = env_.BeginWrite();
  if (!lmdb.ok()) {
    FailRest(batch, lmdb.status());
    return Outcome::kFinished;
  }
  IndexTxnImpl txn(lmdb->get(), tables_, name_hash_, known_models_);
  bool wrote = false;
  const Outcome outcome = RunChanges(batch, txn, &wrote);
  if (outcome != Outcome::kFinished) return outcome;
  if (!wrote && !inos_.IsLow()) {
    for (Pending* pending : batch) pending->settled = true;
    return Outcome::kFinished;
  }
  return Commit(batch, *lmdb, txn, why);
}

GroupCommit::Outcome GroupCommit::RunChanges(const Batch& batch, IndexTxnImpl& txn, bool* wrote) {
  for (Pending* pending : batch) {
    if (pending->settled) continue;
    inside_change = this;
    Status status = pending->change(txn);
    inside_change = nullptr;
    const bool dirty = txn.TakeDirty();
    pending->inserts = txn.TakeInserted();
    const int lmdb_error = txn.lmdb_error();
    if (lmdb_error == MDB_MAP_FULL) return Outcome::kGrow;
    // The change may have passed over LMDB's error, but this transaction cannot be committed any
    // more.
    if (lmdb_error != 0) status = FromLmdb(lmdb_error, "index");
    if (!status.ok() && (dirty || lmdb_error != 0)) {
      pending->settled = true;
      pending->status = std::move(status);
      return Outcome::kRunAgain;
    }
    pending->status = std::move(status);
    *wrote = *wrote || dirty;
  }
  return Outcome::kFinished;
}

Status GroupCommit::StoreSettings(IndexTxnImpl& txn, uint64_t txn_id, uint64_t new_limit) {
  if (new_limit != 0) PFS_TRY(txn.PutMeta(meta_key::kNextIno, Key().Number(new_limit)));
  return txn.PutMeta(meta_key::kTxn, Key().Number(txn_id));
}

GroupCommit::Outcome GroupCommit::Commit(const Batch& batch, WriteTxn& lmdb, IndexTxnImpl& txn,
                                         Status* why) {
  const uint64_t new_limit = inos_.IsLow() ? inos_.NextLimit() : 0;
  int rc = MDB_SUCCESS;
  if (Status stored = StoreSettings(txn, mdb_txn_id(lmdb.get()), new_limit); !stored.ok()) {
    rc = txn.lmdb_error();
  } else {
    rc = lmdb.Commit();
  }
  if (rc == MDB_MAP_FULL) return Outcome::kGrow;
  if (rc != 0) {
    *why = CommitError(rc);
    if (why->Is(Code::kNoSpace)) return Outcome::kTooMuch;
    FailRest(batch, *why);
    return Outcome::kFinished;
  }
  if (new_limit != 0) inos_.Extend(new_limit);
  for (const auto& [text, id] : txn.new_models()) known_models_.emplace(text, id);
  for (Pending* pending : batch) pending->settled = true;
  return Outcome::kFinished;
}

Status GroupCommit::CommitError(int rc) const {
  struct statvfs vfs {};
  if (rc == EIO && ::fstatvfs(directory_fd_, &vfs) == 0 &&
      uint64_t{vfs.f_bfree} * vfs.f_frsize < kFullBelowBytes) {
    rc = ENOSPC;
  }
  return FromLmdb(rc, "index: commit");
}

}  // namespace prefixfs
