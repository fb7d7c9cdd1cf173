// Housekeeping: what one slow tick does for all: access times, trash, abandoned versions, empty
// directories.
#include <spdlog/spdlog.h>

#include <vector>

#include "cache/cache.h"

namespace prefixfs {
namespace {
constexpr int64_t kAbandonedNs =
    30 * kNsPerSecond;                          // a version made at open that nobody came back for
constexpr int64_t kTemporaryNs = kNsPerSecond;  // closed, and not renamed
constexpr int64_t kHeldUpNs = 2 * kNsPerSecond;
constexpr int64_t kLeaseSlackNs = kNsPerSecond;
constexpr size_t kTimesPerCommit = 1024;
}  // namespace

void Cache::NoteAccess(Ino ino, const Caller& caller) {
  const Access access{clock_.WallNs(), caller.tid()};
  MutexLock lock(side_mutex_);
  accesses_[ino] = access;
}

// Whether this thread has opened it within the last tick or two.
bool Cache::WasJustRead(Ino ino, const Caller& caller) {
  MutexLock lock(side_mutex_);
  for (const auto* accesses : {&accesses_, &accesses_before_}) {
    const auto it = accesses->find(ino);
    if (it != accesses->end() && it->second.tid == caller.tid()) return true;
  }
  return false;
}

void Cache::FlushAccessTimes() {
  std::unordered_map<Ino, Access> accesses;
  {
    MutexLock lock(side_mutex_);
    accesses.swap(accesses_);
  }
  auto it = accesses.begin();
  while (it != accesses.end()) {
    std::vector<std::pair<Ino, Access>> batch;
    for (; it != accesses.end() && batch.size() < kTimesPerCommit; ++it) batch.emplace_back(*it);
    const Status status = index_->Update([&](IndexTxn& txn) -> Status {
      for (const auto& [ino, access] : batch) {
        Result<Inode> inode = txn.Get(ino);
        if (!inode.ok()) continue;
        inode->atime_ns = access.at_ns;
        PFS_TRY(txn.Put(*inode));
      }
      return Ok();
    });
    if (!status.ok()) spdlog::warn("access times: {}", status.ToString());
  }
  MutexLock lock(side_mutex_);
  accesses_before_ = std::move(accesses);
}

void Cache::FlushTrash() {
  std::vector<TrashEntry> done;
  {
    MutexLock lock(side_mutex_);
    done.swap(trash_done_);
  }
  if (done.empty()) return;
  const Status status = index_->Update([&](IndexTxn& txn) -> Status {
    for (const TrashEntry& entry : done) PFS_TRY(txn.RemoveTrash(entry));
    return Ok();
  });
  if (!status.ok()) spdlog::warn("trash: {}", status.ToString());
}

void Cache::DropAbandonedVersions() {
  const int64_t now = clock_.MonotonicNs();
  for (const FilePtr& file : open_.AllProvisional()) {
    if (now - TemporarySince(*file) > kTemporaryNs) {
      PublishTemporary(file);
      continue;
    }
    {
      MutexLock lock(open_.mutex);
      if (file->readers + file->writers > 0 || now - file->made_ns < kAbandonedNs) continue;
    }
    {
      MutexLock change(file->change);
      SettleWriter(file);
    }
    Forget(file);
  }
}

// A directory that was just looked up may be about to get a file: it stays for a lease, and a
// little longer for clients that the scheduler holds up between the two. False if it is going.
bool Cache::LeaseDirectory(Ino ino) {
  const int64_t until = clock_.MonotonicNs() + config_.lease_ms * kNsPerMs * 3 / 2 + kHeldUpNs;
  MutexLock lock(side_mutex_);
  if (going_folders_.contains(ino)) return false;
  directory_leases_.Renew(ino, until, kLeaseSlackNs);
  return true;
}

void Cache::NoteEmptied(Ino directory) {
  if (directory == kRootIno) return;
  const int64_t until = clock_.MonotonicNs() + config_.empty_dir_grace_ms * kNsPerMs;
  MutexLock lock(side_mutex_);
  emptied_.Set(directory, until);
}

// Only directories that eviction emptied go, after a while without change and without a lookup;
// what a client made and emptied itself is the client's.
void Cache::ReapDirectories() {
  const int64_t now = clock_.MonotonicNs();
  std::vector<Ino> candidates;
  {
    MutexLock lock(side_mutex_);
    (void)directory_leases_.TakeExpired(now);
    for (const Ino ino : emptied_.TakeExpired(now)) {
      if (const auto leased_until = directory_leases_.UntilOf(ino)) {
        emptied_.Set(ino, *leased_until);
      } else {
        candidates.push_back(ino);
      }
    }
  }
  for (const Ino ino : candidates) {
    Removal removal;
    const Status status = index_->Update([&](IndexTxn& txn) -> Status {
      removal.inodes.clear();
      const Inode inode = PFS_TRY(txn.Get(ino));
      if (!inode.IsDirectory() || inode.Has(inode_flag::kKeep)) return Code::kRejected;
      const bool children = PFS_TRY(txn.HasChildren(ino));
      if (children || open_.HasProvisional(ino)) return Code::kNotEmpty;
      return RemoveName(txn, inode, &removal);
    });
    if (!status.ok()) continue;
    counters_.reaped_directories.fetch_add(1, std::memory_order_relaxed);
    Removed(removal);
    const Inode& gone = removal.inodes.front();
    Tell([&](CacheListener& listener) { listener.OnInvalid(gone.parent, gone.name); });
    NoteEmptied(gone.parent);
  }
}

void Cache::NoteTemporary(const Inode& sealed) {
  if (!naming_->IsTemporary(sealed.name)) return;
  const int64_t until = clock_.MonotonicNs() + config_.orphan_grace_ms * kNsPerMs;
  MutexLock lock(side_mutex_);
  orphans_.Set(sealed.ino, until);
}

// After a start, blocks that earlier daemons have left under temporary names; a piece at each tick.
void Cache::FindOrphans() {
  constexpr size_t kPiece = 4096;
  if (!orphans_seen_) return;
  const Result<std::vector<Inode>> piece = index_->Scan(*orphans_seen_, kPiece);
  if (!piece.ok() || piece->empty()) {
    orphans_seen_.reset();
    return;
  }
  orphans_seen_ = piece->back().ino;
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(side_mutex_);
  for (const Inode& inode : *piece) {
    if (inode.state == FileState::kSealed && naming_->IsTemporary(inode.name))
      orphans_.Set(inode.ino, now);
  }
}

// What is still under a temporary name, and nobody has used for the grace, was never going to be
// renamed.
void Cache::ReapOrphans() {
  const int64_t now = clock_.MonotonicNs(), wall = clock_.WallNs();
  const int64_t grace = config_.orphan_grace_ms * kNsPerMs;
  std::vector<Ino> due;
  {
    MutexLock lock(side_mutex_);
    due = orphans_.TakeExpired(now);
  }
  for (const Ino ino : due) {
    const Result<Inode> inode = index_->Get(ino);
    if (!inode.ok() || inode->state != FileState::kSealed || !naming_->IsTemporary(inode->name))
      continue;
    const int64_t used = std::max({inode->atime_ns, inode->mtime_ns, inode->ctime_ns});
    const int64_t left = open_.Find(ino) ? grace : std::min(used + grace - wall, grace);
    if (left > 0) {
      MutexLock lock(side_mutex_);
      orphans_.Set(ino, now + left);
    } else {
      RemoveOrphan(ino);
    }
  }
}

void Cache::RemoveOrphan(Ino ino) {
  Removal removal;
  const Status status = index_->Update([&](IndexTxn& txn) -> Status {
    removal.inodes.clear();
    const Inode inode = PFS_TRY(txn.Get(ino));
    if (inode.state != FileState::kSealed || !naming_->IsTemporary(inode.name))
      return Code::kRejected;
    return RemoveName(txn, inode, &removal);
  });
  if (!status.ok()) return;
  counters_.orphans.fetch_add(1, std::memory_order_relaxed);
  const Inode gone = removal.inodes.front();
  Removed(removal);
  Tell([&](CacheListener& listener) { listener.OnInvalid(gone.parent, gone.name); });
  NoteEmptied(gone.parent);
}

}  // namespace prefixfs
