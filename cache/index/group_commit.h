// GroupCommit: many callers' changes in one write transaction. Private to cache/index.
//
// A caller queues its change. If nobody leads, it takes what is queued, runs all of it in one
// transaction, commits, and tells everyone; meanwhile others queue for the next batch. So the cost
// of a commit is shared under load and nobody waits for company when alone.
//
// A change that fails before it wrote is simply left out. One that fails after it wrote, or on
// which LMDB itself fails, spoils the transaction: it is aborted and the others run again. When the
// map is full it grows and all run again; when it cannot, or the disk is full, each runs alone, so
// that only those fail that do not fit; and one that adds no name, such as the evictor's removals,
// may then use a little more than the map's largest size.
//
// Threads: Run from any thread, but not from inside a change. No lock is held while changes run or
// commit.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/index/index_txn.h"
#include "cache/index/ino_source.h"
#include "cache/index/lmdb_env.h"

namespace prefixfs {

class GroupCommit {
 public:
  using Change = std::function<Status(IndexTxn&)>;

  // All but `known_models` outlive this.
  GroupCommit(LmdbEnv& env, const Tables& tables, NameHash name_hash, InoSource& inos,
              int directory_fd)
      : env_(env),
        tables_(tables),
        name_hash_(name_hash),
        inos_(inos),
        directory_fd_(directory_fd) {
    batch_.reserve(kMaxBatch);
  }

  void LearnModels(ModelIds known) { known_models_ = std::move(known); }  // before Run
  // Returns what the change returned, or why it could not be committed.
  Status Run(const Change& change);
  // Whether this thread is inside a change of this index.
  bool InsideChange() const;

 private:
  struct Pending {
    explicit Pending(const Change& c) : change(c) {}
    const Change& change;
    Status status;
    bool settled = false;  // `status` is final; not to be run again
    bool inserts = false;  // whether it wants more names, rather than to change or remove some
    bool done = false;     // guarded by mutex_
    CondVar wake;
  };
  using Batch = std::vector<Pending*>;
  static constexpr size_t kMaxBatch = 256;
  enum class Outcome { kFinished, kRunAgain, kGrow, kTooMuch };

  void Execute(const Batch& batch);
  // For one change that found the map full at its largest size: lets it have a little more if it
  // adds nothing.
  void ExecuteStretched(const Batch& batch, Status why);
  Outcome Attempt(const Batch& batch, Status* why);
  // Runs the changes; kFinished means that all went well so far.
  Outcome RunChanges(const Batch& batch, IndexTxnImpl& txn, bool* wrote);
  Outcome Commit(const Batch& batch, WriteTxn& lmdb, IndexTxnImpl& txn, Status* why);
  Status StoreSettings(IndexTxnImpl& txn, uint64_t txn_id, uint64_t new_limit);
  // The status of a failed commit: a short write of LMDB's may be a full disk.
  Status CommitError(int rc) const;
  static void FailRest(const Batch& batch, const Status& status);

  LmdbEnv& env_;
  const Tables& tables_;
  const NameHash name_hash_;
  InoSource& inos_;
  const int directory_fd_;
  ModelIds known_models_;  // touched by the leader only
  Batch batch_;            // likewise; never grows, so that taking a batch needs no memory

  Mutex mutex_;
  bool leading_ PFS_GUARDED_BY(mutex_) = false;
  std::deque<Pending*> queue_ PFS_GUARDED_BY(mutex_);
};

}  // namespace prefixfs
