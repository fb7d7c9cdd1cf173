// The index's tables: every record by itself, and every other table against the records.
#include <sys/stat.h>

#include <cstring>
#include <map>

#include "tools/fsck/scan.h"

namespace prefixfs::fsck {
namespace {

constexpr size_t kDentryKey = 24, kChildKey = 16, kTrashKey = 18;

class TableCheck {
 public:
  explicit TableCheck(Scan& scan) : scan_(scan) {}

  void Run() {
    const std::string pages = scan_.snapshot->PageFault();
    if (!pages.empty()) scan_.AddToIndex(Kind::kIndexPages, 0, pages);
    CheckSettings();
    CheckModels();
    CheckInodes();
    scan_.catalog.SortBlocks();
    for (const uint64_t ino : scan_.catalog.MarkBlocksTwice())
      scan_.AddToIndex(Kind::kBlockTwice, ino, "its backing file is another inode's as well");
    CheckDentries();
    CheckChildren();
    CheckHashes();
    CheckTrash();
    for (const Entry& entry : scan_.catalog.entries()) CheckMarks(entry);
  }

 private:
  void ForEach(Table table, const Snapshot::Visit& visit) {
    const Status read = scan_.snapshot->ForEach(table, visit);
    if (!read.ok()) scan_.AddToIndex(Kind::kIndexUnreadable, 0, read.message());
  }

  std::optional<std::string_view> Setting(const std::string& name, size_t bytes) {
    const auto sealed = scan_.snapshot->Get(Table::kMain, name);
    const auto value = sealed ? Unsealed(name, *sealed) : std::nullopt;
    if (value && (bytes == 0 || value->size() == bytes)) return value;
    scan_.AddToIndex(Kind::kSetting, 0,
                     "setting " + name + (sealed ? " is damaged" : " is missing"));
    return std::nullopt;
  }

  void CheckSettings() {
    const auto format = Setting("format", 8);
    if (format && BigEndian(*format) != 1)
      scan_.AddToIndex(Kind::kSetting, 0, "the format is unknown");
    if (const auto next = Setting("next_ino", 8)) next_ino_ = BigEndian(*next);
    const auto txn = Setting("txn", 8);
    if (txn && BigEndian(*txn) != scan_.snapshot->transaction())
      scan_.AddToIndex(Kind::kSetting, 0, "the last commit is not the one that setting txn names");
    (void)Setting("pool_uuid", 0);
  }

  void CheckModels() {
    ForEach(Table::kModels, [this](std::string_view key, std::string_view value) {
      const uint64_t id = BigEndian(key);
      models_.emplace(id, true);
      if (key.size() == 4 && id != 0 && Unsealed(key, value)) return;
      scan_.AddToIndex(Kind::kModelDamaged, 0, "model " + std::to_string(id) + " is damaged");
    });
  }

  void CheckInodes() {
    bool root = false;
    ForEach(Table::kInodes, [&](std::string_view key, std::string_view value) {
      const uint64_t ino = BigEndian(key);
      Record record;
      std::string fault = ReadRecord(value, &record);
      if (fault.empty() && (key.size() != 8 || record.head.ino != ino))
        fault = "it is another inode's";
      root |= ino == kRootIno;
      ++scan_.report.inodes;
      if (!fault.empty()) {
        scan_.catalog.AddDamaged(ino);
        return scan_.AddToIndex(Kind::kInodeRecord, ino, fault);
      }
      scan_.catalog.Add(EntryOf(record));
      if (ino >= next_ino_)
        scan_.AddToIndex(Kind::kNextIno, ino,
                         "numbers were given up to " + std::to_string(next_ino_) + " only");
      if (record.head.model != 0 && !models_.contains(record.head.model))
        scan_.AddToIndex(Kind::kModelMissing, ino, "no model " + std::to_string(record.head.model));
    });
    if (!root) scan_.AddToIndex(Kind::kRootMissing, 0, "inode 1 is not there");
  }

  // The inode that an entry names; null if there is no telling, which is then reported already.
  Entry* Named(Kind otherwise, uint64_t ino, const std::string& what) {
    if (scan_.catalog.IsDamaged(ino)) return nullptr;
    Entry* entry = scan_.catalog.Find(ino);
    if (entry == nullptr || ino == kRootIno) {
      scan_.AddToIndex(otherwise, 0, what + " names inode " + std::to_string(ino));
      return nullptr;
    }
    return entry;
  }

  void CheckDentries() {
    std::string_view group;  // parent and hash of the name
    std::map<std::string, uint64_t> names;
    ForEach(Table::kDentries, [&](std::string_view key, std::string_view) {
      if (key.size() != kDentryKey)
        return scan_.AddToIndex(Kind::kDentryMismatch, 0, "a key of a wrong length");
      const uint64_t parent = BigEndian(key.substr(0, 8)), hash = BigEndian(key.substr(8, 8));
      const uint64_t ino = BigEndian(key.substr(16, 8));
      Entry* entry =
          Named(Kind::kDentryWithoutInode, ino, "an entry of directory " + std::to_string(parent));
      if (entry == nullptr) return;
      entry->Set(Entry::kDentry);
      if (entry->parent != parent || entry->name_hash != hash)
        return scan_.AddToIndex(Kind::kDentryMismatch, ino,
                                entry->parent != parent
                                    ? "it is in directory " + std::to_string(parent)
                                    : "it is under the hash of another name");
      if (key.substr(0, 16) != group) names.clear();
      group = key.substr(0, 16);
      Record record;
      if (!ReadRecord(scan_.RecordBytes(ino), &record).empty()) return;
      if (!names.emplace(record.name, ino).second)
        scan_.AddToIndex(Kind::kNameTwice, ino, "another inode has this name");
    });
  }

  void CheckChildren() {
    ForEach(Table::kChildren, [this](std::string_view key, std::string_view value) {
      if (key.size() != kChildKey)
        return scan_.AddToIndex(Kind::kChildExtra, 0, "a key of a wrong length");
      const uint64_t parent = BigEndian(key.substr(0, 8)), ino = BigEndian(key.substr(8, 8));
      Entry* entry = Named(Kind::kChildExtra, ino, "the listing of " + std::to_string(parent));
      if (entry == nullptr) return;
      if (entry->parent != parent)
        return scan_.AddToIndex(Kind::kChildExtra, ino,
                                "it is in the listing of " + std::to_string(parent));
      entry->Set(Entry::kChild);
      if (value.size() != 1 || static_cast<uint8_t>(value[0]) != entry->type)
        scan_.AddToIndex(Kind::kChildType, ino, "the listing has another type");
    });
  }

  void CheckHashes() {
    ForEach(Table::kHashes, [this](std::string_view key, std::string_view) {
      const size_t length = key.empty() ? 0 : static_cast<uint8_t>(key[0]);
      if (key.size() != 1 + length + 8 || length == 0)
        return scan_.AddToIndex(Kind::kHashExtra, 0, "a key of a wrong length");
      const uint64_t ino = BigEndian(key.substr(1 + length));
      Entry* entry = Named(Kind::kHashExtra, ino, "an entry of hashes");
      if (entry == nullptr) return;
      if (entry->prefix_hash != DigestOfName(key.substr(1, length)))
        return scan_.AddToIndex(Kind::kHashExtra, ino, "it is under a hash that is not its own");
      entry->Set(Entry::kHash);
    });
  }

  void CheckTrash() {
    ForEach(Table::kTrash, [this](std::string_view key, std::string_view value) {
      const auto rest = Unsealed(key, value);
      if (key.size() != kTrashKey || !rest || !rest->empty())
        return scan_.AddToIndex(Kind::kTrashDamaged, 0, "an entry is damaged");
      Block block;
      std::memcpy(block.data(), key.data() + 2, block.size());
      scan_.trash.emplace(static_cast<uint16_t>(BigEndian(key.substr(0, 2))), block);
      if (const Entry* entry = scan_.catalog.FindBlock(block))
        scan_.AddToIndex(Kind::kTrashNamed, entry->ino, "the next start would remove its file");
    });
  }

  void CheckMarks(const Entry& entry) {
    if (entry.ino == kRootIno) return;
    if (!entry.Has(Entry::kDentry))
      scan_.AddToIndex(Kind::kDentryMissing, entry.ino, "no directory has it");
    if (!entry.Has(Entry::kChild))
      scan_.AddToIndex(Kind::kChildMissing, entry.ino, "it is not in its directory's listing");
    if (entry.prefix_hash != 0 && !entry.Has(Entry::kHash))
      scan_.AddToIndex(Kind::kHashMissing, entry.ino, "its hash does not lead to it");
  }

  Scan& scan_;
  uint64_t next_ino_ = UINT64_MAX;
  std::map<uint64_t, bool> models_;
};

// Marks an inode and its ancestors as hanging off the root, or not.
class TreeCheck {
 public:
  explicit TreeCheck(Scan& scan) : scan_(scan) {}

  void Check(Entry& first) {
    std::vector<Entry*> path;
    bool rooted = false;
    for (Entry* at = &first;;) {
      if (at->ino == kRootIno || at->Has(Entry::kRooted)) rooted = true;
      if (rooted || at->Has(Entry::kNotRooted)) break;
      at->Set(Entry::kNotRooted);  // until the root is reached: meeting it again is a loop
      path.push_back(at);
      Entry* parent = scan_.catalog.Find(at->parent);
      if (parent == nullptr || !parent->IsDirectory()) {
        if (!scan_.catalog.IsDamaged(at->parent))
          scan_.AddToIndex(Kind::kParentMissing, at->ino,
                           "inode " + std::to_string(at->parent) + " is no directory");
        break;
      }
      if (parent->Has(Entry::kNotRooted) && IsOn(path, parent)) {
        scan_.AddToIndex(Kind::kParentLoop, at->ino, "its parent is below it");
        break;
      }
      at = parent;
    }
    if (!rooted) return;
    for (Entry* entry : path) {
      entry->marks = static_cast<uint16_t>(entry->marks & ~Entry::kNotRooted);
      entry->Set(Entry::kRooted);
    }
  }

 private:
  static bool IsOn(const std::vector<Entry*>& path, const Entry* entry) {
    for (const Entry* seen : path) {
      if (seen == entry) return true;
    }
    return false;
  }
  Scan& scan_;
};

}  // namespace

void CheckTables(Scan& scan) { TableCheck(scan).Run(); }

void CheckTree(Scan& scan) {
  TreeCheck check(scan);
  for (Entry& entry : scan.catalog.entries()) {
    if (entry.ino != kRootIno) check.Check(entry);
  }
}

}  // namespace prefixfs::fsck
