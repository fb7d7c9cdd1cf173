// Start and stop of a mount's cache, and its background threads.
#include "cache/cache.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <sstream>
#include <thread>

#include "cache/rebuild.h"

namespace prefixfs {
namespace {
constexpr int kLockTries = 100;
constexpr size_t kUuidLength = 36;
constexpr int64_t kCheckTimeoutMs = 10 * 60 * 1000;

// Whether a status is about the index, and not about what this process or the drive lacks just now.
bool IsVerdict(const Status& status) {
  switch (status.code()) {
    case Code::kNoSpace:
    case Code::kNoMemory:
    case Code::kNoDescriptors:
    case Code::kUnavailable:
    case Code::kDenied:
    case Code::kRejected:
      return false;
    default:
      return true;
  }
}
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
  quarantine_ = std::make_unique<Quarantine>(*drives_, config_.quarantine);
  budget_->Account(quarantine_->Load(), 0);
  scrubber_ = std::make_unique<Scrubber>(
      Scrubber::Limits{config_.scrub_rate, config_.scrub_interval_ms},
      Scrubber::Store{[this](Ino after) { return ScrubNext(after); },
                      [this](Ino ino) { return ScrubBlock(ino); },
                      [this] { return counters_.opens.load() + counters_.published.load(); }});
  checksums_ = std::make_unique<Checksums>(
      [this](const std::vector<Ino>& blocks) { ChecksumBlocks(blocks); });
  PFS_TRY(OpenIndex());
  PFS_TRY(Load());
  evictor_ = std::make_unique<Evictor>(
      *budget_, *residents_, *drives_, config_.min_free,
      [this](const std::vector<Residents::Victim>& victims) { return EvictBatch(victims); },
      [this] {
        const int64_t change = quarantine_->Clear();
        budget_->Account(change, 0);
        return change < 0;
      });
  drives_->StartChores();
  evictor_->Start();
  checksums_->Start();
  scrubber_->Start();
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

// " without 1 3": drives of the pool that are not here now.
std::string Cache::AbsentSlots() const {
  uint32_t given = 0;
  for (const auto& drive : drives_->drives()) given = std::max(given, drive->slots_given());
  std::string absent;
  for (uint32_t slot = 0; slot < given; ++slot) {
    if (drives_->Find(static_cast<uint16_t>(slot)) == nullptr) absent += " " + std::to_string(slot);
  }
  return absent.empty() ? absent : " without" + absent;
}

// A drive that is here and was not when the index was made, so that its blocks are not in it.
std::string Cache::ReturnedSlot(const std::string& described) const {
  std::istringstream words(described);
  std::string word;
  words >> word >> word;  // uuid, without
  for (unsigned slot; words >> slot;) {
    if (drives_->Find(static_cast<uint16_t>(slot)) != nullptr) return std::to_string(slot);
  }
  return {};
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
  if (!IsVerdict(found)) return found;
  if (found.ok()) {
    Result<std::unique_ptr<Index>> index = Index::Open(options);
    if (index.ok()) {
      const IndexLineage& lineage = (*index)->lineage();
      if (const std::string back = ReturnedSlot(lineage.pool_uuid); !back.empty()) {
        found = Status(Code::kCorrupt, "drive " + back + " was away when it was made");
      } else if (lineage.pool_uuid.substr(0, kUuidLength) != drives_->pool_uuid()) {
        found = Status(Code::kCorrupt, "it describes other drives");
      } else if (!lineage.closed_clean && lineage.boot_id != CurrentBootId()) {
        found = Status(Code::kCorrupt, "the system went down while it was in use");
      } else {
        index_ = std::move(index).value();
        return Ok();
      }
    } else if (!IsVerdict(index.status())) {
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
  // So is one that lacks the blocks of a drive which could not be read.
  if (tally.complete) PFS_TRY(index_->SetPoolUuid(drives_->pool_uuid() + AbsentSlots()));
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
  index_->Warm();
  drives_->RefreshSpace();
  FlushAccessTimes();
  FlushTrash();
  DropAbandonedVersions();
  ForgetRetries();
  ReapDirectories();
  FindOrphans();
  ReapOrphans();
  // The index lives on the first drive and is part of what the tier takes.
  const uint64_t index_bytes = index_->AllocatedBytes();
  budget_->Account(static_cast<int64_t>(index_bytes) - static_cast<int64_t>(index_accounted_), 0);
  index_accounted_ = index_bytes;
}

Status Cache::Close() {
  if (std::exchange(closed_, true)) return Ok();
  meter_.Stop();
  ticker_.Stop();
  if (scrubber_) scrubber_->Stop();
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
