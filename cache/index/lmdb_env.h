// LmdbEnv: an LMDB environment whose map grows, and values that own its transactions and cursors.
// Private to cache/index.
//
// LMDB may move its map only while no transaction is alive, so every read holds a lock shared that
// Grow takes alone; it prefers the grower, who therefore waits for the reads under way and for no
// later ones. A thread must not begin a read while it holds one.
//
// Threads: BeginRead and Sync from any thread. BeginWrite, Grow, Stretch and Retract from one
// thread at a time (group_commit.h), the last three only while that thread holds no transaction.
#pragma once

#include <lmdb.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/base/status.h"

namespace prefixfs {

// The status of an LMDB return code. Full map: kNoSpace. Damage: kCorrupt. Fatal error earlier:
// kUnavailable.
Status FromLmdb(int rc, std::string_view what);

inline MDB_val ToVal(std::string_view bytes) {
  return MDB_val{bytes.size(), const_cast<char*>(bytes.data())};
}
inline std::string_view FromVal(const MDB_val& val) {
  return {static_cast<const char*>(val.mv_data), val.mv_size};
}

// A reader-writer lock that lets the writer pass waiting readers: std::shared_mutex would let
// steady reads keep the grower out for ever.
class MapLock {
 public:
  MapLock();
  ~MapLock();
  MapLock(const MapLock&) = delete;
  MapLock& operator=(const MapLock&) = delete;

  void LockShared() { pthread_rwlock_rdlock(&lock_); }
  void LockAlone() { pthread_rwlock_wrlock(&lock_); }
  void Unlock() { pthread_rwlock_unlock(&lock_); }

 private:
  pthread_rwlock_t lock_;
};

class LmdbEnv;

// A snapshot for reading. Move-only; ends in the destructor, on the thread that began it.
class ReadTxn {
 public:
  ReadTxn(LmdbEnv* env, MDB_txn* txn) : env_(env), txn_(txn) {}
  ReadTxn(ReadTxn&& other) noexcept : env_(other.env_), txn_(std::exchange(other.txn_, nullptr)) {}
  ReadTxn& operator=(ReadTxn&&) = delete;
  ~ReadTxn();
  MDB_txn* get() const { return txn_; }

 private:
  LmdbEnv* env_;
  MDB_txn* txn_;
};

// The one write transaction. Move-only; aborts in the destructor unless committed.
class WriteTxn {
 public:
  WriteTxn(LmdbEnv* env, MDB_txn* txn) : env_(env), txn_(txn) {}
  WriteTxn(WriteTxn&& other) noexcept
      : env_(other.env_), txn_(std::exchange(other.txn_, nullptr)) {}
  WriteTxn& operator=(WriteTxn&&) = delete;
  ~WriteTxn() { Abort(); }
  MDB_txn* get() const { return txn_; }
  void Abort();
  // On failure nothing of the transaction is kept. Returns LMDB's code.
  int Commit();

 private:
  LmdbEnv* env_;
  MDB_txn* txn_;
};

// Closes in the destructor, which must run before the transaction's end.
class Cursor {
 public:
  Cursor(MDB_txn* txn, MDB_dbi table) : open_rc_(mdb_cursor_open(txn, table, &cursor_)) {}
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;
  ~Cursor() {
    if (cursor_ != nullptr) mdb_cursor_close(cursor_);
  }
  // LMDB's code; for kSeek `key` says where to, and both are set to what was found.
  int Get(std::string_view* key, std::string_view* value, MDB_cursor_op op) {
    if (open_rc_ != 0) return open_rc_;
    MDB_val k = ToVal(*key), v = {};
    const int rc = mdb_cursor_get(cursor_, &k, &v, op);
    if (rc == 0) {
      *key = FromVal(k);
      *value = FromVal(v);
    }
    return rc;
  }

 private:
  MDB_cursor* cursor_ = nullptr;
  int open_rc_;
};

class LmdbEnv {
 public:
  // Opens DIRECTORY/data.mdb, making it if absent. Commits reach the disk at once until SetNoSync.
  static Result<std::unique_ptr<LmdbEnv>> Open(const std::string& directory, uint64_t initial_map,
                                               uint64_t max_map);
  ~LmdbEnv();
  LmdbEnv(const LmdbEnv&) = delete;
  LmdbEnv& operator=(const LmdbEnv&) = delete;

  Result<ReadTxn> BeginRead();
  Result<WriteTxn> BeginWrite();
  // Doubles the map, up to its largest size. kNoSpace when it has that already.
  Status Grow();
  // A little more than the largest size, for a change that frees space but needs pages to do so;
  // until Retract, which gives back what is not in use. kNoSpace when even that is used up.
  Status Stretch();
  void Retract();
  // From now on only Sync reaches the disk. Call before other threads use the environment.
  void SetNoSync() { mdb_env_set_flags(env_, MDB_NOSYNC, 1); }
  // Blocks on the disk, but no read or write of the index waits for it.
  Status Sync();
  // Enters what the file has grown by since the last call into this process's page tables, up to
  // `max_bytes` of it, so that a lookup among a million names takes no page fault. For one thread.
  void Populate(uint64_t max_bytes);
  uint64_t map_bytes() const { return map_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class ReadTxn;
  friend class WriteTxn;

  LmdbEnv() = default;
  MDB_txn* TakePooled();
  int Renew(MDB_txn* txn);
  Status Resize(uint64_t bytes);
  void EndRead(MDB_txn* txn);

  MDB_env* env_ = nullptr;  // constant after Open
  uint64_t max_map_ = 0;    // constant after Open
  std::atomic<uint64_t> map_bytes_{0};
  std::atomic<bool> map_lost_{false};  // a resize failed half way: nothing can be read any more
  std::atomic<uint64_t> commits_begun_{0};
  uint64_t populated_bytes_ = 0;  // of this map: Populate, and Resize while it holds the lock alone
  MapLock map_lock_;
  Mutex pool_mutex_;
  std::vector<MDB_txn*> pool_ PFS_GUARDED_BY(pool_mutex_);  // reset read transactions
};

}  // namespace prefixfs
