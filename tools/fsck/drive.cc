#include "tools/fsck/drive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <random>
#include <sstream>

#include "tools/fsck/files.h"

namespace prefixfs::fsck {
namespace {

constexpr size_t kMostDriveFile = 4096;
constexpr int kMostSlots = 65536;

bool IsUuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : !IsLowerHex(text.substr(i, 1), 1)) return false;
  }
  return true;
}

bool IsNumber(const std::string& text, int most, int* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= 0 && *value <= most;
}

std::string DigestText(std::string_view text) {
  const XXH128_hash_t digest = XXH3_128bits(text.data(), text.size());
  char hex[33];
  std::snprintf(hex, sizeof(hex), "%016llx%016llx", static_cast<unsigned long long>(digest.high64),
                static_cast<unsigned long long>(digest.low64));
  return hex;
}

bool TakeLine(const std::string& key, const std::string& value, DriveFile* file) {
  int slots = 0;
  if (key == "uuid") return file->uuid = value, IsUuid(value);
  if (key == "pool") return file->pool = value, IsUuid(value);
  if (key == "slot") return IsNumber(value, kMostSlots - 1, &file->slot);
  if (key != "slots" || !IsNumber(value, kMostSlots, &slots)) return false;
  file->slots = static_cast<uint32_t>(slots);
  return true;
}

// A directory that holds what only a drive does: one whose PREFIXFS was lost, and no mistake in the
// command.
bool LooksLikeADrive(const Fd& root) {
  for (const char* name : {"blocks", "incoming", "records"}) {
    if (!OpenDirectory(root.get(), name).ok()) return false;
  }
  return true;
}

// Attributes of the class trusted look absent, and not forbidden, to those who may not see them.
Status CheckPrivilege(const Drive& drive) {
  if (::fremovexattr(drive.root.get(), "trusted.prefixfs.probe") == 0) return Ok();
  if (errno == EPERM || ::geteuid() != 0)
    return {Code::kDenied, "fsck needs root with CAP_SYS_ADMIN, to see the headers of blocks"};
  if (errno == EOPNOTSUPP)
    return {Code::kInvalid, drive.path + ": a filesystem without trusted extended attributes"};
  return Ok();
}

Status LockOf(const Drive& drive, int fd) {
  const Status locked = TakeLock(fd);
  if (!locked.Is(Code::kRejected)) return locked;
  return {Code::kRejected, drive.path + ": the drive is in use; unmount first"};
}

Result<Drive> OpenDrive(const std::string& path, int number, Report& report) {
  Drive drive;
  drive.path = path;
  drive.number = number;
  drive.root = Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!drive.root.valid()) return Status::FromErrno(errno, path);
  PFS_TRY(CheckPrivilege(drive));
  PFS_TRY(LockOf(drive, drive.root.get()));
  std::string fault;
  Result<Fd> file = OpenToRead(drive.root.get(), "PREFIXFS");
  if (file.ok()) {
    PFS_TRY(LockOf(drive, file->get()));
    const Result<std::string> text = ReadWhole(file->get(), kMostDriveFile);
    fault = text.ok() ? ReadDriveFile(*text, &drive.file) : text.status().message();
    drive.lock = std::move(*file);
  } else {
    fault = file.status().Is(Code::kNotFound) ? "it is missing" : file.status().message();
  }
  if (fault.empty()) return drive;
  if (!LooksLikeADrive(drive.root)) return Status(Code::kInvalid, path + ": is no PrefixFS drive");
  drive.file = {};
  report.Add({.kind = Kind::kDriveFile,
              .drive = number,
              .path = "PREFIXFS",
              .what = fault,
              .remedy = Remedy::kNewDriveFile,
              .drops_index = true});
  return drive;
}

// Whether they are one pool: the first drive that is in one decides which.
void ComparePools(std::vector<Drive>& drives, Report& report) {
  const Drive* decides = nullptr;
  for (Drive& drive : drives) {
    if (drive.file.pool.empty()) continue;
    if (decides == nullptr) decides = &drive;
    Finding finding{.drive = drive.number, .path = "PREFIXFS"};
    if (drive.file.pool != decides->file.pool) {
      finding.kind = Kind::kDrivePool;
      finding.what = "it is of pool " + drive.file.pool + ", and " + decides->path + " of pool " +
                     decides->file.pool;
    }
    for (const Drive& other : drives) {
      if (other.number >= drive.number || !other.usable || finding.kind != Kind::kCount) continue;
      if (other.file.slot != drive.file.slot && other.file.uuid != drive.file.uuid) continue;
      finding.kind = Kind::kDriveSlot;
      finding.what =
          "it has slot " + std::to_string(drive.file.slot) + " and may be a copy of " + other.path;
    }
    if (finding.kind == Kind::kCount) continue;
    drive.usable = false;
    report.Add(std::move(finding));
  }
}

}  // namespace

std::string ReadDriveFile(const std::string& text, DriveFile* file) {
  *file = {};
  const size_t digest_at = text.rfind("\ndigest ");
  if (text.compare(0, 17, "prefixfs-drive 1\n") != 0)
    return "it does not begin as one of version 1";
  if (digest_at == text.npos) return "it has no digest";
  const std::string body = text.substr(0, digest_at + 1);
  if (text.substr(digest_at + 1) != "digest " + DigestText(body) + "\n")
    return "its digest does not hold";
  std::istringstream lines(body.substr(17));
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    if (space == line.npos || !TakeLine(line.substr(0, space), line.substr(space + 1), file))
      return "it has a line that is none: " + line;
  }
  const bool whole = !file->uuid.empty() && (file->slot < 0) == file->pool.empty();
  return whole ? "" : "it is incomplete";
}

std::string NewDriveFile() {
  std::random_device random;
  std::string uuid;
  for (int i = 0; i < 4; ++i) {
    char hex[9];
    std::snprintf(hex, sizeof(hex), "%08x", random());
    uuid += hex;
  }
  for (const size_t dash : {8, 13, 18, 23}) uuid.insert(dash, 1, '-');
  const std::string body = "prefixfs-drive 1\nuuid " + uuid + "\nslots 0\n";
  return body + "digest " + DigestText(body) + "\n";
}

Result<std::vector<Drive>> OpenDrives(const std::vector<std::string>& paths, Report& report) {
  std::vector<Drive> drives;
  for (const std::string& path : paths) {
    struct stat st {};
    const bool there = ::stat(path.c_str(), &st) == 0;
    for (const Drive& other : drives) {
      struct stat seen {};
      if (there && ::fstat(other.root.get(), &seen) == 0 && seen.st_dev == st.st_dev &&
          seen.st_ino == st.st_ino)
        return Status(Code::kInvalid, path + ": was given twice");
    }
    report.drives.push_back(path);
    drives.push_back(PFS_TRY(OpenDrive(path, static_cast<int>(drives.size()), report)));
  }
  ComparePools(drives, report);
  return drives;
}

void CheckAccess(const Drive& drive, const std::string& path, const struct stat& st,
                 uint32_t own_mode, Report& report) {
  std::string what;
  if (st.st_uid != 0 && st.st_uid != ::geteuid())
    what = "it belongs to user " + std::to_string(st.st_uid);
  // Root's own group may write what the operator made.
  const uint32_t lax = own_mode != 0 ? 0777 & ~own_mode : (st.st_gid == 0 ? 0002 : 0022);
  if ((st.st_mode & lax) != 0) {
    char text[32];
    std::snprintf(text, sizeof(text), "its mode is %04o", st.st_mode & 07777);
    what += (what.empty() ? "" : ", ") + std::string(text);
  }
  if (what.empty()) return;
  report.Add({.kind = Kind::kAccess,
              .drive = drive.number,
              .path = path,
              .what = what,
              .remedy = Remedy::kRestrictAccess});
}

}  // namespace prefixfs::fsck
