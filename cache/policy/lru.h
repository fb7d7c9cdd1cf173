// LruPolicy: gives up what was not opened for longest. The baseline that other policies are
// measured against.
//
// Memory: 16 bytes a block for the list, whose nodes are linked by index inside one array, and 5 to
// 11 bytes for the table that finds them (open addressing, linear probing, at most 3/4 full;
// deletion by backward shift, Knuth, TAOCP vol. 3, 6.4, algorithm R). Nothing is allocated per
// block.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/policy/policy.h"

namespace prefixfs {

class LruPolicy : public EvictionPolicy {
 public:
  LruPolicy();

  void Insert(Key key, uint64_t bytes) override;
  void Touch(Key key) override;
  void Remove(Key key) override;
  // Scans from the cold end. A scan that met `max_scan` blocks of which none was eligible (all
  // leased or open) is continued by the next call, so that a long run of such blocks never hides
  // the rest.
  void Victims(const std::function<bool(Key)>& eligible, size_t max, size_t max_scan,
               std::vector<Key>* out) override;
  size_t size() const override { return size_; }

 private:
  using Index = uint32_t;
  static constexpr Index kNone = UINT32_MAX;

  // Invariant: the used nodes form one list, coldest first, from cold_ by `hotter` to hot_; and by
  // `colder` back. Free nodes form a list from free_ by `hotter`.
  struct Node {
    Key key;
    Index colder;
    Index hotter;
  };

  void Unlink(Index node);
  void LinkHot(Index node);

  size_t HomeOf(Key key) const;
  size_t SlotOf(Key key) const;  // where the key is, or the empty slot where it would be
  void Grow();
  void EraseSlot(size_t slot);

  std::vector<Node> nodes_;
  Index cold_ = kNone, hot_ = kNone, free_ = kNone;
  Index resume_ = kNone;      // where a fruitless scan stopped
  std::vector<Index> table_;  // a power of two of slots, kNone where empty
  size_t size_ = 0;
};

}  // namespace prefixfs
