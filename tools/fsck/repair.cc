// Repair. A block is whole or absent: what is in doubt is put aside, and where the index is wrong
// in any way it is removed, so that the daemon makes it anew from what is left.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "tools/fsck/content.h"
#include "tools/fsck/scan.h"

namespace prefixfs::fsck {
namespace {

constexpr mode_t kQuarantineMode = 0700;

// A path below a drive as the directory that it is in and the name there.
struct Place {
  Fd directory;
  std::string name;
};

Result<Place> PlaceOf(const Drive& drive, const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == path.npos ? "." : path.substr(0, slash);
  Fd directory = PFS_TRY(OpenDirectory(drive.root.get(), parent));
  return Place{std::move(directory), slash == path.npos ? path : path.substr(slash + 1)};
}

Status MakeDirectory(const Drive& drive, const std::string& name, mode_t mode) {
  const Place place = PFS_TRY(PlaceOf(drive, name));
  if (::mkdirat(place.directory.get(), place.name.c_str(), mode) == 0 || errno == EEXIST)
    return Ok();
  return Status::FromErrno(errno, name);
}

std::string FreshName() {
  std::random_device random;
  char name[32];
  std::snprintf(name, sizeof(name), "extra-%08x%08x", random(), random());
  return name;
}

class Repairer {
 public:
  explicit Repairer(Scan& scan) : scan_(scan), report_(scan.report) {}

  // What needs the index comes first, what takes files away after that, the index last.
  void Run() {
    drops_index_ = report_.drops_index();
    const Remedy order[] = {Remedy::kRestrictAccess, Remedy::kWriteHeader, Remedy::kWriteRecord,
                            Remedy::kMove,           Remedy::kQuarantine,  Remedy::kRemove,
                            Remedy::kNewDriveFile};
    for (const Remedy remedy : order) {
      for (Finding& finding : report_.findings) {
        if (finding.remedy == remedy) Note(finding, Do(finding));
      }
    }
    const Status removed = drops_index_ ? RemoveIndex() : Ok();
    for (Finding& finding : report_.findings) {
      if (finding.severity != Severity::kError) continue;
      if (finding.remedy == Remedy::kRebuildIndex) Note(finding, removed);
      if (finding.drops_index && !removed.ok()) Note(finding, removed);
    }
    for (const Drive& drive : scan_.drives) {
      if (::syncfs(drive.root.get()) != 0) sync_failed_ = true;
    }
    if (!sync_failed_) return;
    for (Finding& finding : report_.findings)
      Note(finding, Status(Code::kIo, "the drive could not be synced"));
  }

 private:
  static void Note(Finding& finding, const Status& status) {
    finding.done = status.ok();
    finding.failure = status.ToString();
    if (finding.done) finding.failure.clear();
  }

  Status Do(Finding& finding) {
    const Drive& drive = scan_.drives[static_cast<size_t>(finding.drive)];
    // An index made anew will have it, if it is whole.
    const bool orphan = finding.kind == Kind::kBlockOrphan || finding.kind == Kind::kRecordOrphan;
    if (orphan && drops_index_) return Ok();
    switch (finding.remedy) {
      case Remedy::kRestrictAccess:
        return Restrict(drive, finding.path);
      case Remedy::kWriteHeader:
        return WriteHeader(drive, finding);
      case Remedy::kWriteRecord:
        return WriteRecord(drive, finding);
      case Remedy::kMove:
        return Move(drive, finding);
      case Remedy::kQuarantine:
        return Quarantine(drive, finding.path);
      case Remedy::kRemove:
        return Remove(drive, finding.path);
      case Remedy::kNewDriveFile:
        return WriteDriveFile(drive);
      default:
        return Ok();
    }
  }

  static Status Restrict(const Drive& drive, const std::string& path) {
    const std::string name = path.empty() ? "." : path;
    const Fd fd = PFS_TRY(OpenToRead(drive.root.get(), name));
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return Status::FromErrno(errno, path);
    // Elsewhere than in these it only matters who may write.
    const bool ours = path.starts_with("blocks") || path.starts_with("incoming") ||
                      path.starts_with("records") || path.starts_with("quarantine");
    const mode_t own = S_ISDIR(st.st_mode) ? kPrivateDirectory : kPrivateFile;
    const mode_t keep = ours ? own : 0755;
    if (st.st_uid != 0 && ::fchown(fd.get(), 0, 0) != 0) return Status::FromErrno(errno, path);
    if (::fchmod(fd.get(), st.st_mode & keep) != 0) return Status::FromErrno(errno, path);
    return Ok();
  }

  static Status Put(int fd, const std::string& header) {
    if (::fsetxattr(fd, kHeaderName, header.data(), header.size(), 0) != 0)
      return Status::FromErrno(errno, "write the header");
    return Ok();
  }

  // A header vouches for the content, so the content is looked at first.
  Status WriteHeader(const Drive& drive, Finding& finding) {
    const std::string_view bytes = scan_.RecordBytes(finding.ino);
    Record record;
    if (!ReadRecord(bytes, &record).empty()) return {Code::kCorrupt, "no record to write it from"};
    const Fd fd = PFS_TRY(OpenToRead(drive.root.get(), finding.path));
    if (!record.Has(FileState::kPosix)) {
      const Result<Checksum> content = ChecksumOf(fd.get());
      if (!content.ok() || std::memcmp(content->data(), record.head.checksum, 16) != 0) {
        drops_index_ = true;
        finding.drops_index = true;
        finding.what += "; nor does the content match its checksum";
        return Quarantine(drive, finding.path);
      }
    }
    return Put(fd.get(), HeaderOf(bytes));
  }

  Status WriteRecord(const Drive& drive, const Finding& finding) {
    const std::string_view bytes = scan_.RecordBytes(finding.ino);
    Record record;
    if (!ReadRecord(bytes, &record).empty()) return {Code::kCorrupt, "no record to write it from"};
    const std::string path = RecordPath(finding.ino);
    PFS_TRY(MakeDirectory(drive, path.substr(0, path.rfind('/')), kPrivateDirectory));
    const Fd fd =
        PFS_TRY(OpenBelow(drive.root.get(), path, O_RDWR | O_CREAT | O_NONBLOCK, kPrivateFile));
    const std::string header = HeaderOf(bytes);
    if (::ftruncate(fd.get(), 0) != 0) return Status::FromErrno(errno, path);
    if (Put(fd.get(), header).ok()) return Ok();
    // Where the filesystem's attributes are too small it is the content.
    (void)::fremovexattr(fd.get(), kHeaderName);
    return WriteWhole(fd.get(), header);
  }

  static Status Move(const Drive& drive, const Finding& finding) {
    const std::string& to = finding.target;
    PFS_TRY(MakeDirectory(drive, to.substr(0, to.rfind('/')), kPrivateDirectory));
    const Status moved = Rename(drive, finding.path, to);
    return moved.Is(Code::kExists) ? Quarantine(drive, finding.path) : moved;
  }

  static Status Rename(const Drive& drive, const std::string& from, const std::string& to) {
    const Place source = PFS_TRY(PlaceOf(drive, from));
    const Place target = PFS_TRY(PlaceOf(drive, to));
    if (::renameat2(source.directory.get(), source.name.c_str(), target.directory.get(),
                    target.name.c_str(), RENAME_NOREPLACE) != 0)
      return Status::FromErrno(errno, from);
    return Ok();
  }

  // Blocks keep their name there; whatever else it is gets a fresh one. Done already if it is gone.
  static Status Quarantine(const Drive& drive, const std::string& path) {
    PFS_TRY(MakeDirectory(drive, "quarantine", kQuarantineMode));
    const std::string name = path.substr(path.rfind('/') + 1);
    Status moved(Code::kExists);
    if (BlockOf(name)) moved = Rename(drive, path, "quarantine/" + name);
    if (moved.Is(Code::kExists)) moved = Rename(drive, path, "quarantine/" + FreshName());
    return moved.Is(Code::kNotFound) ? Ok() : moved;
  }

  static Status Remove(const Drive& drive, const std::string& path) {
    const Place place = PFS_TRY(PlaceOf(drive, path));
    if (::unlinkat(place.directory.get(), place.name.c_str(), 0) != 0 && errno != ENOENT)
      return Status::FromErrno(errno, path);
    return Ok();
  }

  static Status WriteDriveFile(const Drive& drive) {
    const std::string draft = "PREFIXFS.new";
    PFS_TRY(Remove(drive, draft));
    const Fd fd =
        PFS_TRY(OpenBelow(drive.root.get(), draft, O_WRONLY | O_CREAT | O_EXCL, kPrivateFile));
    PFS_TRY(WriteWhole(fd.get(), NewDriveFile()));
    if (::fsync(fd.get()) != 0) return Status::FromErrno(errno, draft);
    if (::renameat(drive.root.get(), draft.c_str(), drive.root.get(), "PREFIXFS") != 0)
      return Status::FromErrno(errno, "PREFIXFS");
    return Ok();
  }

  Status RemoveIndex() {
    scan_.snapshot.reset();
    if (!scan_.index_directory.valid()) return Ok();
    // LOCK stays: it is held.
    for (const char* name : {"data.mdb", "lock.mdb", "STATE", "STATE.new"}) {
      if (::unlinkat(scan_.index_directory.get(), name, 0) != 0 && errno != ENOENT)
        return Status::FromErrno(errno, std::string("index/") + name);
    }
    return Ok();
  }

  Scan& scan_;
  Report& report_;
  bool drops_index_ = false, sync_failed_ = false;
};

}  // namespace

void Repair(Scan& scan) { Repairer(scan).Run(); }

}  // namespace prefixfs::fsck
