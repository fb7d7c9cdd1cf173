// Removal: unlink, rmdir, eviction, and what becomes of a block that has lost its name.
//
// The name goes first, with the backing file noted as trash in the same transaction, then the file:
// a crash in between leaves trash for the next start and never a name without its bytes.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>

#include "cache/cache.h"

namespace prefixfs {
namespace {
constexpr int64_t kLingerNs = 200 * kNsPerMs;
constexpr int64_t kEvictWaitMs = 1000;
}  // namespace

Status Cache::RemoveName(IndexTxn& txn, const Inode& inode, Removal* removal) {
  PFS_TRY(txn.Remove(inode.ino));
  if (inode.IsFile()) PFS_TRY(txn.AddTrash({inode.block, inode.drive}));
  removal->inodes.push_back(inode);
  return Ok();
}

// Open files keep their bytes, and their place in the account, until the last handle goes. A
// replaced block can still be opened for a moment by whoever looked its name up just before: ESTALE
// makes the kernel look again only once, and the next incarnation may be replaced as fast.
void Cache::Removed(const Removal& removal, bool replaced) {
  inodes_.Subtract(removal.inodes.size());
  for (const Inode& inode : removal.inodes) {
    if (!inode.IsFile()) {
      RememberGone(inode);
      for (auto& drive : drives_->drives()) {
        if (drive->failed()) continue;
        OnDrive(*drive, [drive = drive.get(), ino = inode.ino] {
          (void)drive->Note(drive->RemoveRecord(ino)).ok();
        });
      }
      continue;
    }
    const Residents::Block block = residents_->Remove(inode.ino);
    FilePtr file;
    {
      MutexLock lock(open_.mutex);
      file = open_.FindLocked(inode.ino);
      if (file) {
        if (file->provisional) open_.RemoveProvisionalLocked(file);
        file->nameless = true;
        file->replaced = replaced;
        file->accounted += block.allocated;
      }
    }
    if (file) continue;
    const uint64_t allocated =
        inode.state == FileState::kSealed ? block.allocated : inode.allocated;
    if (replaced && inode.state != FileState::kPosix) {
      Linger(inode, allocated);
    } else {
      const Lingering gone{inode, allocated, 0};
      Drive* drive = drives_->Find(inode.drive);
      if (drive == nullptr) {
        RemoveBacking(gone);  // there is nothing left but what others remember of it
      } else {
        OnDrive(*drive, [this, gone] { RemoveBacking(gone); });
      }
    }
  }
}

void Cache::Linger(const Inode& inode, uint64_t allocated) {
  const int64_t until_ns = clock_.MonotonicNs() + kLingerNs;
  MutexLock lock(side_mutex_);
  lingering_.emplace(inode.ino, Lingering{inode, allocated, until_ns});
}

void Cache::RemoveBacking(const Lingering& gone) {
  const Inode& inode = gone.inode;
  Tell([&](CacheListener& listener) { listener.OnGone(inode.ino); });
  Drive* drive = drives_->Find(inode.drive);
  if (drive == nullptr) return;
  if (Status status = drive->Note(drive->Unlink(inode.block, true)); !status.ok()) {
    spdlog::warn("cannot unlink {} on {}: {}", ToHex(inode.block), drive->path(),
                 status.ToString());
    return;
  }
  budget_->Account(-static_cast<int64_t>(gone.allocated), 0);
  MutexLock lock(side_mutex_);
  trash_done_.push_back({inode.block, inode.drive});
  accesses_.erase(inode.ino);
}

void Cache::ExpireLingering(int64_t now_ns) {
  std::vector<Lingering> expired;
  {
    MutexLock lock(side_mutex_);
    std::erase_if(lingering_, [&](auto& item) {
      if (item.second.until_ns > now_ns) return false;
      expired.push_back(std::move(item.second));
      return true;
    });
  }
  // The meter has all drives' writers to measure.
  for (const Lingering& gone : expired) {
    Drive* drive = drives_->Find(gone.inode.drive);
    if (drive == nullptr) {
      RemoveBacking(gone);
    } else {
      drive->Post([this, gone] { RemoveBacking(gone); });
    }
  }
}

// A file for a reader of a block that was replaced a moment ago; null if it is too late.
FilePtr Cache::TakeLingering(Ino ino) {
  Lingering gone;
  {
    MutexLock lock(side_mutex_);
    auto it = lingering_.find(ino);
    if (it == lingering_.end()) return nullptr;
    gone = std::move(it->second);
    lingering_.erase(it);
  }
  auto file = std::make_shared<File>(ino);
  file->drive = drives_->Find(gone.inode.drive);
  if (file->drive == nullptr) return nullptr;
  file->inode = std::move(gone.inode);
  file->published = true;
  file->nameless = true;
  file->replaced = true;
  file->accounted = gone.allocated;
  return file;
}

// The inode that has the name of `ino` now, where `ino` itself has been replaced. kStale if nobody
// remembers.
Result<Inode> Cache::SuccessorOf(Ino ino) {
  Ino parent = 0;
  std::string name;
  if (FilePtr file = open_.Find(ino)) {
    MutexLock lock(open_.mutex);
    parent = file->inode.parent;
    name = file->inode.name;
  } else {
    MutexLock lock(side_mutex_);
    auto it = lingering_.find(ino);
    if (it == lingering_.end()) return Code::kStale;
    parent = it->second.inode.parent;
    name = it->second.inode.name;
  }
  Result<Inode> inode = index_->Lookup(parent, name);
  if (!inode.ok()) return Code::kStale;
  return inode;
}

Status Cache::Unlink(Ino parent, std::string_view name, const Caller& caller) {
  const std::vector<FilePtr> provisional = WrittenUnder(parent, name, caller);
  Result<Inode> published = index_->Lookup(parent, name);
  FilePtr own = ChooseFor(caller, provisional, published.ok());
  if (published.ok() && published->IsDirectory()) return Code::kIsDirectory;
  if (own && !(published.ok() && published->ino == own->ino)) {
    {
      ChangeLock change(own->change);
      Drop(own);
    }
    Forget(own);
  }
  if (!published.ok()) return own ? Ok() : published.status();
  if (WasJustRead(published->ino, caller)) Suspect(*published);
  Removal removal;
  const int64_t now = clock_.WallNs();
  PFS_TRY(index_->Update([&](IndexTxn& txn) -> Status {
    removal.inodes.clear();
    const Ino ino = PFS_TRY(txn.Lookup(parent, name));
    const Inode inode = PFS_TRY(txn.Get(ino));
    if (inode.IsDirectory()) return Code::kIsDirectory;
    PFS_TRY(RemoveName(txn, inode, &removal));
    TouchDirectory(txn, parent, now);
    return Ok();
  }));
  Removed(removal);
  return Ok();
}

Status Cache::RemoveDirectory(Ino parent, std::string_view name) {
  Removal removal;
  const int64_t now = clock_.WallNs();
  PFS_TRY(index_->Update([&](IndexTxn& txn) -> Status {
    removal.inodes.clear();
    const Ino ino = PFS_TRY(txn.Lookup(parent, name));
    const Inode inode = PFS_TRY(txn.Get(ino));
    if (!inode.IsDirectory()) return Code::kNotDirectory;
    // Files that only their writers see count too: they are about to be published here.
    const bool children = PFS_TRY(txn.HasChildren(ino));
    if (children || open_.HasProvisional(ino)) return Code::kNotEmpty;
    PFS_TRY(RemoveName(txn, inode, &removal));
    TouchDirectory(txn, parent, now);
    return Ok();
  }));
  Removed(removal);
  return Ok();
}

Evictor::Outcome Cache::EvictBatch(const std::vector<Residents::Victim>& victims) {
  Evictor::Outcome outcome;
  const Going going = WholeGroups(victims, &outcome);
  try {
    if (!going.blocks.empty()) outcome.freed_bytes = EvictAll(going);
  } catch (...) {
    for (const Ino ino : going.blocks) residents_->PutBack(ino);
    FoldersDecided();
    throw;
  }
  FoldersDecided();
  return outcome;
}

uint64_t Cache::EvictAll(const Going& going) {
  Removal blocks, rest;
  Status status = index_->Update([&](IndexTxn& txn) -> Status {
    blocks.inodes.clear();
    rest.inodes.clear();
    for (const Ino ino : going.blocks) {
      Result<Inode> inode = txn.Get(ino);
      if (inode.ok()) PFS_TRY(RemoveName(txn, *inode, &blocks));
    }
    return RemoveRest(txn, going.rest, &rest);
  });
  if (!status.ok()) {
    spdlog::warn("evicting: {}", status.ToString());
    for (const Ino ino : going.blocks) residents_->PutBack(ino);
    return 0;
  }
  inodes_.Subtract(blocks.inodes.size());
  const uint64_t freed = RemoveEvicted(blocks.inodes);
  Removed(rest);
  for (const Inode& inode : rest.inodes) {
    NoteEmptied(inode.parent);
    Tell([&](CacheListener& listener) { listener.OnInvalid(inode.parent, inode.name); });
  }
  return freed;
}

// By the drives, each on its own; one that does not answer goes on later, and is not waited for.
uint64_t Cache::RemoveEvicted(const std::vector<Inode>& inodes) {
  const auto freed = std::make_shared<std::atomic<uint64_t>>(0);
  for (auto& drive : drives_->drives()) {
    std::vector<Inode> own;
    std::copy_if(inodes.begin(), inodes.end(), std::back_inserter(own),
                 [&](const Inode& inode) { return inode.drive == drive->slot(); });
    if (own.empty()) continue;
    const auto evict = [this, freed, own = std::move(own)] {
      for (const Inode& inode : own) freed->fetch_add(EvictOne(inode));
    };
    if (drives_->drives().size() == 1) {
      evict();
    } else {
      drive->PostAndWait(evict, kEvictWaitMs);
    }
  }
  return freed->load();
}

// Removes the backing file of a block whose name is gone already; if that fails the block gets its
// name back.
uint64_t Cache::EvictOne(const Inode& inode) {
  Drive* drive = drives_->Find(inode.drive);
  const Status status = drive == nullptr ? Ok() : drive->Note(drive->Unlink(inode.block, true));
  if (!status.ok()) {
    counters_.undeletable_blocks.fetch_add(1, std::memory_order_relaxed);
    spdlog::warn("cannot evict {} on {}: {}", PathOf(inode.parent) + "/" + inode.name,
                 drive->path(), status.ToString());
    const Status restored = index_->Update([&](IndexTxn& txn) -> Status {
      PFS_TRY(txn.Insert(inode));
      return txn.RemoveTrash({inode.block, inode.drive});
    });
    if (restored.ok()) inodes_.Add(1);
    // Without its folder it has no name any more: trash, for the next start.
    restored.ok() ? residents_->PutBack(inode.ino) : (void)residents_->Remove(inode.ino);
    return 0;
  }
  const uint64_t allocated = residents_->Remove(inode.ino).allocated;
  budget_->Account(-static_cast<int64_t>(allocated), 0);
  {
    MutexLock lock(side_mutex_);
    trash_done_.push_back({inode.block, inode.drive});
    accesses_.erase(inode.ino);
  }
  NoteEmptied(inode.parent);
  counters_.evicted_blocks.fetch_add(1, std::memory_order_relaxed);
  counters_.evicted_bytes.fetch_add(allocated, std::memory_order_relaxed);
  Tell([&](CacheListener& listener) { listener.OnGone(inode.ino); });
  return allocated;
}

// A block whose bytes are not what was sealed: absent at once, for everybody, and its file kept for
// inspection.
void Cache::DropCorrupt(Ino ino) {
  const Result<Inode> found = index_->Get(ino);
  if (!found.ok()) return;
  const int64_t kept = found->IsFile() ? quarantine_->Keep(found->drive, found->block) : 0;
  Removal removal;
  Inode inode;
  const Status status = index_->Update([&](IndexTxn& txn) -> Status {
    removal.inodes.clear();
    inode = PFS_TRY(txn.Get(ino));
    // It was renamed while it was read, and may be written since.
    if (inode.state == FileState::kPosix) return Code::kRejected;
    return RemoveName(txn, inode, &removal);
  });
  budget_->Account(kept, 0);
  if (!status.ok()) {
    if (kept != 0) budget_->Account(quarantine_->Drop(found->drive, found->block), 0);
    return;
  }
  counters_.corrupt_blocks.fetch_add(1, std::memory_order_relaxed);
  spdlog::error("{}/{} does not match its checksum and is dropped; its file is {} on drive {}",
                PathOf(inode.parent), inode.name,
                kept != 0 ? "quarantine/" + ToHex(inode.block) : "not kept", inode.drive);
  Removed(removal);
  Tell([&](CacheListener& listener) { listener.OnInvalid(inode.parent, inode.name); });
}

}  // namespace prefixfs
