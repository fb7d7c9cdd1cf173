// EvictionPolicy: which block to give up next. A pure class over metadata: no I/O, no clock, no
// lock. The caller serialises all calls (cache/residents.h holds the lock).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "cache/base/status.h"

namespace prefixfs {

class EvictionPolicy {
 public:
  using Key = uint64_t;
  virtual ~EvictionPolicy() = default;

  // A block becomes resident. At start blocks are inserted from least to most recently used.
  virtual void Insert(Key key, uint64_t bytes) = 0;
  // A block was opened, or touched by utimensat. Probes are not told. Unknown keys are ignored.
  virtual void Touch(Key key) = 0;
  // A block is gone, evicted or not. Unknown keys are ignored.
  virtual void Remove(Key key) = 0;
  // Appends up to `max` keys to `out`, best victim first, of those for which `eligible` holds,
  // without removing them. Looks at no more than `max_scan` blocks.
  virtual void Victims(const std::function<bool(Key)>& eligible, size_t max, size_t max_scan,
                       std::vector<Key>* out) = 0;
  virtual size_t size() const = 0;
};

// kInvalid with the known names if `name` is none of them.
Result<std::unique_ptr<EvictionPolicy>> MakePolicy(std::string_view name);

}  // namespace prefixfs
