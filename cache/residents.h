// Residents: the sealed blocks that may be evicted, with what decides whether they are: open
// handles, leases, and the policy's order. The one place where "may this block go?" and "is
// somebody using it?" meet, so that eviction and open can never both win.
//
// A *probe* (lookup, stat, readdirplus) or an open grants a lease: the block stays for `lease` plus
// the kernel's own timeouts. Probes never refresh recency. A leased block that the evictor would
// have taken becomes *wanted*: from then on probes do not renew its lease, and when it runs out the
// block is absent, so that endless probing delays an eviction by one lease at most. An open clears
// that.
//
// Threads: every call from any thread; one lock, never held over I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/index/record.h"
#include "cache/policy/policy.h"

namespace prefixfs {

class Residents {
 public:
  Residents(std::unique_ptr<EvictionPolicy> policy, int64_t lease_ms, const Clock& clock)
      : policy_(std::move(policy)), lease_ns_(lease_ms * kNsPerMs), clock_(clock) {}

  struct Block {
    uint64_t allocated = 0;
    uint32_t model = 0;
    uint16_t drive = 0;
    bool unverified = false;
  };

  // A block was sealed, or found at start (then in order of last use, oldest first).
  // `open_handles`: read handles that outlive the writer. `fresh`: just sealed, so its writer may
  // be about to rename it: for half a second it goes after all others, and has a short lease of
  // its own. EndGrace takes both back after the rename.
  void Insert(Ino ino, const Block& block, uint32_t open_handles = 0, bool fresh = false)
      PFS_EXCLUDES(mutex_);
  void EndGrace(Ino ino) PFS_EXCLUDES(mutex_);
  // So many blocks are to be inserted at once.
  void Reserve(size_t blocks) PFS_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    entries_.reserve(blocks);
  }
  // The block has no name any more, or is a writer's again. Returns what it was; `allocated` 0 if
  // unknown.
  Block Remove(Ino ino) PFS_EXCLUDES(mutex_);

  enum class Probe {
    kUnknown,  // not here: no sealed block
    kLeased,   // protected
    kGone,     // being evicted, or as good as: answer "absent"
  };
  Probe Touch(Ino ino) PFS_EXCLUDES(mutex_);  // a probe
  // An open for reading: counts a handle, grants a lease, refreshes recency.
  Probe Open(Ino ino, bool* unverified) PFS_EXCLUDES(mutex_);
  void Close(Ino ino) PFS_EXCLUDES(mutex_);
  // utimensat(UTIME_NOW): refreshes recency.
  void Refresh(Ino ino) PFS_EXCLUDES(mutex_);
  void SetVerified(Ino ino) PFS_EXCLUDES(mutex_);
  // Returns by how much the block's bytes changed.
  int64_t SetAllocated(Ino ino, uint64_t allocated) PFS_EXCLUDES(mutex_);

  struct Victim {
    Ino ino;
    Block block;
  };
  // Chooses up to `max` of the coldest blocks, optionally only of one drive (-1: any). Each is
  // there until TakeWith decides, or one of the calls after it. `leased_ahead` tells whether leased
  // blocks were passed over.
  std::vector<Victim> TakeVictims(size_t max, int drive, bool* leased_ahead) PFS_EXCLUDES(mutex_);
  // Marks a victim and the rest of its group as going: they are absent from now on. Those that are
  // no resident blocks are taken out of `others`. False if one of them all is open or leased by
  // now: then none goes, and the victim holds as long as that lease does.
  bool TakeWith(Ino victim, std::vector<Ino>* others) PFS_EXCLUDES(mutex_);
  // The victim was not needed after all: it keeps its place in the order.
  void Release(Ino ino) PFS_EXCLUDES(mutex_);
  // The victim could not be removed: it goes to the warm end of the order, so that others get their
  // turn.
  void PutBack(Ino ino) PFS_EXCLUDES(mutex_);

  // The victim stays, and is none for so long.
  void Hold(Ino ino, int64_t ns) PFS_EXCLUDES(mutex_);
  // Its group was used later than itself: as PutBack, but only once between two opens. False: it
  // was put off before, and is still a victim.
  bool PutOff(Ino ino) PFS_EXCLUDES(mutex_);

  struct ModelUse {
    uint64_t blocks = 0, bytes = 0;
  };
  std::unordered_map<uint32_t, ModelUse> Models() PFS_EXCLUDES(mutex_);
  uint64_t count() PFS_EXCLUDES(mutex_);
  uint64_t unverified() PFS_EXCLUDES(mutex_);

 private:
  struct Entry {
    Block block;
    uint32_t open_handles = 0;
    bool chosen = false;  // a victim that nothing is decided about
    bool going = false;
    bool wanted = false;
    bool put_off = false;
    int64_t fresh_until_ns = 0;
    int64_t lease_until_ns = 0;
  };
  bool Renew(Entry& entry, int64_t now) PFS_REQUIRES(mutex_);

  Mutex mutex_;
  std::unordered_map<Ino, Entry> entries_ PFS_GUARDED_BY(mutex_);
  std::unique_ptr<EvictionPolicy> policy_ PFS_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, ModelUse> models_ PFS_GUARDED_BY(mutex_);
  uint64_t unverified_ PFS_GUARDED_BY(mutex_) = 0;
  const int64_t lease_ns_;
  const Clock& clock_;
};

// What the kernel may remember an answer for: half of the lease, so that the lease, which is one
// and a half times that long from the probe, outlasts the kernel's copy of the answer by a whole
// `lease`.
inline double KernelTimeoutS(int64_t lease_ms) { return static_cast<double>(lease_ms) / 2000.0; }

}  // namespace prefixfs
