#include "cache/store/drive_set.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>

#include "cache/store/drive_format.h"

namespace prefixfs {
namespace {

// Inodes kept free, for what is made between two looks.
constexpr uint64_t kSpareFiles = 1024;

bool DeviceIsGone(const Status& status) {
  return status.Is(Code::kUnavailable) || status.Is(Code::kIo);
}

}  // namespace

Result<std::unique_ptr<DriveSet>> DriveSet::Open(const std::vector<std::string>& paths) {
  if (paths.empty()) return Status(Code::kInvalid, "no drive is given");
  std::unique_ptr<DriveSet> set(new DriveSet);
  Status first_loss;
  for (const std::string& path : paths) {
    Result<std::unique_ptr<Drive>> drive = Drive::Open(path, "");
    if (drive.ok()) {
      set->drives_.push_back(std::move(drive).value());
      continue;
    }
    if (!DeviceIsGone(drive.status())) return drive.status();
    spdlog::error("drive {} is left out: {}", path, drive.status().ToString());
    if (first_loss.ok()) first_loss = drive.status();
  }
  if (set->drives_.empty()) return first_loss;
  PFS_TRY(set->JoinPool());
  PFS_TRY(set->AssignSlots());
  for (const auto& drive : set->drives_) {
    auto state = std::make_unique<State>();
    Result<DriveSpace> space = drive->Space();
    if (space.ok()) state->fs_id = space->fs_id;
    set->states_.push_back(std::move(state));
  }
  set->RefreshSpace();
  return set;
}

// The first drive that has a pool decides which.
Status DriveSet::JoinPool() {
  const Drive* decides = nullptr;
  for (const auto& drive : drives_) {
    if (drive->pool_uuid().empty()) continue;
    if (!decides) decides = drive.get();
    if (drive->pool_uuid() != decides->pool_uuid()) {
      return Status(Code::kInvalid, drive->path() + " belongs to pool " + drive->pool_uuid() +
                                        ", but " + decides->path() + " to pool " +
                                        decides->pool_uuid() + ": they cannot serve one mount");
    }
  }
  pool_uuid_ = decides ? decides->pool_uuid() : NewUuid();
  return Ok();
}

// New drives get slots that the pool has never given, and every drive learns how many have been
// given.
Status DriveSet::AssignSlots() {
  std::set<uint16_t> taken;
  uint32_t given = 0;
  for (const auto& drive : drives_) {
    given = std::max(given, drive->slots_given());
    if (drive->has_slot() && !taken.insert(drive->slot()).second) {
      return Status(Code::kInvalid, drive->path() + " has slot " + std::to_string(drive->slot()) +
                                        " like another drive of the pool: is it a copy?");
    }
  }
  for (const auto& drive : drives_) {
    if (drive->has_slot()) continue;
    if (given > UINT16_MAX) return Status(Code::kInvalid, "the pool has given all its slots");
    PFS_TRY(drive->Assign(pool_uuid_, static_cast<uint16_t>(given), given + 1));
    ++given;
  }
  for (const auto& drive : drives_) {
    if (drive->slots_given() == given) continue;
    const Status told = drive->Assign(pool_uuid_, drive->slot(), given);
    if (!told.ok()) spdlog::warn("slots of the pool not noted: {}", told.ToString());
  }
  return Ok();
}

Drive* DriveSet::Find(uint16_t slot) const {
  for (const auto& drive : drives_) {
    if (drive->slot() == slot) return drive->failed() ? nullptr : drive.get();
  }
  return nullptr;
}

Result<Drive*> DriveSet::Place(uint64_t bytes, const Drive* avoid) const {
  Drive* best = nullptr;
  bool best_answers = false;
  double best_pressure = 0;
  const size_t start = turn_.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < drives_.size(); ++i) {
    const size_t at = (start + i) % drives_.size();
    if (drives_[at]->failed()) continue;
    const State& state = *states_[at];
    const auto queued = static_cast<double>(std::max<int64_t>(0, state.queued_bytes.load()));
    const auto free = static_cast<double>(std::max<uint64_t>(1, state.free_bytes.load()));
    const auto placed = static_cast<double>(state.placed_bytes.load());
    const double pressure = (queued + placed + static_cast<double>(bytes)) / free;
    const bool answers = !drives_[at]->stalled() && drives_[at].get() != avoid;
    if (best && best_answers && !answers) continue;
    if (!best || answers != best_answers || pressure < best_pressure) {
      best = drives_[at].get();
      best_answers = answers;
      best_pressure = pressure;
    }
  }
  if (!best) return Status(Code::kUnavailable, "every drive has failed");
  return best;
}

void DriveSet::LookForStalls(int64_t now_ns) {
  for (const auto& drive : drives_) drive->LookForStall(now_ns);
}

bool DriveSet::AnyStalled() const {
  return std::any_of(drives_.begin(), drives_.end(),
                     [](const auto& drive) { return drive->stalled() && !drive->failed(); });
}

void DriveSet::StartChores() {
  for (const auto& drive : drives_) drive->StartChores();
}

void DriveSet::StopChores() {
  for (const auto& drive : drives_) drive->StopChores();
}

std::pair<uint64_t, uint64_t> DriveSet::KnownSpace(size_t position) const {
  return {states_[position]->total_bytes.load(), states_[position]->free_bytes.load()};
}

void DriveSet::AddQueued(uint16_t slot, int64_t bytes) {
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (drives_[i]->slot() != slot) continue;
    states_[i]->queued_bytes.fetch_add(bytes);
    if (bytes > 0) states_[i]->placed_bytes.fetch_add(static_cast<uint64_t>(bytes));
  }
}

// Every drive is asked, which is also its health check, but drives on one filesystem share one
// answer: two that are taken a moment apart would make equal drives look different.
void DriveSet::RefreshSpace() {
  std::map<uint64_t, DriveSpace> seen;
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (drives_[i]->stalled()) continue;  // what was known of it stays
    const Result<DriveSpace> space = drives_[i]->Space();
    if (!space.ok()) {
      // Of a drive that has not failed the last answer stays: with nothing free every block on it
      // would be evicted.
      if (drives_[i]->failed()) states_[i]->free_bytes = 0;
      continue;
    }
    const DriveSpace& shared = seen.try_emplace(space.value().fs_id, space.value()).first->second;
    states_[i]->total_bytes = shared.total_bytes;
    states_[i]->free_bytes = shared.free_bytes;
    states_[i]->total_files = shared.total_files;
    states_[i]->free_files = shared.free_files;
    states_[i]->placed_bytes = 0;
  }
}

uint64_t DriveSet::TotalBytes() const {
  std::set<uint64_t> counted;
  uint64_t total = 0;
  for (const auto& state : states_) {
    if (counted.insert(state->fs_id).second) total += state->total_bytes.load();
  }
  return total;
}

uint64_t DriveSet::MissingFiles(uint16_t slot) const {
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (drives_[i]->slot() != slot || drives_[i]->failed()) continue;
    const uint64_t spare = std::min(kSpareFiles, states_[i]->total_files.load() / 16);
    const uint64_t free = states_[i]->free_files.load();
    return free < spare ? spare - free : 0;
  }
  return 0;
}

int64_t DriveSet::Headroom(uint16_t slot, const SizeSpec& min_free) const {
  const State* own = nullptr;
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (drives_[i]->slot() == slot && !drives_[i]->failed()) own = states_[i].get();
  }
  if (!own) return 0;
  int64_t queued = 0;
  for (const auto& state : states_) {
    if (state->fs_id == own->fs_id) queued += std::max<int64_t>(0, state->queued_bytes.load());
  }
  return static_cast<int64_t>(own->free_bytes.load()) - queued -
         static_cast<int64_t>(min_free.Of(own->total_bytes.load()));
}

}  // namespace prefixfs
