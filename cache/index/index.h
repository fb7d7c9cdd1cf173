// Index: the durable map of names to inodes, on LMDB.
//
// Four tables, of which only the first is the truth; the others follow from it and every change keeps them so:
//   inodes    ino                      -> record (record.h)
//   dentries  parent, XXH3-64 of name  -> ino     (duplicates are told apart by the record's name)
//   children  parent, ino              -> d_type  (readdir in a stable order: the cookie is the ino)
//   hashes    prefix hash              -> ino     (several ranks share one hash)
// and: models (id -> text), trash (backing files to unlink after a crash), meta.
//
// Durability: MDB_NOSYNC with Sync() from a timer. A killed process loses nothing, because committed pages are
// in the page cache. After an operating-system crash the boot id differs and the caller rebuilds
// (cache/rebuild.h); the index never trusts itself then.
//
// Threads: every call from any thread. Reads are read transactions and wait for nobody, except while the map grows.
// Changes queue up and the first in the queue commits for all ("group commit"); Update returns after the commit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/status.h"
#include "cache/index/record.h"

namespace prefixfs {

struct IndexOptions {
  std::string directory;             // made if absent; holds data.mdb
  uint64_t initial_map = 64ull << 20;  // bytes; doubled when full
  uint64_t max_map = 64ull << 30;
};

// How the last user of the index left it.
struct IndexLineage {
  bool fresh = false;       // just made, holds only the root
  bool closed_clean = false;
  std::string boot_id;      // of the last user; empty if fresh
  std::string pool_uuid;    // which set of drives it describes
};

// A backing file that is no longer named: to be unlinked, then forgotten.
struct TrashEntry {
  BlockId block{};
  uint16_t drive = 0;
};

// One change. Valid only inside the function given to Update. Reads see the change so far.
class IndexTxn {
 public:
  virtual ~IndexTxn() = default;
  virtual Result<Inode> Get(Ino ino) = 0;
  virtual Result<Ino> Lookup(Ino parent, std::string_view name) = 0;  // kNotFound
  virtual Result<bool> HasChildren(Ino parent) = 0;

  // Adds an inode under (inode.parent, inode.name). kExists if that name or number is taken; kNotFound or
  // kNotDirectory if the parent, which must be there first, is not.
  virtual Status Insert(const Inode& inode) = 0;
  // Replaces the record of an existing inode; parent and name must not change (Move does that). Hash may.
  virtual Status Put(const Inode& inode) = 0;
  // Renames. The target name must be free (kExists), its parent a directory and not below `ino`.
  virtual Status Move(Ino ino, Ino parent, std::string_view name) = 0;
  // Removes the inode and everything that follows from it. Children are the caller's business.
  virtual Status Remove(Ino ino) = 0;

  virtual Status AddTrash(const TrashEntry& entry) = 0;
  virtual Status RemoveTrash(const TrashEntry& entry) = 0;
  // The id of a model's text, made if new. Ids start at 1.
  virtual Result<uint32_t> InternModel(std::string_view model) = 0;
};

class Index {
 public:
  // Opens or creates. kCorrupt if LMDB or a format version says no (the caller then moves the directory away and
  // rebuilds); kRejected if another process has it. Marks the index as in use (not clean) with this boot's id,
  // unless it is stale (lineage: not closed clean, another boot's id): that stays as it was, also over Close, until the
  // directory is gone and a fresh index made. A rebuild calls SetPoolUuid last: an index without it is one whose
  // rebuild was cut short, and the caller starts over.
  static Result<std::unique_ptr<Index>> Open(const IndexOptions& options);
  virtual ~Index() = default;  // does not mark it clean: see Close

  virtual const IndexLineage& lineage() const = 0;
  virtual Status SetPoolUuid(std::string_view uuid) = 0;

  virtual Result<Inode> Get(Ino ino) const = 0;
  virtual Result<Inode> Lookup(Ino parent, std::string_view name) const = 0;
  // Up to `max` children with ino > `after`, in order of ino. Complete for names that exist throughout.
  virtual Result<std::vector<Inode>> List(Ino parent, Ino after, size_t max) const = 0;
  virtual Result<std::vector<Inode>> FindByHash(std::string_view hash, size_t max) const = 0;
  // Up to `max` inodes with numbers above `after`, in order. kCorrupt if the first is damaged.
  virtual Result<std::vector<Inode>> Scan(Ino after, size_t max) const = 0;
  // Every inode in order of number, until `visit` returns false. kCorrupt at the first record that is damaged.
  virtual Status ForEach(const std::function<bool(const Inode&)>& visit) const = 0;
  // The same without the inodes' texts: name, hash and target are empty.
  virtual Status ForEachNumbers(const std::function<bool(const Inode&)>& visit) const = 0;
  virtual Result<std::vector<TrashEntry>> Trash() const = 0;
  virtual Result<std::vector<std::pair<uint32_t, std::string>>> Models() const = 0;

  // Runs `change` in a write transaction, shared with concurrent callers. `change` may run more than once (the map
  // was full and has grown), so it must only act through the transaction or set its own results anew each time.
  // If it returns an error nothing of it is kept, and that error is returned; it must check before it writes.
  // The write transaction is the lock over the namespace: changes see each other in one order.
  virtual Status Update(const std::function<Status(IndexTxn&)>& change) = 0;

  // A number never given before, also across crashes (taken from a durable reservation).
  virtual Result<Ino> NextIno() = 0;
  // Makes sure NextIno gives numbers above `floor`; used by the rebuild.
  virtual Status RaiseIno(Ino floor) = 0;

  virtual Status Sync() = 0;
  // Makes lookups in what was added lately as fast as in the rest; a little at each call.
  virtual void Warm() = 0;
  // Syncs and marks the index clean. No other call may follow.
  virtual Status Close() = 0;
  // Bytes the index takes on its drive (st_blocks).
  virtual uint64_t AllocatedBytes() const = 0;
};

// Whether the index can be trusted. One that was closed, and whose file is still the same bit for bit, can. Any other
// is read whole in a child process, because a damaged LMDB file can take its reader down, and every record is checked
// and that the tables agree. kOk, kNotFound (no index there), kRejected (somebody has it open) or kCorrupt with
// the first finding.
// Call before any thread is started. `timeout_ms` bounds the child.
Status CheckIndex(const std::string& directory, int64_t timeout_ms);

// The kernel's boot id, or `PREFIXFS_BOOT_ID` from the environment when set (tests stand in for a reboot with it).
std::string CurrentBootId();

}  // namespace prefixfs
