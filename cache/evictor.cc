#include "cache/evictor.h"

#include <algorithm>

#include "cache/base/memory.h"

namespace prefixfs {
namespace {
constexpr size_t kBatch = 16;  // victims removed in one index transaction
constexpr int kFruitless = 4;  // batches in a row that freed nothing before a round ends
constexpr uint64_t kCushion = 64ull
                              << 20;  // kept above min_free, for what is written between two looks
}  // namespace

Evictor::Evictor(Budget& budget, Residents& residents, DriveSet& drives, SizeSpec min_free,
                 Evict evict, LastResort last_resort)
    : budget_(budget),
      residents_(residents),
      drives_(drives),
      min_free_(min_free),
      evict_(std::move(evict)),
      last_resort_(std::move(last_resort)) {}

uint64_t Evictor::Free(uint64_t bytes, int drive, bool* leased_ahead) {
  uint64_t freed = 0;
  if (drive < 0 && drives_.AnyStalled()) {
    for (auto& each : drives_.drives()) {
      if (freed < bytes && !each->stalled() && !each->failed())
        freed += Free(bytes - freed, each->slot(), leased_ahead);
    }
    return freed;
  }
  int fruitless = 0;
  bool blocked = false;
  while (freed < bytes && fruitless < kFruitless) {
    auto victims = residents_.TakeVictims(kBatch, drive, leased_ahead);
    if (victims.empty()) break;
    // Give back what this shortage does not need: a batch may be far larger than one block.
    uint64_t taken = 0;
    size_t needed = 0;
    while (needed < victims.size() && freed + taken < bytes)
      taken += victims[needed++].block.allocated;
    for (size_t i = needed; i < victims.size(); ++i) residents_.Release(victims[i].ino);
    victims.resize(needed);
    const Outcome got = Remove(victims);
    fruitless = got.freed_bytes == 0 && !got.put_off ? fruitless + 1 : 0;
    freed += got.freed_bytes;
    blocked = blocked || got.leased_ahead;
  }
  *leased_ahead = *leased_ahead || blocked;
  return freed;
}

void Evictor::FreeFiles(uint64_t files, uint16_t drive) {
  bool leased_ahead = false;
  for (uint64_t gone = 0; gone < files;) {
    const auto victims =
        residents_.TakeVictims(std::min<uint64_t>(kBatch, files - gone), drive, &leased_ahead);
    if (victims.empty()) break;
    (void)Remove(victims);  // bytes say nothing here: an empty file has an inode too
    gone += victims.size();
  }
}

Evictor::Outcome Evictor::Remove(const std::vector<Residents::Victim>& victims) {
  Outcome outcome;
  if (!SurvivesNoMemory([&] { outcome = evict_(victims); })) {
    for (const auto& victim : victims) residents_.PutBack(victim.ino);
  }
  return outcome;
}

void Evictor::Run() {
  bool leased_ahead = false;
  while (const uint64_t wanted = budget_.Wanted()) {
    if (Free(wanted, -1, &leased_ahead) > 0 || last_resort_()) continue;
    // With leases running out soon, or a drive that may answer again, waiters go on waiting;
    // otherwise there is no point.
    const bool stalled = std::any_of(drives_.drives().begin(), drives_.drives().end(),
                                     [](const auto& drive) { return drive->stalled(); });
    if (!leased_ahead && !stalled) budget_.NothingEvictable();
    break;
  }
  for (auto& drive : drives_.drives()) {
    if (drive->failed() || drive->stalled()) continue;
    if (drives_.MissingFiles(drive->slot()) > 0) {
      drives_.RefreshSpace();  // a block must not go for what somebody has removed meanwhile
      FreeFiles(drives_.MissingFiles(drive->slot()), drive->slot());
      drives_.RefreshSpace();
    }
    const int64_t headroom =
        drives_.Headroom(drive->slot(), min_free_) - static_cast<int64_t>(kCushion);
    if (headroom >= 0) continue;
    if (Free(static_cast<uint64_t>(-headroom), drive->slot(), &leased_ahead) == 0) last_resort_();
    drives_.RefreshSpace();
  }
}

}  // namespace prefixfs
