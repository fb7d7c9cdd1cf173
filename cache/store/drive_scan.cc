// Walking a drive, as the rebuild does, and the records of what has no backing file.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "cache/store/drive.h"
#include "cache/store/layout.h"
#include "cache/store/system.h"

namespace prefixfs {
namespace {

// O_NONBLOCK: a foreign FIFO must not stop the walk. O_NOATIME: reading the whole drive must not
// rewrite its inodes.
constexpr int kScanFlags = O_RDONLY | O_NONBLOCK | O_NOATIME;

bool IsLowerHex(std::string_view text, size_t digits) {
  if (text.size() != digits) return false;
  for (const char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

// Calls `visit(directory, name)` for what lies in those directories of `dir` whose names have
// `digits` hex digits. Returns how many entries of `dir` were something else.
Result<uint64_t> ForEachFannedOut(int dir, size_t digits,
                                  const std::function<void(int directory, const std::string& fan,
                                                           const std::string& name)>& visit) {
  uint64_t foreign = 0;
  PFS_TRY(ForEachEntry(dir, [&](const std::string& fan) -> Status {
    if (!IsLowerHex(fan, digits)) {
      ++foreign;
      return Ok();
    }
    Result<Fd> directory = OpenAt(dir, fan, O_RDONLY | O_DIRECTORY);
    if (directory.status().Is(Code::kNotDirectory) || directory.status().Is(Code::kCorrupt)) {
      ++foreign;
      return Ok();
    }
    if (!directory.ok()) return directory.status();
    return ForEachEntry(directory->get(), [&](const std::string& name) {
      visit(directory->get(), fan, name);
      return Ok();
    });
  }));
  return foreign;
}

// Reads the header of one published file; fills `st` as far as that is known.
Result<Inode> ReadBlock(int directory, const std::string& name, const BlockId& block,
                        struct stat* st) {
  if (fstatat(directory, name.c_str(), st, AT_SYMLINK_NOFOLLOW) != 0) {
    const int error = errno;
    *st = {};
    return Failure(error, "stat " + name);
  }
  if (!S_ISREG(st->st_mode)) return Status(Code::kCorrupt, name + " is not a regular file");
  const Fd file = PFS_TRY(OpenAt(directory, name, kScanFlags));
  Inode inode = PFS_TRY(Drive::ReadHeader(file.get()));
  if (inode.block != block) return Status(Code::kCorrupt, "the header names another block");
  return inode;
}

Result<Inode> ReadRecord(int directory, const std::string& name) {
  const Fd file = PFS_TRY(OpenAt(directory, name, kScanFlags));
  Result<std::string> record = ReadRecordXattr(file.get());
  if (record.status().Is(Code::kNotFound)) record = ReadAll(file.get(), kMaxRecord);
  if (!record.ok()) return record.status();
  Inode inode = PFS_TRY(DecodeRecord(AsBytes(*record)));
  if (RecordName(inode.ino) != name) return Status(Code::kCorrupt, "the record is another inode's");
  return inode;
}

void ReportForeign(const std::string& path, const char* directory, uint64_t foreign) {
  if (foreign > 0) spdlog::warn("{}/{}: {} foreign entries ignored", path, directory, foreign);
}

// The record becomes the content of the file, for filesystems whose xattrs are too small for it.
Status PutContent(int fd, std::string_view record) {
  PFS_TRY(WriteAll(fd, record));
  if (ftruncate(fd, static_cast<off_t>(record.size())) != 0) return Failure(errno, "truncate");
  if (fremovexattr(fd, kHeaderXattr) != 0 && errno != ENODATA) {
    return Failure(errno, "remove extended attribute");
  }
  return Ok();
}

Status PutXattr(int fd, std::string_view record) {
  if (fsetxattr(fd, kHeaderXattr, record.data(), record.size(), 0) == 0) {
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && ftruncate(fd, 0) != 0) {
      return Failure(errno, "truncate");
    }
    return Ok();
  }
  const bool too_long = errno == ENOSPC || errno == E2BIG || errno == ERANGE;
  if (!too_long) return Failure(errno, "write record");
  return PutContent(fd, record);
}

}  // namespace

std::string RecordName(Ino ino) {
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(ino));
  return name;
}

std::string RecordDirectory(Ino ino) { return RecordName(ino).substr(14); }

Result<std::string> ReadRecordXattr(int fd) {
  std::string record(kMaxRecord, '\0');
  const ssize_t n = fgetxattr(fd, kHeaderXattr, record.data(), record.size());
  if (n < 0 && errno == ERANGE) return Status(Code::kCorrupt, "the header is too long");
  if (n < 0) return Failure(errno, "read header");
  record.resize(static_cast<size_t>(n));
  return record;
}

Status Drive::ForEachBlock(
    const std::function<void(const BlockId&, Result<Inode>, const struct stat&)>& visit) {
  PFS_TRY(CheckHealthy(*this));
  uint64_t foreign_names = 0;
  const auto walked = ForEachFannedOut(
      blocks_.get(), kFanOutDigits,
      [&](int directory, const std::string& fan, const std::string& name) {
        const Result<BlockId> block = BlockIdFromHex(name);
        if (!block.ok() || !IsLowerHex(name, 32) || BlockDirectory(*block) != fan) {
          ++foreign_names;
          return;
        }
        struct stat st = {};
        Result<Inode> inode = ReadBlock(directory, name, *block, &st);
        visit(*block, std::move(inode), st);
      });
  if (!walked.ok()) return Note(walked.status());
  ReportForeign(path_, "blocks", *walked + foreign_names);
  return Ok();
}

Result<std::vector<BlockId>> Drive::Incoming() {
  PFS_TRY(CheckHealthy(*this));
  std::vector<BlockId> blocks;
  uint64_t foreign = 0;
  const Status walked = ForEachEntry(incoming_.get(), [&](const std::string& name) -> Status {
    Result<BlockId> block = BlockIdFromHex(name);
    if (block.ok()) {
      blocks.push_back(*block);
    } else {
      ++foreign;
    }
    return Ok();
  });
  if (!walked.ok()) return Note(walked);
  ReportForeign(path_, "incoming", foreign);
  return blocks;
}

Result<std::vector<Drive::QuarantinedFile>> Drive::Quarantined() {
  PFS_TRY(CheckHealthy(*this));
  std::vector<QuarantinedFile> files;
  uint64_t foreign = 0;
  const Status walked = ForEachEntry(quarantine_.get(), [&](const std::string& name) -> Status {
    const Result<BlockId> block = BlockIdFromHex(name);
    struct stat st;
    if (!block.ok() || fstatat(quarantine_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      ++foreign;
      return Ok();
    }
    files.push_back({*block, static_cast<uint64_t>(st.st_blocks) * 512,
                     st.st_ctim.tv_sec * 1'000'000'000 + st.st_ctim.tv_nsec});
    return Ok();
  });
  if (!walked.ok()) return Note(walked);
  ReportForeign(path_, "quarantine", foreign);
  return files;
}

Status Drive::PutRecord(const Inode& inode) {
  PFS_TRY(CheckHealthy(*this));
  const Call call(*this, Wait::kMetadata, true);
  const std::string directory = RecordDirectory(inode.ino);
  const std::string name = directory + "/" + RecordName(inode.ino);
  constexpr int kFlags = O_RDWR | O_CREAT | O_NONBLOCK;
  Result<Fd> file = OpenAt(records_.get(), name, kFlags, kFileMode);
  if (file.status().Is(Code::kNotFound)) {
    PFS_TRY(Note(MakeDirectoryAt(records_.get(), directory)));
    file = OpenAt(records_.get(), name, kFlags, kFileMode);
  }
  if (!file.ok()) return Note(file.status());
  return Note(PutXattr(file->get(), EncodeRecord(inode, RecordUse::kHeader)));
}

Status Drive::RemoveRecord(Ino ino) {
  PFS_TRY(CheckHealthy(*this));
  const Call call(*this, Wait::kMetadata, true);
  return Note(UnlinkAt(records_.get(), RecordDirectory(ino) + "/" + RecordName(ino)));
}

Result<Fd> Drive::OpenRecord(Ino ino) {
  PFS_TRY(CheckHealthy(*this));
  const Call call(*this, Wait::kMetadata, false);
  Result<Fd> file =
      OpenAt(records_.get(), RecordDirectory(ino) + "/" + RecordName(ino), O_RDONLY | O_NONBLOCK);
  if (!file.ok()) return Note(file.status());
  return file;
}

Status Drive::ForEachRecord(const std::function<void(Result<Inode>)>& visit) {
  PFS_TRY(CheckHealthy(*this));
  uint64_t foreign_names = 0;
  const auto walked = ForEachFannedOut(
      records_.get(), 2, [&](int directory, const std::string& fan, const std::string& name) {
        if (!IsLowerHex(name, 16) || name.substr(14) != fan) {
          ++foreign_names;
          return;
        }
        visit(ReadRecord(directory, name));
      });
  if (!walked.ok()) return Note(walked.status());
  ReportForeign(path_, "records", *walked + foreign_names);
  return Ok();
}

}  // namespace prefixfs
