// Start and stop of a mount's cache, and its background threads.
#include "cache/cache.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <thread>

#include "cache/rebuild.h"

namespace prefixfs {
namespace {
constexpr int kLockTries = 100;
constexpr int64_t kCheckTimeoutMs = 10 * 60 * 1000;
}  // namespace

Cache::Cache(const Config& config, const Clock& clock)
    : config_(config), clock_(clock), inodes_(config.max_inodes) {}

Result<std::unique_ptr<Cache>> Cache::Open(const Config& config) {
  std::unique_ptr<Cache> cache(new Cache(config, Clock::Real()));
  PFS_TRY(cache->Start());
  return cache;
}

Cache::~Cache() {
  if (Status status = Close(); !status.ok()) spdlog::warn("closing: {}", status.ToString());
}

Status Cache::Start() {
  naming_ = PFS_TRY(Naming::Make(config_.naming, config_.rules));
  drives_ = PFS_TRY(DriveSet::Open(config_.nvme));
  drives_->RefreshSpace();
  const uint64_t capacity = config_.capacity.Of(drives_->TotalBytes());
  if (capacity == 0)
    return Status(Code::kInvalid, "the capacity comes to 0 bytes; give a larger one");
  const auto share = [&](double of) {
    return static_cast<uint64_t>(static_cast<double>(capacity) * of);
  };
  budget_ = std::make_unique<Budget>(
      Budget::Limits{capacity, share(config_.high_watermark), share(config_.low_watermark)},
      [this] {
        if (evictor_) evictor_->Wake();
      });
  residents_ =
      std::make_unique<Residents>(PFS_TRY(MakePolicy(config_.eviction)), config_.lease_ms, clock_);
  checksums_ = std::make_unique<Checksums>(
      [this](const std::vector<Ino>& blocks) { ChecksumBlocks(blocks); });
  PFS_TRY(OpenIndex());
  PFS_TRY(Load());
  evictor_ = std::make_unique<Evictor>(
      *budget_, *residents_, *drives_, config_.min_free,
      [this](const std::vector<Residents::Victim>& victims) { return EvictBatch(victims); });
  drives_->StartChores();
  evictor_->Start();
  checksums_->Start();
  ticker_.Start(config_.index_sync_ms, [this] { Tick(); });
  meter_.Start(config_.account_interval_ms, [this] {
    drives_->LookForStalls(clock_.MonotonicNs());
    MeasureWriters();
    ExpireLingering(clock_.MonotonicNs());
  });
  spdlog::info("{} blocks, {} of {} bytes used on {} drives", residents_->count(), budget_->used(),
               capacity, drives_->drives().size());
  return Ok();
}

// Uses the index that is there only if it is whole, of these drives, and was not interrupted by a
// crash of the system.
Status Cache::OpenIndex() {
  IndexOptions options;
  options.directory = drives_->first().path() + "/index";
  Status found = CheckIndex(options.directory, kCheckTimeoutMs);
  // A killed daemon gives up its drives first and its index a moment later.
  for (int tries = 0; tries < kLockTries && found.Is(Code::kRejected); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    found = CheckIndex(options.directory, kCheckTimeoutMs);
  }
  if (found.Is(Code::kRejected)) return found;
  if (found.ok()) {
    Result<std::unique_ptr<Index>> index = Index::Open(options);
    if (index.ok()) {
      const IndexLineage& lineage = (*index)->lineage();
      if (lineage.pool_uuid != drives_->pool_uuid()) {
        found = Status(Code::kCorrupt, "it describes other drives");
      } else if (!lineage.closed_clean && lineage.boot_id != CurrentBootId()) {
        found = Status(Code::kCorrupt, "the system went down while it was in use");
      } else {
        index_ = std::move(index).value();
        return Ok();
      }
    } else if (index.status().Is(Code::kRejected)) {
      return index.status();
    } else {
      found = index.status();
    }
  }
  const bool absent = found.Is(Code::kNotFound);
  if (absent) {
    spdlog::info("there is no index yet: making one from what is on the drives");
  } else {
    spdlog::warn("the index cannot be used and is made anew from the drives: {}", found.ToString());
  }
  std::error_code error;
  std::filesystem::remove_all(options.directory, error);
  index_ = PFS_TRY(Index::Open(options));
  const RebuildTally tally = PFS_TRY(RebuildIndex(*index_, *drives_, *naming_));
  // Last, so that an index whose rebuild was interrupted describes no drives and is rebuilt again.
  PFS_TRY(index_->SetPoolUuid(drives_->pool_uuid()));
  index_rebuilt_ = !absent || tally.blocks > 0;
  spdlog::info("index rebuilt: {} directories and links, {} blocks kept, {} dropped", tally.records,
               tally.blocks, tally.dropped);
  return Ok();
}

void Cache::OnDrive(Drive& drive, std::function<void()> work) {
  if (&drive == &drives_->first()) return work();
  drive.PostAndWait(std::move(work), config_.lookup_wait_ms);
}

void Cache::Tick() {
  if (Status status = index_->Sync(); !status.ok())
    spdlog::warn("index sync: {}", status.ToString());
  drives_->RefreshSpace();
  FlushAccessTimes();
  FlushTrash();
  DropAbandonedVersions();
  ForgetRetries();
  ReapDirectories();
  // The index lives on the first drive and is part of what the tier takes.
  const uint64_t index_bytes = index_->AllocatedBytes();
  budget_->Account(static_cast<int64_t>(index_bytes) - static_cast<int64_t>(index_accounted_), 0);
  index_accounted_ = index_bytes;
}

Status Cache::Close() {
  if (std::exchange(closed_, true)) return Ok();
  meter_.Stop();
  ticker_.Stop();
  if (checksums_) checksums_->Stop();
  if (evictor_) evictor_->Stop();
  if (!index_) return Ok();
  // Handles that never came back (the connection was aborted): visible files are kept, the rest are
  // torn.
  for (const FilePtr& file : open_.All()) {
    {
      ChangeLock change(file->change);
      bool sealed;
      {
        MutexLock lock(open_.mutex);
        file->readers = file->writers = 0;
        file->closed = false;  // there will be no rename
        sealed = file->sealed();
      }
      if (!sealed) SettleWriter(file);
    }
    Forget(file);
  }
  ExpireLingering(INT64_MAX);
  drives_->StopChores();  // they may still change the index's trash and the account
  FlushAccessTimes();
  FlushTrash();
  return index_->Close();
}

}  // namespace prefixfs
