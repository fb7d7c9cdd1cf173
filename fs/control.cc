#include "fs/control.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

namespace prefixfs {
namespace {

using Json = nlohmann::ordered_json;
using SharedText = std::shared_ptr<const std::string>;  // what fi->fh points to

struct ControlFile {
  std::string_view name;
  Ino offset;
  uint32_t permissions;
};
// The configuration names drives, and directories that others may not know of.
constexpr ControlFile kFiles[] = {
    {"stats", 1, 0444}, {"metrics", 2, 0444}, {"config", 3, 0400}, {"requests", 4, 0444}};

// Names may hold any byte; JSON may not.
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Entry MakeEntry(Ino ino, std::string_view name, uint32_t mode) {
  Entry entry;
  entry.inode.ino = ino;
  entry.inode.name = name;
  entry.inode.mode = mode;
  return entry;
}

Json ToJson(const Cache::Location& location) {
  const Inode& inode = location.inode;
  Json json;
  json["path"] = location.path;
  json["ino"] = inode.ino;
  json["tier"] = "nvme";
  json["drive"] = location.drive;
  json["block"] = inode.IsFile() ? ToHex(inode.block) : "";
  json["state"] = location.state;
  json["size"] = inode.size;
  json["profile"] = location.profile;
  json["hash"] = location.hash;
  json["model"] = location.model;
  json["rank"] = inode.rank;
  json["checksum"] = inode.checksum_kind == ChecksumKind::kNone ? "" : ToHex(inode.checksum);
  json["verified"] = !inode.Has(inode_flag::kUnverified);
  return json;
}

Json OperationJson(const OpStats::Snapshot& snapshot) {
  Json json;
  json["count"] = snapshot.count;
  json["errors"] = snapshot.errors;
  json["p50_us"] = snapshot.PercentileUs(0.50);
  json["p99_us"] = snapshot.PercentileUs(0.99);
  json["max_us"] = snapshot.max_us;
  Json buckets = Json::array();
  for (size_t i = 0; i < OpStats::kBuckets; ++i) {
    if (snapshot.buckets[i] > 0)
      buckets.push_back({OpStats::BucketLimitUs(i), snapshot.buckets[i]});
  }
  json["buckets"] = std::move(buckets);
  return json;
}

}  // namespace

Result<Entry> Control::Lookup(Ino parent, std::string_view name) const {
  if (!Owns(parent)) return MakeEntry(kFirstIno, ".prefixfs", S_IFDIR | 0555);
  for (const ControlFile& file : kFiles) {
    if (parent == kFirstIno && name == file.name)
      return MakeEntry(kFirstIno + file.offset, name, S_IFREG | file.permissions);
  }
  return Code::kNotFound;
}

Result<Entry> Control::Attributes(Ino ino) const {
  if (ino == kFirstIno) return MakeEntry(ino, ".prefixfs", S_IFDIR | 0555);
  for (const ControlFile& file : kFiles) {
    if (ino == kFirstIno + file.offset) return MakeEntry(ino, "", S_IFREG | file.permissions);
  }
  return Code::kNotFound;
}

Result<std::vector<DirectoryEntry>> Control::List(uint64_t cookie) const {
  std::vector<DirectoryEntry> entries;
  for (const ControlFile& file : kFiles) {
    const Ino ino = kFirstIno + file.offset;
    // A cookie must stay positive as an off_t.
    const uint64_t at = 16 + file.offset;
    if (at > cookie) entries.push_back({MakeEntry(ino, file.name, S_IFREG | file.permissions), at});
  }
  return entries;
}

std::string Control::Content(Ino ino, Access& access) {
  switch (ino - kFirstIno) {
    case 1:
      return Stats(access);
    case 2:
      return Metrics(access);
    case 3:
      return cache_.config().source;
    case 4:
      return RequestsJson(access, SIZE_MAX);
    default:
      return {};
  }
}

void Control::Open(Request request, Ino ino, const Caller& caller, fuse_file_info* fi) {
  Access access(cache_, caller);
  if (ino == kFirstIno || (fi->flags & O_ACCMODE) != O_RDONLY) {
    request.Error(ino == kFirstIno ? EISDIR : EACCES);
    return;
  }
  auto content =
      std::make_unique<SharedText>(std::make_shared<const std::string>(Content(ino, access)));
  fi->direct_io = 1;  // the size is not known before it is read
  fi->fh = reinterpret_cast<uint64_t>(content.get());
  // Released first: once the reply is out the handle may be closed on another thread.
  SharedText* const handed_out = content.release();
  const int replied = request.With([&](fuse_req_t req) { return fuse_reply_open(req, fi); });
  if (replied == -ENOENT) delete handed_out;
}

void Control::Read(Request request, size_t size, off_t offset, const fuse_file_info* fi) const {
  // A share of its own: the client may have its answer, and close, before the reply has returned.
  const SharedText content = *reinterpret_cast<const SharedText*>(fi->fh);
  const size_t from = std::min(static_cast<size_t>(offset), content->size());
  request.With([&](fuse_req_t req) {
    return fuse_reply_buf(req, content->data() + from, std::min(size, content->size() - from));
  });
}

void Control::Release(const fuse_file_info* fi) const {
  delete reinterpret_cast<SharedText*>(fi->fh);
}

Result<std::string> Control::Attribute(Ino ino, std::string_view name, const Caller& caller) {
  constexpr std::string_view kHash = "hash.";
  Access access(cache_, caller);
  const auto told = [&](Cache::Location location) {
    if (!access.root()) location.drive.clear();
    return ToJson(location);
  };
  if (Owns(ino)) return Code::kNotFound;
  if (ino == kRootIno && name.starts_with(kHash)) {
    Json found = Json::array();
    for (auto& location : PFS_TRY(cache_.LocateHash(name.substr(kHash.size())))) {
      if (access.MayList(location.inode.parent)) found.push_back(told(std::move(location)));
    }
    return Dump(found, -1);
  }
  // The same as the file, for when the root directory is held by a call that is stuck.
  constexpr size_t kMostInAttribute = 200;
  if (ino == kRootIno && name == "requests") return RequestsJson(access, kMostInAttribute);
  if (name == "location") {
    Cache::Location location = PFS_TRY(cache_.Locate(ino));
    // It may have been handed to him open; then its path is not his to know.
    if (!access.MayReach(location.inode.parent)) location.path.clear();
    return Dump(told(std::move(location)), -1);
  }
  if (name == "tier") return std::string("nvme");
  return Code::kNotFound;
}

Cache::Report Control::ReportFor(Access& access) {
  Cache::Report report = cache_.MakeReport();
  if (access.root()) return report;
  for (auto& drive : report.drives) drive.path.clear();
  Cache::Report::ModelUse others;
  std::vector<Cache::Report::ModelUse> named;
  for (auto& model : report.models) {
    const bool known = !model.model.empty() &&
                       std::any_of(model.directories.begin(), model.directories.end(),
                                   [&](Ino directory) { return access.MayList(directory); });
    if (known) {
      named.push_back(std::move(model));
    } else {
      others.blocks += model.blocks;
      others.bytes += model.bytes;
    }
  }
  if (others.blocks > 0) named.push_back(others);
  report.models = std::move(named);
  return report;
}

std::string Control::Stats(Access& access) {
  const Cache::Report report = ReportFor(access);
  const Counters& counters = cache_.counters();
  Json json;
  json["version"] = PREFIXFS_VERSION;
  json["daemon_pid"] = ::getpid();
  json["keeper_pid"] = 0;
  json["mount"] = mount_point_;
  json["uptime_s"] = (Clock::Real().MonotonicNs() - started_ns_) / kNsPerSecond;
  json["capacity_bytes"] = report.capacity;
  json["used_bytes"] = report.used;
  json["reserved_bytes"] = report.reserved;
  json["blocks"] = report.blocks;
  json["inodes"] = report.inodes;
  json["max_inodes"] = report.max_inodes;
  json["backing_files"] = nodes_.registered();
  json["evicted_blocks"] = counters.evicted_blocks.load();
  json["evicted_bytes"] = counters.evicted_bytes.load();
  json["undeletable_blocks"] = counters.undeletable_blocks.load();
  json["corrupt_blocks"] = counters.corrupt_blocks.load();
  json["quarantined_blocks"] = report.quarantined_blocks;
  json["quarantined_bytes"] = report.quarantined_bytes;
  json["verified_blocks"] = counters.verified_blocks.load();
  json["scrubbed_blocks"] = report.scrubbed_blocks;
  json["scrubbed_bytes"] = report.scrubbed_bytes;
  json["scrub_passes"] = report.scrub_passes;
  json["suspected_blocks"] = counters.suspected_blocks.load();
  json["orphans"] = counters.orphans.load();
  json["checksum_reread_bytes"] = counters.checksum_reread.load();
  json["unchecked_blocks"] = report.unchecked;
  json["unverified_blocks"] = report.unverified;
  json["index_rebuilt"] = report.index_rebuilt;
  json["passthrough"] = passthrough_.load();
  json["io_uring"] = ring_.load(std::memory_order_relaxed);
  json["opens"] = counters.opens.load();
  json["hits"] = counters.hits.load();
  json["misses"] = counters.misses.load();
  json["published"] = counters.published.load();
  json["torn_writes"] = counters.torn.load();
  json["versions"] = counters.versions.load();
  json["no_space"] = counters.no_space.load();
  json["no_descriptors"] = counters.no_descriptors.load();
  json["slow_requests"] = counters.slow_requests.load();
  json["late_requests"] = counters.late_requests.load();
  json["reaped_directories"] = counters.reaped_directories.load();
  json["drives"] = Json::array();
  for (const auto& drive : report.drives) {
    json["drives"].push_back({{"path", drive.path},
                              {"uuid", drive.uuid},
                              {"slot", drive.slot},
                              {"failed", drive.failed},
                              {"stalled", drive.stalled},
                              {"total_bytes", drive.total},
                              {"free_bytes", drive.free}});
  }
  json["models"] = Json::array();
  for (const auto& model : report.models) {
    json["models"].push_back(
        {{"model", model.model}, {"blocks", model.blocks}, {"bytes", model.bytes}});
  }
  Json operations = Json::object();
  for (size_t i = 0; i < static_cast<size_t>(Op::kCount); ++i) {
    const auto snapshot = stats_.Read(static_cast<Op>(i));
    if (snapshot.count > 0)
      operations[std::string(OpName(static_cast<Op>(i)))] = OperationJson(snapshot);
  }
  json["operations"] = std::move(operations);
  return Dump(json, 2) + "\n";
}

}  // namespace prefixfs
