// Opening a drive: lock, format file, layout, and what the filesystem behind it can do.
#include <fcntl.h>
#include <linux/fs.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "cache/store/direct_io.h"
#include "cache/store/drive.h"
#include "cache/store/drive_format.h"
#include "cache/store/system.h"

namespace prefixfs {
namespace {

constexpr std::chrono::milliseconds kLockPatience{1000};
constexpr char kFormatFile[] = "PREFIXFS";
constexpr char kFormatDraft[] = "PREFIXFS.new";  // renamed over PREFIXFS
constexpr char kPidFile[] = "daemon.pid";
constexpr char kLogFile[] = "daemon.log";  // begun before the drive is opened
constexpr char kProbeFile[] = ".probe";
constexpr char kProbeClone[] = ".probe-clone";

Status AtPath(const std::string& path, const Status& status) {
  return Status(status.code(), path + ": " + status.message());
}

// An empty directory may become a drive; a fresh ext4 has lost+found, and a crash may leave a draft
// of the format.
Status CheckEmpty(int dir) {
  return ForEachEntry(dir, [](const std::string& name) {
    if (name == "lost+found" || name == kFormatDraft || name == kLogFile) return Ok();
    return Status(Code::kInvalid, "the directory is not empty and not a PrefixFS drive (it has \"" +
                                      name + "\"); give an empty or new directory");
  });
}

// What the kernel says about O_DIRECT on a file; a kernel before 6.1 is asked by opening it so, and
// then no drive in use asks for more than 4096.
uint32_t DirectAlignment(int fd) {
  struct statx stx {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 && (stx.stx_mask & STATX_DIOALIGN))
    return stx.stx_dio_offset_align;
  return ReopenDirect(fd).valid() ? 4096 : 0;
}

// Sets the header's xattr on a file and sees whether its extents can be shared and what O_DIRECT
// asks for. Both files are empty if the filesystem is full, which is enough for these questions.
Status Probe(int incoming, bool* reflink, uint32_t* direct_alignment) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC;
  Result<Fd> made = OpenAt(incoming, kProbeFile, kFlags, kFileMode);
  Result<Fd> second =
      made.ok() ? OpenAt(incoming, kProbeClone, kFlags, kFileMode) : Result<Fd>(Fd());
  const Status& status = made.ok() ? second.status() : made.status();
  // Without an inode to be had nothing can be tried, but a start is what evicts.
  if (status.Is(Code::kNoSpace)) {
    spdlog::warn("the filesystem is full: new versions are copied until the next start");
    return Ok();
  }
  PFS_TRY(status);
  const Fd file = std::move(made).value(), clone = std::move(second).value();
  const std::string header(256, 'h');
  if (fsetxattr(file.get(), kHeaderXattr, header.data(), header.size(), 0) != 0) {
    if (errno == EOPNOTSUPP) {
      return Status(Code::kInvalid,
                    "the filesystem has no trusted extended attributes (NFS and most network "
                    "filesystems have none); use a directory on a local XFS or ext4");
    }
    if (errno == EPERM) {
      return Status(Code::kInvalid,
                    "trusted extended attributes may not be set here; run as root with "
                    "CAP_SYS_ADMIN in the initial user namespace");
    }
    if (errno != ENOSPC && errno != EDQUOT) return Failure(errno, "set extended attribute");
  }
  const Status written = WriteAll(file.get(), std::string(4096, 'p'));
  if (!written.ok() && !written.Is(Code::kNoSpace)) return written;
  *reflink = ioctl(clone.get(), FICLONE, file.get()) == 0;
  *direct_alignment = DirectAlignment(file.get());
  return Ok();
}

}  // namespace

Result<std::unique_ptr<Drive>> Drive::Open(const std::string& path, std::string_view pool_uuid) {
  std::unique_ptr<Drive> drive(new Drive);
  drive->path_ = path;
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;  // the operator may give a symlink
  drive->root_ = Fd(open(path.c_str(), kFlags));
  if (!drive->root_.valid() && errno == ENOENT) {
    const Status made = MakePath(path);
    if (!made.ok()) return AtPath(path, made);
    drive->root_ = Fd(open(path.c_str(), kFlags));
  }
  if (!drive->root_.valid()) return Failure(errno, path);
  const auto open = [&]() -> Status {
    PFS_TRY(drive->TakeLock(drive->root_.get()));
    PFS_TRY(drive->ReadFormat());
    if (!pool_uuid.empty() && !drive->pool_uuid_.empty() && pool_uuid != drive->pool_uuid_) {
      return Status(Code::kInvalid, "the drive belongs to pool " + drive->pool_uuid_ + ", not to " +
                                        std::string(pool_uuid));
    }
    PFS_TRY(drive->MakeLayout());
    return drive->ProbeIncoming();
  };
  const Status opened = open();
  if (!opened.ok()) return AtPath(path, opened);
  drive->sealed_blocks_ = CloneReadOnly(drive->blocks_.get());
  drive->sealed_incoming_ = CloneReadOnly(drive->incoming_.get());
  if (!drive->sealed_blocks_.valid() || !drive->sealed_incoming_.valid()) {
    drive->sealed_blocks_.Reset(), drive->sealed_incoming_.Reset();
    spdlog::warn(
        "{}: no read-only clone of the mount; sealed blocks are opened through the mount itself",
        path);
  }
  return drive;
}

Drive::~Drive() = default;

// `fd` is DIR itself or PREFIXFS. DIR's lock stands for the drive, because PREFIXFS is replaced
// when it changes.
//
// A daemon that was killed a moment ago holds its lock until the kernel has torn it down, so a
// taken lock is given a little time.
Status Drive::TakeLock(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Failure(errno, "lock");
    if (std::chrono::steady_clock::now() >= deadline) return LockTaken(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return Ok();
}

Status Drive::LockTaken(int fd) {
  std::string pid;
  Result<Fd> pid_file = OpenAt(root_.get(), kPidFile, O_RDONLY | O_NONBLOCK);
  if (pid_file.ok()) {
    Result<std::string> text = ReadAll(pid_file->get(), 64);
    if (text.ok()) pid = *text;
  }
  return Status(Code::kRejected, "the drive is in use by " + DescribeLockHolder({fd}, pid));
}

Status Drive::ReadFormat() {
  Result<Fd> file = OpenAt(root_.get(), kFormatFile, O_RDONLY | O_NONBLOCK);
  if (file.status().Is(Code::kNotFound)) {
    PFS_TRY(CheckEmpty(root_.get()));
    uuid_ = NewUuid();
    return WriteFormat();
  }
  lock_ = PFS_TRY(std::move(file));
  PFS_TRY(TakeLock(lock_.get()));
  const std::string text = PFS_TRY(ReadAll(lock_.get(), kMaxDriveFormat));
  DriveFormat format = PFS_TRY(FormatFromText(text));
  uuid_ = std::move(format.uuid);
  pool_uuid_ = std::move(format.pool_uuid);
  slot_ = format.slot;
  slots_given_ = format.slots_given;
  return Ok();
}

Status Drive::WriteFormat() {
  const std::string text = FormatToText(
      {.uuid = uuid_, .pool_uuid = pool_uuid_, .slot = slot_, .slots_given = slots_given_});
  PFS_TRY(UnlinkAt(root_.get(), kFormatDraft));
  {
    const Fd draft =
        PFS_TRY(OpenAt(root_.get(), kFormatDraft, O_WRONLY | O_CREAT | O_EXCL, kFileMode));
    PFS_TRY(WriteAll(draft.get(), text));
    if (fsync(draft.get()) != 0) return Failure(errno, "sync PREFIXFS");
  }
  // Held read-only, because a file open for writing keeps the kernel from remounting a sick
  // filesystem read-only.
  Fd file = PFS_TRY(OpenAt(root_.get(), kFormatDraft, O_RDONLY));
  PFS_TRY(TakeLock(file.get()));
  if (renameat(root_.get(), kFormatDraft, root_.get(), kFormatFile) != 0) {
    return Failure(errno, "rename PREFIXFS");
  }
  if (fsync(root_.get()) != 0) return Failure(errno, "sync the directory");
  lock_ = std::move(file);
  return Ok();
}

Status Drive::MakeLayout() {
  struct {
    const char* name;
    Fd* fd;
  } const directories[] = {{"incoming", &incoming_},
                           {"blocks", &blocks_},
                           {"records", &records_},
                           {"quarantine", &quarantine_}};
  for (const auto& [name, fd] : directories) {
    PFS_TRY(MakeDirectoryAt(root_.get(), name));
    *fd = PFS_TRY(OpenAt(root_.get(), name, O_RDONLY | O_DIRECTORY));
  }
  return Ok();
}

Status Drive::ProbeIncoming() {
  const Status probed = Probe(incoming_.get(), &reflink_, &direct_alignment_);
  for (const char* name : {kProbeFile, kProbeClone}) {
    const Status removed = UnlinkAt(incoming_.get(), name);
    if (probed.ok() && !removed.ok()) return removed;
  }
  return probed;
}

Status Drive::Assign(std::string_view pool_uuid, uint16_t slot, uint32_t slots_given) {
  if (!IsUuid(pool_uuid)) return Status(Code::kInvalid, "not a pool uuid");
  const std::string old_pool = pool_uuid_;
  const int old_slot = slot_;
  const uint32_t old_given = slots_given_;
  pool_uuid_ = pool_uuid;
  slot_ = slot;
  slots_given_ = std::max({slots_given_, slots_given, slot + 1u});
  const Status written = WriteFormat();
  if (written.ok()) return Ok();
  pool_uuid_ = old_pool;
  slot_ = old_slot;
  slots_given_ = old_given;
  return Note(AtPath(path_, written));
}

}  // namespace prefixfs
