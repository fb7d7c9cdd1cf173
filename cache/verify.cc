// Verify: gives sealed blocks their checksum, and checks it where the bytes may not be the sealed
// ones.
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include "cache/cache.h"

namespace prefixfs {

// One bad sector costs one block; only a drive that does not answer at all is given up. What this
// process lacks just now costs nothing.
void Cache::BlockUnreadable(Ino ino, Drive& drive, const Status& why) {
  if (why.Is(Code::kNoMemory) || why.Is(Code::kNoDescriptors)) return;
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
  if (JudgeSuspect(ino)) return std::nullopt;
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
  // Blocks that were written past the page cache cost a read of the drive.
  if (!IsCached(fd->get(), 0, inode->size))
    counters_.checksum_reread.fetch_add(inode->size, std::memory_order_relaxed);
  Result<Digest> digest = Checksums::ComputeAtLeisure(fd->get(), inode->size);
  if (!digest.ok()) {
    digest.status().Is(Code::kCorrupt) ? DropCorrupt(ino)
                                       : BlockUnreadable(ino, *drive, digest.status());
    return std::nullopt;
  }
  // Both before the checksum is stored: a start looks for blocks that have one in blocks/ only, and
  // takes it that they have their header.
  if (!drive->Note(drive->Publish(inode->block)).ok()) return std::nullopt;
  if (!WriteFirstHeader(ino, *digest)) return std::nullopt;
  struct stat now;
  const bool measured = ::fstat(fd->get(), &now) == 0;
  const uint64_t allocated =
      measured ? static_cast<uint64_t>(now.st_blocks) * 512 : inode->allocated;
  return Computed{std::move(inode).value(), *digest, allocated};
}

// The header of a block as it will be once its checksum is stored.
bool Cache::WriteFirstHeader(Ino ino, const Digest& digest) {
  Result<Inode> inode = index_->Get(ino);
  Drive* drive = inode.ok() ? drives_->Find(inode->drive) : nullptr;
  if (drive == nullptr) return false;
  MutexLock turn(HeaderTurn(ino, *drive));
  inode = index_->Get(ino);
  if (!inode.ok() || inode->state != FileState::kSealed) return false;
  inode->checksum_kind = ChecksumKind::kXxh3_128;
  inode->checksum = digest;
  return WriteHeader(*inode, *drive);
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

// What is on the drive, or in the page cache, compared with what was sealed.
Cache::Verdict Cache::CheckBytes(const Inode& inode, bool from_drive, Fd* opened) {
  Drive* drive = drives_->Find(inode.drive);
  if (drive == nullptr) return Verdict::kGone;
  Result<Fd> fd = drive->OpenSealed(inode.block);
  if (!fd.ok()) {
    const Status status = drive->Note(fd.status());
    if (!status.Is(Code::kNotFound) && !status.Is(Code::kCorrupt)) return Verdict::kGone;
    // Whoever removes a block takes it out of the index first.
    return index_->Get(inode.ino).ok() ? Verdict::kDamaged : Verdict::kGone;
  }
  const Result<Digest> digest =
      from_drive ? Checksums::ComputeFromDrive(fd->get(), inode.size, drive->direct_alignment())
                 : Checksums::Compute(fd->get(), inode.size);
  if (!digest.ok() && !digest.status().Is(Code::kCorrupt)) {
    BlockUnreadable(inode.ino, *drive, digest.status());
    return Verdict::kGone;
  }
  // Without a checksum there is nothing to compare with yet, unless a crash of the system lies in
  // between.
  const bool young =
      inode.checksum_kind == ChecksumKind::kNone && !inode.Has(inode_flag::kUnverified);
  if (!digest.ok() || (!young && *digest != inode.checksum)) return Verdict::kDamaged;
  *opened = std::move(fd).value();
  return Verdict::kWhole;
}

// kOk, or kNotFound for a block that is not what was sealed: it has been dropped.
Status Cache::VerifyResident(Ino ino) {
  const Inode inode = PFS_TRY(index_->Get(ino));
  Fd fd;
  const Verdict verdict = CheckBytes(inode, false, &fd);
  if (verdict == Verdict::kDamaged) DropCorrupt(ino);
  if (verdict != Verdict::kWhole) return Code::kNotFound;
  counters_.verified_blocks.fetch_add(1, std::memory_order_relaxed);
  return MarkVerified(inode);
}

Status Cache::MarkVerified(const Inode& inode) {
  residents_->SetVerified(inode.ino);
  if (!inode.Has(inode_flag::kUnverified)) return Ok();
  return index_->Update([&](IndexTxn& txn) -> Status {
    Inode stored = PFS_TRY(txn.Get(inode.ino));
    stored.flags &= ~inode_flag::kUnverified;
    return txn.Put(stored);
  });
}

// On the scrubber's thread. Returns the bytes that were read.
uint64_t Cache::ScrubBlock(Ino ino) {
  const Result<Inode> inode = index_->Get(ino);
  if (!inode.ok() || inode->state != FileState::kSealed ||
      inode->checksum_kind == ChecksumKind::kNone)
    return 0;
  Fd fd;
  const Verdict verdict = CheckBytes(*inode, true, &fd);
  if (verdict == Verdict::kGone) return 0;
  if (verdict == Verdict::kDamaged) {
    DropCorrupt(ino);
    return inode->size;
  }
  if (Status status = MarkVerified(*inode); !status.ok())
    spdlog::warn("scrubbing {}: {}", inode->name, status.ToString());
  // A rebuild would drop a block without its header, or put it under an old name.
  const Result<Inode> header = Drive::ReadHeader(fd.get());
  const bool same = header.ok() && header->ino == ino && header->parent == inode->parent &&
                    header->name == inode->name && header->checksum == inode->checksum;
  if (!same) RefreshHeader(ino);
  return inode->size;
}

std::vector<Ino> Cache::ScrubNext(Ino after) const {
  constexpr size_t kPiece = 256;
  std::vector<Ino> inos;
  const Result<std::vector<Inode>> piece = index_->Scan(after, kPiece);
  if (!piece.ok()) return inos;
  for (const Inode& inode : *piece) inos.push_back(inode.ino);
  return inos;
}

// A process that unlinks what it has just read thinks little of it. The block goes, as it was told
// to, and then we look whether the process was right.
void Cache::Suspect(const Inode& inode) {
  // A client that reads blocks once and unlinks each is not held up by our looking.
  constexpr size_t kMostSuspects = 64;
  if (inode.state != FileState::kSealed || inode.checksum_kind == ChecksumKind::kNone) return;
  {
    MutexLock lock(side_mutex_);
    if (suspects_.size() >= kMostSuspects) return;
  }
  const int64_t kept = quarantine_->Keep(inode.drive, inode.block);
  if (kept == 0) return;
  budget_->Account(kept, 0);
  counters_.suspected_blocks.fetch_add(1, std::memory_order_relaxed);
  {
    MutexLock lock(side_mutex_);
    suspects_.emplace(inode.ino, inode);
  }
  checksums_->Enqueue(inode.ino);
}

bool Cache::JudgeSuspect(Ino ino) {
  Inode inode;
  {
    MutexLock lock(side_mutex_);
    const auto it = suspects_.find(ino);
    if (it == suspects_.end()) return false;
    inode = std::move(it->second);
    suspects_.erase(it);
  }
  Drive* drive = drives_->Find(inode.drive);
  if (drive == nullptr) return true;
  const Result<Fd> fd = drive->OpenQuarantined(inode.block);
  if (!fd.ok()) return true;
  const Result<Digest> digest =
      Checksums::ComputeFromDrive(fd->get(), inode.size, drive->direct_alignment());
  if (digest.ok() && *digest == inode.checksum) {
    budget_->Account(quarantine_->Drop(inode.drive, inode.block), 0);
    return true;
  }
  counters_.corrupt_blocks.fetch_add(1, std::memory_order_relaxed);
  spdlog::error("{}/{}, which its reader unlinked, did not match its checksum: {}/quarantine/{}",
                PathOf(inode.parent), inode.name, drive->path(), ToHex(inode.block));
  return true;
}

}  // namespace prefixfs
