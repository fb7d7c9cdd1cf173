// records/: the files from which a rebuild makes directories and links, against the index.
#include <sys/stat.h>

#include <unordered_map>

#include "tools/fsck/scan.h"

namespace prefixfs::fsck {
namespace {

class RecordCheck {
 public:
  explicit RecordCheck(Scan& scan) : scan_(scan) {}

  Status Run() {
    for (const Drive& drive : scan_.drives) {
      if (drive.usable) PFS_TRY(WalkDrive(drive));
    }
    for (const Entry& entry : scan_.catalog.entries()) CheckMarks(entry);
    for (const Old& old : old_) ReportOld(old);
    for (const Old& node : met_) CheckRooted(node);
    return Ok();
  }

 private:
  struct Old {
    const Drive* drive;
    std::string path;
    uint64_t ino;
    std::string fields;
  };

  void Add(Kind kind, Severity severity, const Drive& drive, const std::string& path, uint64_t ino,
           const std::string& what, Remedy remedy) {
    const std::string name = ino == 0 ? "" : scan_.PathOf(ino);
    scan_.report.Add({.kind = kind,
                      .severity = severity,
                      .drive = drive.number,
                      .path = path,
                      .ino = ino,
                      .what = name.empty() ? what : name + ": " + what,
                      .remedy = remedy});
  }

  Status WalkDrive(const Drive& drive) {
    const Result<struct stat> st = StatBelow(drive.root.get(), "records");
    if (st.status().Is(Code::kNotFound)) {
      Add(Kind::kLayoutMissing, Severity::kInfo, drive, "records", 0, "the next start makes it",
          Remedy::kNone);
      return Ok();
    }
    if (!st.ok() || !S_ISDIR(st->st_mode)) {
      AddForeign(drive, "records", "it is no directory");
      return Ok();
    }
    CheckAccess(drive, "records", *st, kPrivateDirectory, scan_.report);
    const Fd records = PFS_TRY(OpenDirectory(drive.root.get(), "records"));
    return ForEachName(records.get(), [&](const std::string& fan) -> Status {
      const std::string path = "records/" + fan;
      const Result<struct stat> below = StatBelow(records.get(), fan);
      if (!IsLowerHex(fan, 2) || !below.ok() || !S_ISDIR(below->st_mode)) {
        AddForeign(drive, path, "no directory of records");
        return Ok();
      }
      CheckAccess(drive, path, *below, kPrivateDirectory, scan_.report);
      return WalkFan(drive, path);
    });
  }

  void AddForeign(const Drive& drive, const std::string& path, const std::string& what) {
    Add(Kind::kForeign, Severity::kError, drive, path, 0, what, Remedy::kQuarantine);
  }

  Status WalkFan(const Drive& drive, const std::string& path) {
    const Fd fan = PFS_TRY(OpenDirectory(drive.root.get(), path));
    return ForEachName(fan.get(), [&](const std::string& name) {
      const std::string file = path + "/" + name;
      const Result<struct stat> st = StatBelow(fan.get(), name);
      const bool named = IsLowerHex(name, 16);
      const uint64_t ino = named ? std::stoull(name, nullptr, 16) : 0;
      if (!named || RecordPath(ino) != file || !st.ok() || !S_ISREG(st->st_mode)) {
        AddForeign(drive, file, "no record's name");
        return Ok();
      }
      CheckAccess(drive, file, *st, kPrivateFile, scan_.report);
      CheckFile(drive, file, fan.get(), name, ino);
      return Ok();
    });
  }

  // In the attribute, or, where that is too small, in the content.
  static Result<std::string> ReadFile(int fan, const std::string& name) {
    const Fd fd = PFS_TRY(OpenToRead(fan, name));
    Result<std::string> bytes = ReadHeader(fd.get());
    if (bytes.status().Is(Code::kNotFound)) return ReadWhole(fd.get(), kMostRecordBytes);
    return bytes;
  }

  void CheckFile(const Drive& drive, const std::string& path, int fan, const std::string& name,
                 uint64_t ino) {
    ++scan_.report.records;
    const Result<std::string> bytes = ReadFile(fan, name);
    Record record;
    std::string fault = bytes.ok() ? ReadRecord(*bytes, &record) : bytes.status().message();
    if (fault.empty() && record.head.ino != ino) fault = "it is another inode's";
    if (fault.empty() && record.IsFile()) fault = "it is of a regular file";
    Entry* entry = scan_.catalog.Find(ino);
    if (!fault.empty()) {
      if (entry != nullptr) entry->Set(Entry::kOld);
      const bool known = entry != nullptr && !entry->IsFile();
      return Add(Kind::kRecordDamaged, Severity::kError, drive, path, ino, fault,
                 known ? Remedy::kWriteRecord : Remedy::kRemove);
    }
    if (scan_.snapshot == nullptr) {
      Node& node = nodes_[ino];
      if (record.head.ctime_ns >= node.ctime_ns)  // a drive that was away has an old one
        node = {record.head.parent, record.head.ctime_ns, record.IsDirectory()};
      met_.push_back({&drive, path, ino, {}});
      return;
    }
    if (entry == nullptr || entry->IsFile()) {
      if (scan_.catalog.IsDamaged(ino)) return;
      return Add(Kind::kRecordOrphan, scan_.lag(), drive, path, 0,
                 "was " + std::string(record.name), Remedy::kRemove);
    }
    Compare(drive, path, record, *entry);
  }

  void Compare(const Drive& drive, const std::string& path, const Record& record, Entry& entry) {
    Record index;
    if (!ReadRecord(scan_.RecordBytes(entry.ino), &index).empty()) return;
    const std::string fields = Differences(index, record);
    if (fields.empty()) return entry.Set(Entry::kCurrent);
    entry.Set(Entry::kOld);
    old_.push_back({&drive, path, entry.ino, fields});
  }

  // An old one is harmless where another drive has the current one: a rebuild takes that.
  void CheckMarks(const Entry& entry) {
    if (entry.IsFile() || entry.Has(Entry::kCurrent)) return;
    if (!entry.Has(Entry::kOld) && entry.ino != kRootIno) {
      return Add(Kind::kRecordMissing, scan_.lag(), scan_.drives[0], RecordPath(entry.ino),
                 entry.ino, "an index made anew would not have it", Remedy::kWriteRecord);
    }
  }

  void ReportOld(const Old& old) {
    const Entry* entry = scan_.catalog.Find(old.ino);
    const bool current = entry != nullptr && entry->Has(Entry::kCurrent);
    Add(current ? Kind::kRecordOld : Kind::kRecordDiffers, current ? Severity::kInfo : scan_.lag(),
        *old.drive, old.path, old.ino, "in " + old.fields, Remedy::kWriteRecord);
  }

  // Without an index: what does not hang off the root is left out of the one that is made.
  void CheckRooted(const Old& met) {
    std::vector<uint64_t> path;
    uint64_t ino = met.ino;
    while (ino != kRootIno && !scan_.directories.contains(ino)) {
      const auto at = nodes_.find(ino);
      if (at == nodes_.end() || at->second.seen) break;
      if (!path.empty() && !at->second.directory) break;
      at->second.seen = true;
      path.push_back(ino);
      ino = at->second.parent;
    }
    const bool rooted = ino == kRootIno || scan_.directories.contains(ino);
    for (const uint64_t node : path) {
      nodes_[node].rooted = rooted;
      if (rooted && nodes_[node].directory) scan_.directories.insert(node);
    }
    if (met.ino != kRootIno && !nodes_[met.ino].rooted)
      Add(Kind::kDropped, Severity::kInfo, *met.drive, met.path, 0, "its directory is gone",
          scan_.is_whole_pool() ? Remedy::kRemove : Remedy::kNone);
  }

  struct Node {
    uint64_t parent = 0;
    int64_t ctime_ns = INT64_MIN;
    bool directory = false, seen = false, rooted = false;
  };
  Scan& scan_;
  std::vector<Old> old_, met_;
  std::unordered_map<uint64_t, Node> nodes_;  // without an index
};

}  // namespace

Status CheckRecords(Scan& scan) { return RecordCheck(scan).Run(); }

}  // namespace prefixfs::fsck
