// The work on one drive: placing, opening and removing backing files, and noticing that the device
// is gone.
#include "cache/store/drive.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cache/store/layout.h"
#include "cache/store/system.h"

namespace prefixfs {

Status Drive::Note(Status status) {
  if ((status.Is(Code::kUnavailable) || status.Is(Code::kIo)) && !failed_.exchange(true)) {
    spdlog::error("drive {} has failed, its blocks are misses until the next start: {}", path_,
                  status.ToString());
  }
  return status;
}

Result<DriveSpace> Drive::Space() {
  PFS_TRY(CheckHealthy(*this));
  struct statvfs fs;
  struct stat st;
  if (fstatvfs(root_.get(), &fs) != 0 || fstat(root_.get(), &st) != 0) {
    return Note(Failure(errno, "statfs " + path_));
  }
  if ((fs.f_flag & ST_RDONLY) != 0) return Note(Failure(EROFS, path_));
  // statfs of a filesystem that has shut itself down still succeeds; asking for an attribute does
  // not.
  char byte;
  if (fgetxattr(root_.get(), kHeaderXattr, &byte, 1) < 0 && errno != ENODATA && errno != ERANGE) {
    PFS_TRY(Note(Failure(errno, path_)));
  }
  DriveSpace space;
  space.total_bytes = static_cast<uint64_t>(fs.f_blocks) * fs.f_frsize;
  space.free_bytes = static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
  space.total_files = fs.f_files;
  space.free_files = fs.f_ffree;
  space.fs_id = st.st_dev;
  return space;
}

Result<Fd> Drive::Create(const BlockId& block) {
  PFS_TRY(CheckHealthy(*this));
  const Call call(*this, Wait::kCreate, true);
  Result<Fd> file = OpenAt(incoming_.get(), ToHex(block), O_RDWR | O_CREAT | O_EXCL, kFileMode);
  if (!file.ok()) return Note(file.status());
  return file;
}

Result<Fd> Drive::Clone(int source, const BlockId& block) {
  if (!reflink_) return Status(Code::kUnsupported, path_ + " has no reflinks");
  Fd file = PFS_TRY(Create(block));
  const Call call(*this, Wait::kCreate, true);
  if (ioctl(file.get(), FICLONE, source) == 0) return file;
  const Status failure = Failure(errno, "clone");
  const Status removed = Note(UnlinkAt(incoming_.get(), ToHex(block)));
  if (!removed.ok()) spdlog::warn("{}: {}", path_, removed.ToString());
  return Note(failure);
}

Status Drive::Publish(const BlockId& block) {
  PFS_TRY(CheckHealthy(*this));
  const Call call(*this, Wait::kMetadata, true);
  const std::string from = ToHex(block), to = BlockPath(block);
  const auto rename = [&] {
    return renameat(incoming_.get(), from.c_str(), blocks_.get(), to.c_str()) == 0;
  };
  if (rename()) return Ok();
  if (errno != ENOENT) return Note(Failure(errno, "publish " + from));
  // The fan-out directory is not made yet, or the file was published before.
  PFS_TRY(Note(MakeDirectoryAt(blocks_.get(), BlockDirectory(block))));
  if (rename()) return Ok();
  const int error = errno;
  if (error == ENOENT && faccessat(blocks_.get(), to.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
    return Ok();
  }
  return Note(Failure(error, "publish " + from));
}

// A published file stays in incoming/ until its checksum is made, and may be moved between two
// looks.
Result<Fd> Drive::OpenWherever(int blocks, int incoming, const BlockId& block, int flags) {
  Result<Fd> file = OpenAt(blocks, BlockPath(block), flags);
  if (file.status().Is(Code::kNotFound)) file = OpenAt(incoming, ToHex(block), flags);
  if (file.status().Is(Code::kNotFound)) file = OpenAt(blocks, BlockPath(block), flags);
  return file;
}

Result<Fd> Drive::OpenWritable(const BlockId& block) {
  PFS_TRY(CheckHealthy(*this));
  const Call call(*this, Wait::kOpen, true);
  Result<Fd> file = OpenWherever(blocks_.get(), incoming_.get(), block, O_RDWR | O_NONBLOCK);
  if (!file.ok()) return Note(file.status());
  return file;
}

Result<Fd> Drive::OpenSealed(const BlockId& block, bool cached) {
  PFS_TRY(CheckHealthy(*this));
  const bool cloned = sealed_blocks_.valid();
  const int blocks = cloned ? sealed_blocks_.get() : blocks_.get();
  const int incoming = cloned ? sealed_incoming_.get() : incoming_.get();
  if (cached) {
    // A young block is in incoming/ still, and that it is not in blocks/ nobody has remembered.
    Result<Fd> file = OpenCachedAt(blocks, BlockPath(block), O_RDONLY | O_NONBLOCK);
    if (!file.ok()) file = OpenCachedAt(incoming, ToHex(block), O_RDONLY | O_NONBLOCK);
    return file.ok() ? std::move(file) : Code::kRejected;
  }
  const Call call(*this, Wait::kOpen, false);
  Result<Fd> file = OpenWherever(blocks, incoming, block, O_RDONLY | O_NONBLOCK);
  if (!file.ok()) return Note(file.status());
  return file;
}

Status Drive::Unlink(const BlockId& block, bool published) {
  PFS_TRY(CheckHealthy(*this));
  const Call call(*this, Wait::kRemove, true);
  const std::string name = ToHex(block), path = BlockPath(block);
  if (published && unlinkat(blocks_.get(), path.c_str(), 0) == 0) return Ok();
  if (published && errno != ENOENT) return Note(Failure(errno, "unlink " + path));
  if (unlinkat(incoming_.get(), name.c_str(), 0) == 0) return Ok();
  if (errno != ENOENT) return Note(Failure(errno, "unlink " + name));
  return published ? Note(UnlinkAt(blocks_.get(), path)) : Ok();
}

Result<uint64_t> Drive::Quarantine(const BlockId& block) {
  PFS_TRY(CheckHealthy(*this));
  const std::string name = ToHex(block), path = BlockPath(block);
  // As in OpenWherever, it may be moved between two looks.
  const auto link = [&](const Fd& directory, const std::string& from) {
    return linkat(directory.get(), from.c_str(), quarantine_.get(), name.c_str(), 0) == 0 ||
           errno == EEXIST;
  };
  if (!link(blocks_, path) && !link(incoming_, name) && !link(blocks_, path))
    return Note(Failure(errno, "quarantine " + name));
  struct stat st;
  if (fstatat(quarantine_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return Note(Failure(errno, "quarantine " + name));
  return static_cast<uint64_t>(st.st_blocks) * 512;
}

Result<Fd> Drive::OpenQuarantined(const BlockId& block) {
  PFS_TRY(CheckHealthy(*this));
  Result<Fd> file = OpenAt(quarantine_.get(), ToHex(block), O_RDONLY | O_NONBLOCK);
  if (!file.ok()) return Note(file.status());
  return file;
}

Status Drive::Unquarantine(const BlockId& block) {
  PFS_TRY(CheckHealthy(*this));
  return Note(UnlinkAt(quarantine_.get(), ToHex(block)));
}

Status Drive::WriteHeader(int fd, const Inode& inode) {
  PFS_TRY(CheckHealthy(*this));
  const Call call(*this, Wait::kMetadata, true);
  const std::string record = EncodeRecord(inode, RecordUse::kHeader);
  if (fsetxattr(fd, kHeaderXattr, record.data(), record.size(), 0) == 0) return Ok();
  const int error = errno;
  // A descriptor of the read-only clone says EROFS too; that is our bug and not the drive's end.
  struct statvfs fs;
  if (error == EROFS && fstatvfs(root_.get(), &fs) == 0 && (fs.f_flag & ST_RDONLY) == 0) {
    return Status(Code::kInvalid, "write header: the descriptor is of a sealed block");
  }
  return Note(Failure(error, "write header"));
}

Result<Inode> Drive::ReadHeader(int fd) {
  const std::string record = PFS_TRY(ReadRecordXattr(fd));
  return DecodeRecord(AsBytes(record));
}

}  // namespace prefixfs
