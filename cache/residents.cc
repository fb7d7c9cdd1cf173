#include "cache/residents.h"

#include <algorithm>
#include <utility>

namespace prefixfs {
namespace {
constexpr int64_t kRenameGraceNs = 500 * kNsPerMs;  // of a block just sealed
constexpr int64_t kOpenMemberNs = kNsPerSecond;  // until a group with an open block is tried again
constexpr size_t kMaxScan = 65'536;              // blocks looked at for one batch of victims
}  // namespace

bool Residents::Renew(Entry& entry, int64_t now) {
  if (entry.going) return false;
  if (entry.wanted) return now < entry.lease_until_ns;
  entry.lease_until_ns = now + lease_ns_ + lease_ns_ / 2;
  entry.fresh_until_ns = 0;
  return true;
}

void Residents::Insert(Ino ino, const Block& block, uint32_t open_handles, bool fresh) {
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(mutex_);
  Entry entry;
  entry.block = block;
  entry.open_handles = open_handles;
  if (fresh) {
    entry.fresh_until_ns = now + kRenameGraceNs;
    entry.lease_until_ns = now + std::min(lease_ns_, kRenameGraceNs);
  }
  if (!entries_.emplace(ino, entry).second) return;
  policy_->Insert(ino, block.allocated);
  ModelUse& use = models_[block.model];
  use.blocks += 1;
  use.bytes += block.allocated;
  if (block.unverified) ++unverified_;
}

void Residents::EndGrace(Ino ino) {
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it == entries_.end() || it->second.fresh_until_ns == 0) return;
  it->second.fresh_until_ns = 0;
  it->second.lease_until_ns = 0;
}

Residents::Block Residents::Remove(Ino ino) {
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it == entries_.end()) return {};
  const Block block = it->second.block;
  policy_->Remove(ino);
  entries_.erase(it);
  ModelUse& use = models_[block.model];
  use.blocks -= 1;
  use.bytes -= block.allocated;
  if (use.blocks == 0) models_.erase(block.model);
  if (block.unverified) --unverified_;
  return block;
}

Residents::Probe Residents::Touch(Ino ino) {
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it == entries_.end()) return Probe::kUnknown;
  return Renew(it->second, now) || it->second.open_handles > 0 ? Probe::kLeased : Probe::kGone;
}

Residents::Probe Residents::Open(Ino ino, bool* unverified) {
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it == entries_.end()) return Probe::kUnknown;
  Entry& entry = it->second;
  if (entry.going) return Probe::kGone;
  entry.wanted = false;
  entry.put_off = false;
  Renew(entry, now);
  ++entry.open_handles;
  policy_->Touch(ino);
  *unverified = entry.block.unverified;
  return Probe::kLeased;
}

void Residents::Close(Ino ino) {
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it != entries_.end() && it->second.open_handles > 0) --it->second.open_handles;
}

void Residents::Refresh(Ino ino) {
  MutexLock lock(mutex_);
  policy_->Touch(ino);
}

void Residents::SetVerified(Ino ino) {
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it == entries_.end() || !it->second.block.unverified) return;
  it->second.block.unverified = false;
  --unverified_;
}

int64_t Residents::SetAllocated(Ino ino, uint64_t allocated) {
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it == entries_.end()) return 0;
  Block& block = it->second.block;
  const int64_t delta = static_cast<int64_t>(allocated) - static_cast<int64_t>(block.allocated);
  models_[block.model].bytes += static_cast<uint64_t>(delta);
  block.allocated = allocated;
  return delta;
}

std::vector<Residents::Victim> Residents::TakeVictims(size_t max, int drive, bool* leased_ahead) {
  const int64_t now = clock_.MonotonicNs();
  *leased_ahead = false;
  std::vector<EvictionPolicy::Key> keys;
  size_t passed_over = 0;
  MutexLock lock(mutex_);
  bool fresh_too = false;
  auto eligible = [&](EvictionPolicy::Key key) PFS_NO_ANALYSIS {
    Entry& entry = entries_.at(key);
    const bool fresh = now < entry.fresh_until_ns;
    if (entry.going || entry.chosen || entry.open_handles > 0 || fresh != fresh_too) return false;
    if (drive >= 0 && entry.block.drive != drive) return false;
    if (now >= entry.lease_until_ns) return true;
    // Only as many as are asked for, or one shortage would end every lease there is.
    if (passed_over++ < max) entry.wanted = true;
    *leased_ahead = true;
    return false;
  };
  policy_->Victims(eligible, max, kMaxScan, &keys);
  // What was just sealed and not renamed yet goes only when there is nothing else.
  if (keys.empty()) {
    fresh_too = true;
    policy_->Victims(eligible, max, kMaxScan, &keys);
  }
  std::vector<Victim> victims;
  for (const auto key : keys) {
    Entry& entry = entries_.at(key);
    entry.chosen = true;
    victims.push_back({key, entry.block});
  }
  return victims;
}

bool Residents::TakeWith(Ino victim, std::vector<Ino>* others) {
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(mutex_);
  const auto it = entries_.find(victim);
  if (it == entries_.end()) return true;  // removed meanwhile: nothing of it is in the way
  std::erase_if(*others, [&](Ino ino) PFS_NO_ANALYSIS { return !entries_.contains(ino); });
  int64_t until = 0;
  const auto look = [&](Entry& entry) PFS_NO_ANALYSIS {
    if (entry.going) return;
    if (entry.open_handles > 0) until = std::max(until, now + kOpenMemberNs);
    if (now >= entry.lease_until_ns) return;
    entry.wanted = true;
    until = std::max(until, entry.lease_until_ns);
  };
  look(it->second);
  for (const Ino ino : *others) look(entries_.at(ino));
  it->second.chosen = false;
  if (until > 0) {
    it->second.wanted = true;
    it->second.lease_until_ns = std::max(it->second.lease_until_ns, until);
    return false;
  }
  it->second.going = true;
  for (const Ino ino : *others) entries_.at(ino).going = true;
  return true;
}

void Residents::Release(Ino ino) {
  MutexLock lock(mutex_);
  if (auto it = entries_.find(ino); it != entries_.end())
    it->second.going = it->second.chosen = false;
}

void Residents::PutBack(Ino ino) {
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it == entries_.end()) return;
  it->second.going = it->second.chosen = false;
  it->second.wanted = false;
  policy_->Touch(ino);
}

void Residents::Hold(Ino ino, int64_t ns) {
  const int64_t until = clock_.MonotonicNs() + ns;
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it == entries_.end()) return;
  it->second.going = it->second.chosen = false;
  it->second.lease_until_ns = until;
}

bool Residents::PutOff(Ino ino) {
  MutexLock lock(mutex_);
  auto it = entries_.find(ino);
  if (it == entries_.end() || std::exchange(it->second.put_off, true)) return false;
  it->second.going = it->second.chosen = false;
  it->second.wanted = false;
  policy_->Touch(ino);
  return true;
}

std::unordered_map<uint32_t, Residents::ModelUse> Residents::Models() {
  MutexLock lock(mutex_);
  return models_;
}

uint64_t Residents::count() {
  MutexLock lock(mutex_);
  return entries_.size();
}

uint64_t Residents::unverified() {
  MutexLock lock(mutex_);
  return unverified_;
}

}  // namespace prefixfs
