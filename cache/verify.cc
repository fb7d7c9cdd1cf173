// Verify: gives sealed blocks their checksum, and checks it where the bytes may not be the sealed
// ones.
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include "cache/cache.h"

namespace prefixfs {

// One bad sector costs one block; only a drive that does not answer at all is given up.
void Cache::BlockUnreadable(Ino ino, Drive& drive) {
  if (drive.Note(drive.Space().status()).ok()) DropCorrupt(ino);
}

// An ordinary file, closed a moment ago: settling it once more counts what it takes without its
// preallocation.
void Cache::Remeasure(const Inode& inode) {
  if (open_.Find(inode.ino)) return;  // its own last close comes
  Result<HandlePtr> handle = OpenPosix(inode, 0, MakeCaller(0, 0, 0), false);
  if (handle.ok()) Release(std::move(handle).value());
}

// Nothing for a block that is gone by now, has a checksum, or cannot be read.
std::optional<Cache::Computed> Cache::ComputeChecksum(Ino ino) {
  Result<Inode> inode = index_->Get(ino);
  if (inode.ok() && inode->state == FileState::kPosix) Remeasure(*inode);
  if (!inode.ok() || inode->state != FileState::kSealed ||
      inode->checksum_kind != ChecksumKind::kNone)
    return std::nullopt;
  Drive* drive = drives_->Find(inode->drive);
  if (drive == nullptr) return std::nullopt;
  Result<Fd> fd = drive->OpenSealed(inode->block);
  if (!fd.ok()) {
    if (!fd.status().Is(Code::kNotFound)) (void)drive->Note(fd.status()).ok();
    return std::nullopt;
  }
  Result<Digest> digest = Checksums::Compute(fd->get(), inode->size);
  if (!digest.ok()) {
    digest.status().Is(Code::kCorrupt) ? DropCorrupt(ino) : BlockUnreadable(ino, *drive);
    return std::nullopt;
  }
  // Before the checksum is stored: a start looks for blocks that have one in blocks/ only.
  if (!drive->Note(drive->Publish(inode->block)).ok()) return std::nullopt;
  struct stat now;
  const bool measured = ::fstat(fd->get(), &now) == 0;
  const uint64_t allocated =
      measured ? static_cast<uint64_t>(now.st_blocks) * 512 : inode->allocated;
  return Computed{std::move(inode).value(), *digest, allocated};
}

// On the checksum thread.
void Cache::ChecksumBlocks(const std::vector<Ino>& blocks) {
  std::vector<Computed> computed;
  for (const Ino ino : blocks) {
    if (std::optional<Computed> one = ComputeChecksum(ino)) computed.push_back(*std::move(one));
  }
  std::vector<const Computed*> stored;
  const Status status = index_->Update([&](IndexTxn& txn) -> Status {
    stored.clear();
    for (const Computed& one : computed) {
      Result<Inode> inode = txn.Get(one.inode.ino);
      if (!inode.ok() || inode->state != FileState::kSealed || inode->block != one.inode.block)
        continue;
      inode->checksum_kind = ChecksumKind::kXxh3_128;
      inode->checksum = one.digest;
      inode->allocated = one.allocated;
      PFS_TRY(txn.Put(*inode));
      stored.push_back(&one);
    }
    return Ok();
  });
  if (!status.ok()) return;
  for (const Computed* one : stored) {
    const Ino ino = one->inode.ino;
    // Preallocation that the filesystem took back after the last close.
    if (const int64_t delta = residents_->SetAllocated(ino, one->allocated); delta != 0)
      budget_->Account(delta, 0);
    RefreshHeader(ino);
  }
}

// kOk, or kNotFound for a block that is not what was sealed: it has been dropped.
Status Cache::VerifyResident(Ino ino) {
  const Inode inode = PFS_TRY(index_->Get(ino));
  Drive* drive = drives_->Find(inode.drive);
  if (drive == nullptr) return Code::kNotFound;
  Result<Fd> fd = drive->OpenSealed(inode.block);
  if (!fd.ok()) return drive->Note(fd.status());
  Result<Digest> digest = Checksums::Compute(fd->get(), inode.size);
  if (!digest.ok() && !digest.status().Is(Code::kCorrupt)) {
    BlockUnreadable(ino, *drive);
    return Code::kNotFound;
  }
  // Without a checksum there is nothing to compare with yet, unless a crash of the system lies in
  // between.
  const bool young =
      inode.checksum_kind == ChecksumKind::kNone && !inode.Has(inode_flag::kUnverified);
  if (!digest.ok() || (!young && *digest != inode.checksum)) {
    DropCorrupt(ino);
    return Code::kNotFound;
  }
  residents_->SetVerified(ino);
  if (!inode.Has(inode_flag::kUnverified)) return Ok();
  return index_->Update([&](IndexTxn& txn) -> Status {
    Inode stored = PFS_TRY(txn.Get(ino));
    stored.flags &= ~inode_flag::kUnverified;
    return txn.Put(stored);
  });
}

}  // namespace prefixfs
