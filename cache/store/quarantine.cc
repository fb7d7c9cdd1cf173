#include "cache/store/quarantine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

namespace prefixfs {

int64_t Quarantine::Load() {
  std::vector<Kept> found;
  for (auto& drive : drives_.drives()) {
    const auto files = drive->Quarantined();
    if (!files.ok()) {
      spdlog::warn("quarantine of {}: {}", drive->path(), files.status().ToString());
      continue;
    }
    for (const Drive::QuarantinedFile& file : *files)
      found.push_back({file.block, drive->slot(), file.bytes, file.since_ns});
  }
  std::sort(found.begin(), found.end(),
            [](const Kept& a, const Kept& b) { return a.since_ns < b.since_ns; });
  int64_t change = 0;
  {
    MutexLock lock(mutex_);
    for (const Kept& kept : found) change += Add(kept);
  }
  return change + Trim(limit_bytes_);
}

int64_t Quarantine::Add(const Kept& kept) {
  kept_.push_back(kept);
  bytes_ += kept.bytes;
  return static_cast<int64_t>(kept.bytes);
}

int64_t Quarantine::Keep(uint16_t slot, const BlockId& block) {
  Drive* drive = drives_.Find(slot);
  if (drive == nullptr || limit_bytes_ == 0) return 0;
  {
    MutexLock lock(mutex_);
    for (const Kept& kept : kept_) {
      if (kept.block == block) return 0;
    }
  }
  const Result<uint64_t> bytes = drive->Quarantine(block);
  if (!bytes.ok()) {
    spdlog::warn("block {} cannot be kept in {}/quarantine: {}", ToHex(block), drive->path(),
                 bytes.status().ToString());
    return 0;
  }
  int64_t change;
  {
    MutexLock lock(mutex_);
    change = Add({block, slot, *bytes, 0});
  }
  return change + Trim(limit_bytes_);
}

int64_t Quarantine::Trim(uint64_t limit_bytes) {
  std::vector<Kept> going;
  {
    MutexLock lock(mutex_);
    while (bytes_ > limit_bytes && !kept_.empty()) {
      bytes_ -= kept_.front().bytes;
      going.push_back(kept_.front());
      kept_.pop_front();
    }
  }
  int64_t change = 0;
  for (const Kept& kept : going) {
    Drive* drive = drives_.Find(kept.drive);
    const Status status = drive == nullptr ? Ok() : drive->Unquarantine(kept.block);
    if (!status.ok())
      spdlog::warn("quarantine: {}: {}", ToHex(kept.block), status.ToString());
    else
      change -= static_cast<int64_t>(kept.bytes);
  }
  return change;
}

int64_t Quarantine::Drop(uint16_t slot, const BlockId& block) {
  uint64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    const auto it = std::find_if(kept_.begin(), kept_.end(),
                                 [&](const Kept& kept) { return kept.block == block; });
    if (it == kept_.end()) return 0;
    bytes = it->bytes;
    bytes_ -= bytes;
    kept_.erase(it);
  }
  Drive* drive = drives_.Find(slot);
  if (drive == nullptr || !drive->Unquarantine(block).ok()) return 0;
  return -static_cast<int64_t>(bytes);
}

uint64_t Quarantine::blocks() {
  MutexLock lock(mutex_);
  return kept_.size();
}

uint64_t Quarantine::bytes() {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace prefixfs
