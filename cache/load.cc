// Load: what a start finds. The eviction order and the byte account come from the index before the
// first request; what the last daemon left half done is finished or removed.
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cache/cache.h"

namespace prefixfs {
namespace {
constexpr int64_t kCatchUpNs =
    5 * kNsPerSecond;  // far longer than a change takes to be written out
}

// Files whose name nobody else had seen when the last daemon went: removed, unless the index has
// them already and only the move out of incoming/ is missing.
Status Cache::EmptyIncoming(const std::set<BlockId>& named) {
  for (auto& drive : drives_->drives()) {
    const auto blocks = drive->Incoming();
    if (!blocks.ok()) {
      (void)drive->Note(blocks.status()).ok();
      continue;
    }
    for (const BlockId& block : *blocks) {
      const Status status =
          named.contains(block) ? drive->Publish(block) : drive->Unlink(block, false);
      if (!drive->Note(status).ok())
        spdlog::warn("incoming {}: {}", ToHex(block), status.ToString());
    }
  }
  return Ok();
}

Status Cache::EmptyTrash() {
  for (const TrashEntry& entry : PFS_TRY(index_->Trash())) {
    Drive* drive = drives_->Find(entry.drive);
    if (drive == nullptr) continue;
    const Status status = drive->Note(drive->Unlink(entry.block, true));
    if (!status.ok()) {
      spdlog::warn("trash {}: {}", ToHex(entry.block), status.ToString());
      continue;
    }
    MutexLock lock(side_mutex_);
    trash_done_.push_back(entry);
  }
  FlushTrash();
  return Ok();
}

// A file that was visible when the last daemon died, or an ordinary one: its writer is gone, so
// what is there is what it is.
Status Cache::SettleLeftOpen(Inode* inode) {
  Drive* drive = drives_->Find(inode->drive);
  if (drive == nullptr) return Ok();
  Result<Fd> fd = drive->OpenWritable(inode->block);
  if (!fd.ok()) return drive->Note(fd.status());
  struct stat now;
  if (::fstat(fd->get(), &now) != 0) return drive->Note(Status::FromErrno(errno, "fstat"));
  if (inode->state != FileState::kPosix) inode->state = FileState::kSealed;
  inode->size = static_cast<uint64_t>(now.st_size);
  inode->allocated = static_cast<uint64_t>(now.st_blocks) * 512;
  inode->mtime_ns = now.st_mtim.tv_sec * kNsPerSecond + now.st_mtim.tv_nsec;
  return index_->Update([&](IndexTxn& txn) { return txn.Put(*inode); });
}

// After a kill: what was committed in the last moments may not have reached the headers and records
// from which an index is made anew. And what ordinary files hold is known to their filesystem
// alone.
// Returns by how much the bytes of ordinary files differ from what the index had.
int64_t Cache::CatchUp(const std::vector<Ino>& changed) {
  int64_t more = 0;
  for (const Ino ino : changed) {
    Result<Inode> inode = index_->Get(ino);
    if (!inode.ok()) continue;
    if (inode->state == FileState::kPosix) {
      const auto before = static_cast<int64_t>(inode->allocated);
      if (Status status = SettleLeftOpen(&*inode); !status.ok())
        spdlog::warn("{}: {}", inode->name, status.ToString());
      more += static_cast<int64_t>(inode->allocated) - before;
    }
    inode->IsFile() ? RefreshHeader(ino) : WriteRecord(*inode);
  }
  return more;
}

Status Cache::Load() {
  for (auto& [id, text] : PFS_TRY(index_->Models())) {
    MutexLock lock(side_mutex_);
    models_.emplace(id, text);
  }
  PFS_TRY(EmptyTrash());
  struct Found {
    int64_t last_use_ns;
    Ino ino;
    Residents::Block block;
    bool unchecked;
  };
  std::vector<Found> found;
  std::vector<Ino> left_open;
  const bool killed = !index_->lineage().closed_clean && !index_->lineage().fresh;
  std::vector<std::pair<int64_t, Ino>> changed;
  int64_t last_change_ns = 0;
  std::set<BlockId> young_blocks;
  uint64_t used = 0;
  PFS_TRY(index_->ForEachNumbers([&](const Inode& inode) {
    inodes_.Add(1);
    if (killed) {
      last_change_ns = std::max(last_change_ns, inode.ctime_ns);
      const bool posix = inode.state == FileState::kPosix;
      if (posix || inode.ctime_ns >= last_change_ns - kCatchUpNs)
        changed.emplace_back(posix ? INT64_MAX : inode.ctime_ns, inode.ino);
    }
    if (!inode.IsFile()) return true;
    if (inode.state == FileState::kPosix) used += inode.allocated;
    // Published a moment ago, perhaps without its move out of incoming/.
    if (inode.state != FileState::kSealed || inode.checksum_kind == ChecksumKind::kNone)
      young_blocks.insert(inode.block);
    if (inode.state == FileState::kOpen) left_open.push_back(inode.ino);
    if (inode.model != 0) {
      MutexLock lock(side_mutex_);
      NoteModelHome(inode.model, inode.parent);
    }
    if (inode.state == FileState::kSealed && drives_->Find(inode.drive) != nullptr) {
      found.push_back({inode.atime_ns,
                       inode.ino,
                       {inode.allocated, inode.model, inode.drive,
                        config_.verify != "never" || inode.Has(inode_flag::kUnverified)},
                       inode.checksum_kind == ChecksumKind::kNone});
    }
    return true;
  }));
  PFS_TRY(EmptyIncoming(young_blocks));
  std::vector<Ino> to_catch_up;
  for (const auto& [at_ns, ino] : changed) {
    if (at_ns >= last_change_ns - kCatchUpNs) to_catch_up.push_back(ino);
  }
  used += static_cast<uint64_t>(CatchUp(to_catch_up));
  for (const Ino ino : left_open) {
    Inode inode = PFS_TRY(index_->Get(ino));
    if (Status status = SettleLeftOpen(&inode); !status.ok()) {
      // Only what is wrong with the file itself costs the block.
      const Drive* drive = drives_->Find(inode.drive);
      if (drive == nullptr) continue;  // failed: settled at the next start
      if (!status.Is(Code::kNotFound) && !status.Is(Code::kCorrupt)) return status;
      spdlog::warn("{} was being written and is dropped: {}", inode.name, status.ToString());
      DropCorrupt(inode.ino);
      continue;
    }
    found.push_back(
        {inode.atime_ns, inode.ino, {inode.allocated, inode.model, inode.drive, false}, true});
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.last_use_ns < b.last_use_ns; });
  residents_->Reserve(found.size());
  for (const Found& block : found) {
    residents_->Insert(block.ino, block.block);
    used += block.block.allocated;
    if (block.unchecked) checksums_->Enqueue(block.ino);
  }
  budget_->Account(static_cast<int64_t>(used), 0);
  return Ok();
}

}  // namespace prefixfs
