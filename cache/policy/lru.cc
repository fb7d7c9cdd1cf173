#include "cache/policy/lru.h"

#include <cassert>

namespace prefixfs {
namespace {

constexpr size_t kFirstSlots = 64;

}  // namespace

LruPolicy::LruPolicy() : table_(kFirstSlots, kNone) {}

void LruPolicy::Insert(Key key, uint64_t /*bytes*/) {
  if ((size_ + 1) * 4 > table_.size() * 3) Grow();
  const size_t slot = SlotOf(key);
  if (table_[slot] != kNone) {
    Touch(key);
    return;
  }
  Index node = free_;
  if (node != kNone) {
    free_ = nodes_[node].hotter;
  } else {
    assert(nodes_.size() < kNone);
    node = static_cast<Index>(nodes_.size());
    nodes_.emplace_back();
  }
  nodes_[node].key = key;
  LinkHot(node);
  table_[slot] = node;
  ++size_;
}

void LruPolicy::Touch(Key key) {
  const Index node = table_[SlotOf(key)];
  if (node == kNone || node == hot_) return;
  Unlink(node);
  LinkHot(node);
}

void LruPolicy::Remove(Key key) {
  const size_t slot = SlotOf(key);
  const Index node = table_[slot];
  if (node == kNone) return;
  EraseSlot(slot);
  Unlink(node);
  nodes_[node].hotter = free_;
  free_ = node;
  --size_;
}

void LruPolicy::Victims(const std::function<bool(Key)>& eligible, size_t max, size_t max_scan,
                        std::vector<Key>* out) {
  Index node = resume_ != kNone ? resume_ : cold_;
  resume_ = kNone;
  size_t found = 0;
  for (size_t scanned = 0; node != kNone && scanned < max_scan && found < max; ++scanned) {
    if (eligible(nodes_[node].key)) {
      out->push_back(nodes_[node].key);
      ++found;
    }
    node = nodes_[node].hotter;
  }
  if (found == 0 && max > 0 && max_scan > 0) resume_ = node;
}

void LruPolicy::Unlink(Index node) {
  const Node& gone = nodes_[node];
  if (resume_ == node) resume_ = gone.hotter;
  (gone.colder != kNone ? nodes_[gone.colder].hotter : cold_) = gone.hotter;
  (gone.hotter != kNone ? nodes_[gone.hotter].colder : hot_) = gone.colder;
}

void LruPolicy::LinkHot(Index node) {
  nodes_[node].colder = hot_;
  nodes_[node].hotter = kNone;
  (hot_ != kNone ? nodes_[hot_].hotter : cold_) = node;
  hot_ = node;
}

// Keys are numbers given in sequence; Fibonacci hashing (TAOCP vol. 3, 6.4) spreads them by their
// high bits.
size_t LruPolicy::HomeOf(Key key) const {
  const uint64_t mixed = key * 0x9E3779B97F4A7C15ull;
  return static_cast<size_t>(mixed >> 32) & (table_.size() - 1);
}

size_t LruPolicy::SlotOf(Key key) const {
  size_t slot = HomeOf(key);
  while (table_[slot] != kNone && nodes_[table_[slot]].key != key) {
    slot = (slot + 1) & (table_.size() - 1);
  }
  return slot;
}

void LruPolicy::Grow() {
  std::vector<Index> old(table_.size() * 2, kNone);
  old.swap(table_);
  for (const Index node : old) {
    if (node != kNone) table_[SlotOf(nodes_[node].key)] = node;
  }
}

// Moves later entries of the same run back, so that no search ends early at the hole.
void LruPolicy::EraseSlot(size_t slot) {
  const size_t mask = table_.size() - 1;
  size_t hole = slot;
  for (size_t next = (hole + 1) & mask; table_[next] != kNone; next = (next + 1) & mask) {
    const size_t home = HomeOf(nodes_[table_[next]].key);
    // The entry may fill the hole unless its home lies cyclically in (hole, next].
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    table_[hole] = table_[next];
    hole = next;
  }
  table_[hole] = kNone;
}

}  // namespace prefixfs
