#include "tools/fsck/blocks.h"

#include <sys/stat.h>

#include <cstring>
#include <map>

namespace prefixfs::fsck {

BlockCheck::BlockCheck(Scan& scan) : scan_(scan) {
  for (const Entry& entry : scan.catalog.entries()) {
    if (entry.IsFile() && entry.checksum_kind != 0) progress_.Expect(entry.size);
  }
}

void BlockCheck::Add(const BackingFile& file, uint64_t ino, Found found) {
  const std::string name = ino == 0 ? "" : scan_.PathOf(ino);
  Finding finding{.kind = found.kind, .severity = found.severity, .drive = file.drive->number};
  finding.path = file.path;
  finding.ino = ino;
  finding.what = name.empty() ? std::move(found.what) : name + ": " + found.what;
  finding.remedy = found.remedy;
  finding.drops_index = found.drops_index;
  if (found.remedy == Remedy::kMove) finding.target = BlockPath(file.block);
  scan_.report.Add(std::move(finding));
}

bool BlockCheck::IsInPlace(const BackingFile& file) {
  if (file.incoming || file.path != BlockPath(file.block)) return false;
  const Entry* entry = scan_.catalog.FindBlock(file.block);
  const int slot = file.drive->file.slot;
  return entry == nullptr || slot < 0 || slot == entry->drive;
}

void BlockCheck::Check(const BackingFile& file) {
  ++scan_.report.blocks;
  if (scan_.snapshot == nullptr) return JudgeAlone(file);
  Entry* entry = scan_.catalog.FindBlock(file.block);
  if (entry == nullptr) return CheckUnnamed(file);
  if (entry->Has(Entry::kTwice)) return;
  if (entry->Has(Entry::kFile)) {
    return Add(file, entry->ino,
               {.kind = Kind::kBlockCopy,
                .what = "its file was met before",
                .remedy = Remedy::kQuarantine});
  }
  entry->Set(Entry::kFile);
  CheckPlace(file, *entry);
  CheckNamed(file, *entry);
}

void BlockCheck::CheckUnnamed(const BackingFile& file) {
  if (file.incoming)
    return Add(file, 0, {.kind = Kind::kIncoming, .severity = Severity::kInfo, .what = "leftover"});
  const auto slot = static_cast<uint16_t>(file.drive->file.slot);
  if (scan_.trash.contains({slot, file.block}))
    return Add(file, 0, {.kind = Kind::kTrash, .severity = Severity::kInfo, .what = "leftover"});
  std::string header;
  const Result<Fd> fd = OpenToRead(file.drive->root.get(), file.path);
  if (fd.ok()) header = ReadHeader(fd->get()).ok() ? *ReadHeader(fd->get()) : "";
  Record record;
  // Its inode's record is damaged, which is reported: it is no orphan.
  const bool read = ReadRecord(header, &record).empty();
  if (read && scan_.catalog.IsDamaged(record.head.ino)) return;
  Add(file, 0,
      {.kind = Kind::kBlockOrphan,
       .what = read ? "was " + std::string(record.name) : "no inode names it",
       .remedy = Remedy::kQuarantine});
}

void BlockCheck::CheckPlace(const BackingFile& file, const Entry& entry) {
  if (file.drive->file.slot >= 0 && file.drive->file.slot != entry.drive) {
    Add(file, entry.ino,
        {.kind = Kind::kBlockDrive,
         .what = "its inode says slot " + std::to_string(entry.drive),
         .remedy = Remedy::kRebuildIndex,
         .drops_index = true});
  } else if (file.incoming && !entry.IsYoung()) {
    Add(file, entry.ino,
        {.kind = Kind::kBlockIncoming, .what = "it has a checksum", .remedy = Remedy::kMove});
  } else if (!file.incoming && file.path != BlockPath(file.block)) {
    Add(file, entry.ino,
        {.kind = Kind::kBlockFanOut,
         .what = "belongs in " + BlockPath(file.block),
         .remedy = Remedy::kMove});
  }
}

void BlockCheck::CheckNamed(const BackingFile& file, const Entry& entry) {
  const Result<Fd> fd = OpenToRead(file.drive->root.get(), file.path);
  struct stat st {};
  if (!fd.ok() || ::fstat(fd->get(), &st) != 0) {
    return Add(file, entry.ino,
               {.kind = Kind::kBlockUnreadable,
                .what = fd.status().message(),
                .remedy = Remedy::kQuarantine,
                .drops_index = true});
  }
  if (entry.Is(FileState::kOpen))
    Add(file, entry.ino,
        {.kind = Kind::kUnsettled, .severity = Severity::kInfo, .what = "was being written"});
  Record record;
  if (!ReadRecord(scan_.RecordBytes(entry.ino), &record).empty()) return;
  if (!CheckSize(file, entry, static_cast<uint64_t>(st.st_size))) return;
  if (entry.Is(FileState::kPosix) || entry.checksum_kind != 0) CheckHeader(file, record, fd->get());
  if (scan_.checksums && entry.Is(FileState::kSealed) && entry.checksum_kind != 0)
    CheckContent(file, record, fd->get());
}

// False if it is wrong, and everything else that could be said of the file follows from that.
bool BlockCheck::CheckSize(const BackingFile& file, const Entry& entry, uint64_t size) {
  if (size == entry.size || entry.Is(FileState::kOpen)) return true;
  const std::string what =
      "it has " + std::to_string(size) + " bytes, and its inode " + std::to_string(entry.size);
  // The file knows the size of an ordinary file best.
  if (entry.Is(FileState::kPosix)) {
    Add(file, entry.ino,
        {.kind = scan_.in_use ? Kind::kUnsettled : Kind::kBlockSize,
         .severity = scan_.lag(),
         .what = what,
         .remedy = Remedy::kRebuildIndex,
         .drops_index = true});
    return true;
  }
  if (entry.checksum_kind == 0 && scan_.in_use) {
    Add(file, entry.ino, {.kind = Kind::kDropped, .severity = Severity::kInfo, .what = what});
    return false;
  }
  Add(file, entry.ino,
      {.kind = Kind::kBlockSize, .what = what, .remedy = Remedy::kQuarantine, .drops_index = true});
  return false;
}

void BlockCheck::CheckHeader(const BackingFile& file, const Record& record, int fd) {
  const uint64_t ino = record.head.ino;
  const Result<std::string> bytes = ReadHeader(fd);
  if (bytes.status().Is(Code::kNotFound)) {
    return Add(file, ino,
               {.kind = Kind::kHeaderMissing,
                .severity = scan_.lag(),
                .what = "there is none",
                .remedy = Remedy::kWriteHeader});
  }
  Record header;
  std::string fault = bytes.ok() ? ReadRecord(*bytes, &header) : bytes.status().message();
  if (fault.empty() && std::memcmp(header.head.block, record.head.block, 16) != 0)
    fault = "it is another block's";
  if (!fault.empty()) {
    return Add(file, ino,
               {.kind = Kind::kHeaderDamaged, .what = fault, .remedy = Remedy::kWriteHeader});
  }
  const std::string fields = Differences(record, header);
  if (fields.empty()) return;
  Add(file, ino,
      {.kind = Kind::kHeaderDiffers,
       .severity = scan_.lag(),
       .what = "in " + fields,
       .remedy = Remedy::kWriteHeader});
}

void BlockCheck::CheckContent(const BackingFile& file, const Record& record, int fd) {
  const Result<Checksum> checksum = ChecksumOf(fd);
  scan_.report.checked_bytes += record.head.size;
  progress_.Add(record.head.size);
  if (checksum.ok() && std::memcmp(checksum->data(), record.head.checksum, 16) == 0) return;
  Add(file, record.head.ino,
      {.kind = checksum.ok() ? Kind::kBlockContent : Kind::kBlockUnreadable,
       .what =
           checksum.ok() ? "these are not the bytes that were sealed" : checksum.status().message(),
       .remedy = Remedy::kQuarantine,
       .drops_index = true});
}

// Of drives that are absent it is told how much is on them.
void BlockCheck::CheckMissing() {
  const uint32_t slots = scan_.slots();
  if (scan_.snapshot == nullptr && !scan_.is_whole_pool())
    scan_.report.Add({.kind = Kind::kDriveAbsent,
                      .severity = Severity::kInfo,
                      .what = "of " + std::to_string(slots) + " in the pool"});
  std::map<uint16_t, uint64_t> absent;
  for (const Entry& entry : scan_.catalog.entries()) {
    if (!entry.IsFile() || entry.Has(Entry::kFile) || entry.Has(Entry::kTwice)) continue;
    const Drive* drive = scan_.FindSlot(entry.drive);
    const BackingFile file{.drive = drive, .path = BlockPath(entry.block), .block = entry.block};
    if (drive != nullptr) {
      Add(file, entry.ino,
          {.kind = Kind::kBlockMissing,
           .what = "there is no such file",
           .remedy = Remedy::kRebuildIndex,
           .drops_index = true});
    } else if (slots > 0 && entry.drive >= slots) {
      scan_.AddToIndex(Kind::kBlockDrive, entry.ino,
                       "no drive ever had slot " + std::to_string(entry.drive));
    } else {
      ++absent[entry.drive];
    }
  }
  for (const auto& [slot, blocks] : absent) {
    scan_.report.Add(
        {.kind = Kind::kDriveAbsent,
         .severity = Severity::kInfo,
         .what = "slot " + std::to_string(slot) + ", with " + std::to_string(blocks) + " blocks"});
  }
}

// As a rebuild does: what it would drop is told, what it would believe must hold.
void BlockCheck::JudgeAlone(const BackingFile& file) {
  if (file.incoming)
    return Add(file, 0, {.kind = Kind::kIncoming, .severity = Severity::kInfo, .what = "leftover"});
  if (file.path != BlockPath(file.block)) {
    Add(file, 0,
        {.kind = Kind::kBlockFanOut,
         .what = "belongs in " + BlockPath(file.block),
         .remedy = Remedy::kMove});
  }
  const Result<Fd> fd = OpenToRead(file.drive->root.get(), file.path);
  struct stat st {};
  if (!fd.ok() || ::fstat(fd->get(), &st) != 0) {
    return Add(file, 0,
               {.kind = Kind::kBlockUnreadable,
                .what = fd.status().message(),
                .remedy = Remedy::kQuarantine});
  }
  const Result<std::string> bytes = ReadHeader(fd->get());
  if (bytes.status().Is(Code::kNotFound))
    return Add(file, 0,
               {.kind = Kind::kDropped, .severity = Severity::kInfo, .what = "it has no header"});
  Record header;
  std::string fault = bytes.ok() ? ReadRecord(*bytes, &header) : bytes.status().message();
  if (fault.empty() && std::memcmp(header.head.block, file.block.data(), 16) != 0)
    fault = "it is another block's";
  if (!fault.empty()) {
    return Add(file, 0,
               {.kind = Kind::kHeaderDamaged, .what = fault, .remedy = Remedy::kQuarantine});
  }
  const std::string why = WhyDropped(header, static_cast<uint64_t>(st.st_size));
  if (!why.empty())
    return Add(file, 0, {.kind = Kind::kDropped, .severity = Severity::kInfo, .what = why});
  if (scan_.checksums && header.Has(FileState::kSealed)) CheckContent(file, header, fd->get());
}

std::string BlockCheck::WhyDropped(const Record& header, uint64_t size) {
  if (!header.Has(FileState::kPosix) && !header.has_checksum()) return "it has no checksum";
  if (!header.Has(FileState::kPosix) && header.head.size != size) return "not the sealed size";
  if (header.head.parent != kRootIno && !scan_.directories.contains(header.head.parent))
    return "its directory is gone";
  return scan_.dropped.insert(header.head.ino).second ? "" : "its number is another's";
}

}  // namespace prefixfs::fsck
