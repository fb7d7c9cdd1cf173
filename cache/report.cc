// Report: what stats, metrics and locate show.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "cache/base/memory.h"
#include "cache/base/rarely.h"
#include "cache/cache.h"

namespace prefixfs {
namespace {

constexpr int kMaxDepth = 512;
constexpr size_t kMaxLocated = 256;

const char* StateName(FileState state) {
  switch (state) {
    case FileState::kNone:
      return "none";
    case FileState::kOpen:
      return "open";
    case FileState::kSealed:
      return "sealed";
    case FileState::kPosix:
      return "posix";
  }
  return "unknown";
}

}  // namespace

void Cache::NoteShortage(const Status& status) {
  if (status.Is(Code::kNoMemory)) LogNoMemory();
  if (!status.Is(Code::kNoDescriptors)) return;
  counters_.no_descriptors.fetch_add(1, std::memory_order_relaxed);
  static Rarely rarely;
  if (!rarely.Now()) return;
  spdlog::error(
      "a file was not opened: {}; raise the daemon's limit (LimitNOFILE of its service, ulimit -n; "
      "fs.nr_open and fs.file-max bound it) or have clients keep fewer files open",
      status.message());
}

std::string Cache::DrivePath(uint16_t slot) const {
  for (const auto& drive : drives_->drives()) {
    if (drive->slot() == slot) return drive->path();
  }
  return {};
}

std::string Cache::PathOf(Ino ino) {
  std::vector<std::string> parts;
  for (int depth = 0; depth < kMaxDepth && ino != kRootIno; ++depth) {
    Result<Inode> inode = index_->Get(ino);
    if (!inode.ok()) break;
    parts.push_back(std::move(inode->name));
    ino = inode->parent;
  }
  std::string path;
  for (auto it = parts.rbegin(); it != parts.rend(); ++it) {
    if (!path.empty()) path += '/';
    path += *it;
  }
  return path;
}

Result<Cache::Location> Cache::Locate(Ino ino) {
  Location location;
  if (FilePtr file = open_.Find(ino)) {
    location.inode = OpenEntry(file).inode;
  } else {
    location.inode = PFS_TRY(index_->Get(ino));
  }
  const Inode& inode = location.inode;
  location.path = PathOf(inode.parent);
  if (!location.path.empty()) location.path += '/';
  location.path += inode.name;
  location.state = StateName(inode.state);
  if (!inode.IsFile()) return location;
  if (Drive* drive = drives_->Find(inode.drive)) location.drive = drive->path();
  const BlockName name = naming_->Parse(location.path);
  location.profile = name.profile;
  location.model = name.model;
  location.hash = Naming::HashToText(inode.hash);
  return location;
}

Result<std::vector<Cache::Location>> Cache::LocateHash(std::string_view hash_text) {
  std::vector<Location> locations;
  const std::string hash = Naming::HashFromText(hash_text);
  for (const Inode& inode : PFS_TRY(index_->FindByHash(hash, kMaxLocated))) {
    Result<Location> location = Locate(inode.ino);
    if (location.ok()) locations.push_back(std::move(location).value());
  }
  return locations;
}

Cache::Report Cache::MakeReport() {
  Report report;
  report.capacity = budget_->limits().capacity;
  report.used = budget_->used();
  report.reserved = budget_->reserved();
  report.blocks = residents_->count();
  report.unchecked = checksums_->pending();
  report.unverified = residents_->unverified();
  report.index_rebuilt = index_rebuilt_;
  report.quarantined_blocks = quarantine_->blocks();
  report.quarantined_bytes = quarantine_->bytes();
  report.scrubbed_blocks = scrubber_->blocks();
  report.scrubbed_bytes = scrubber_->bytes();
  report.scrub_passes = scrubber_->passes();
  report.inodes = inodes_.used();
  report.max_inodes = inodes_.most();
  const auto uses = residents_->Models();
  {
    MutexLock lock(side_mutex_);
    for (const auto& [id, use] : uses) {
      auto it = models_.find(id);
      const auto homes = model_homes_.find(id);
      report.models.push_back({it == models_.end() ? "" : it->second, use.blocks, use.bytes,
                               homes == model_homes_.end() ? std::vector<Ino>() : homes->second});
    }
  }
  std::sort(report.models.begin(), report.models.end(),
            [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (size_t i = 0; i < drives_->drives().size(); ++i) {
    // Not asked anew: it may not answer.
    const Drive& drive = *drives_->drives()[i];
    const auto [total, free] = drives_->KnownSpace(i);
    report.drives.push_back({drive.path(), drive.uuid(), drive.slot(), drive.failed(),
                             drive.stalled(), total, drive.failed() ? 0 : free});
  }
  return report;
}

}  // namespace prefixfs
