// The walk of the drives: every entry is either where the layout has one of its kind, or foreign.
#include <sys/stat.h>

#include <algorithm>
#include <iterator>

#include "tools/fsck/blocks.h"
#include "tools/fsck/scan.h"

namespace prefixfs::fsck {
namespace {

constexpr const char* kOurs[] = {"PREFIXFS",   "PREFIXFS.new", "daemon.pid", "daemon.log",
                                 "incoming",   "blocks",       "records",    "index",
                                 "quarantine", "lost+found"};
constexpr const char* kIndexFiles[] = {"data.mdb", "lock.mdb", "STATE", "STATE.new", "LOCK"};
// The daemon tries the filesystem with them when it starts.
constexpr const char* kProbes[] = {".probe", ".probe-clone"};

template <typename Names>
bool IsOneOf(const std::string& name, const Names& names) {
  return std::any_of(std::begin(names), std::end(names),
                     [&name](const char* known) { return name == known; });
}

class Walk {
 public:
  explicit Walk(Scan& scan) : scan_(scan), blocks_(scan) {}

  Status Run() {
    for (const Drive& drive : scan_.drives) {
      if (!drive.usable) continue;
      PFS_TRY(WalkTop(drive));
      PFS_TRY(WalkBlocks(drive));
      PFS_TRY(WalkFiles(drive, "incoming", true));
      PFS_TRY(WalkIndex(drive));
      PFS_TRY(WalkQuarantine(drive));
    }
    for (const BackingFile& file : elsewhere_) blocks_.Check(file);
    blocks_.CheckMissing();
    return Ok();
  }

 private:
  void AddInfo(const Drive& drive, Kind kind, const std::string& path, const std::string& what) {
    scan_.report.Add({.kind = kind,
                      .severity = Severity::kInfo,
                      .drive = drive.number,
                      .path = path,
                      .what = what});
  }

  void AddForeign(const Drive& drive, const std::string& path, const std::string& what) {
    scan_.report.Add({.kind = Kind::kForeign,
                      .drive = drive.number,
                      .path = path,
                      .what = what,
                      .remedy = Remedy::kQuarantine});
  }

  // A directory of ours; an invalid Fd if there is none, which is then reported.
  Result<Fd> OpenOurs(const Drive& drive, const std::string& path) {
    const Result<struct stat> st = StatBelow(drive.root.get(), path);
    if (st.status().Is(Code::kNotFound)) {
      AddInfo(drive, Kind::kLayoutMissing, path, "the next start makes it");
      return Fd();
    }
    if (!st.ok() || !S_ISDIR(st->st_mode)) {
      AddForeign(drive, path, "it is no directory");
      return Fd();
    }
    CheckAccess(drive, path, *st, kPrivateDirectory, scan_.report);
    return OpenDirectory(drive.root.get(), path);
  }

  Status WalkTop(const Drive& drive) {
    struct stat st {};
    if (::fstat(drive.root.get(), &st) == 0) CheckAccess(drive, "", st, 0, scan_.report);
    return ForEachName(drive.root.get(), [&](const std::string& name) {
      if (!IsOneOf(name, kOurs)) AddInfo(drive, Kind::kStranger, name, "it is left alone");
      const Result<struct stat> file = StatBelow(drive.root.get(), name);
      if (IsOneOf(name, kOurs) && file.ok() && S_ISREG(file->st_mode))
        CheckAccess(drive, name, *file, 0, scan_.report);
      return Ok();
    });
  }

  Status WalkBlocks(const Drive& drive) {
    const Fd blocks = PFS_TRY(OpenOurs(drive, "blocks"));
    if (!blocks.valid()) return Ok();
    return ForEachName(blocks.get(), [&](const std::string& fan) -> Status {
      const std::string path = "blocks/" + fan;
      const Result<struct stat> st = StatBelow(blocks.get(), fan);
      if (!IsLowerHex(fan, 2) || !st.ok() || !S_ISDIR(st->st_mode)) {
        AddForeign(drive, path, "no directory of blocks");
        return Ok();
      }
      return WalkFiles(drive, path, false);
    });
  }

  Status WalkFiles(const Drive& drive, const std::string& path, bool incoming) {
    const Fd directory = PFS_TRY(OpenOurs(drive, path));
    if (!directory.valid()) return Ok();
    return ForEachName(directory.get(), [&](const std::string& name) {
      const std::optional<Block> block = BlockOf(name);
      const Result<struct stat> st = StatBelow(directory.get(), name);
      if (incoming && IsOneOf(name, kProbes)) return Ok();
      if (!block || !st.ok() || !S_ISREG(st->st_mode)) {
        AddForeign(drive, path + "/" + name, block ? "no regular file" : "no block's name");
        return Ok();
      }
      CheckAccess(drive, path + "/" + name, *st, kPrivateFile, scan_.report);
      const BackingFile file{&drive, path + "/" + name, *block, incoming};
      if (blocks_.IsInPlace(file)) {
        blocks_.Check(file);
      } else {
        elsewhere_.push_back(file);
      }
      return Ok();
    });
  }

  Status WalkIndex(const Drive& drive) {
    const Result<Fd> index = OpenDirectory(drive.root.get(), "index");
    if (!index.ok()) {
      if (!index.status().Is(Code::kNotFound)) AddForeign(drive, "index", "it is no directory");
      return Ok();
    }
    return ForEachName(index->get(), [&](const std::string& name) {
      const Result<struct stat> st = StatBelow(index->get(), name);
      const bool ours = IsOneOf(name, kIndexFiles) && st.ok() && S_ISREG(st->st_mode);
      if (ours) CheckAccess(drive, "index/" + name, *st, 0, scan_.report);
      if (!ours) AddForeign(drive, "index/" + name, "no file of the index");
      return Ok();
    });
  }

  Status WalkQuarantine(const Drive& drive) {
    const Result<Fd> quarantine = OpenDirectory(drive.root.get(), "quarantine");
    if (!quarantine.ok()) return Ok();
    struct stat own {};
    if (::fstat(quarantine->get(), &own) == 0)
      CheckAccess(drive, "quarantine", own, kPrivateDirectory, scan_.report);
    return ForEachName(quarantine->get(), [&](const std::string& name) {
      const Result<struct stat> st = StatBelow(quarantine->get(), name);
      const uint64_t bytes = st.ok() ? static_cast<uint64_t>(st->st_size) : 0;
      AddInfo(drive, Kind::kQuarantine, "quarantine/" + name, std::to_string(bytes) + " bytes");
      return Ok();
    });
  }

  Scan& scan_;
  BlockCheck blocks_;
  std::vector<BackingFile> elsewhere_;
};

}  // namespace

Status CheckFiles(Scan& scan) { return Walk(scan).Run(); }

}  // namespace prefixfs::fsck
