// Evictor: makes room in the background, before a create has to wait for it.
//
// It runs when the budget is above its high watermark or somebody waits, and when a filesystem has
// less than min_free or hardly any inodes left (then only for blocks of that drive). A block that
// cannot be removed is put back at the warm end and counted.
#pragma once

#include <functional>
#include <vector>

#include "cache/base/ticker.h"
#include "cache/budget.h"
#include "cache/residents.h"
#include "cache/store/drive_set.h"

namespace prefixfs {

class Evictor {
 public:
  struct Outcome {
    uint64_t freed_bytes = 0;
    bool put_off = false;       // some get their turn again later, with the rest of their group
    bool leased_ahead = false;  // some stay, for a lease on another of their group
  };
  // `evict` removes the victims, and what goes with them; victims it did not remove it has put
  // back.
  using Evict = std::function<Outcome(const std::vector<Residents::Victim>&)>;
  // Asked where nothing can be evicted: true if something else came free.
  using LastResort = std::function<bool()>;
  Evictor(Budget& budget, Residents& residents, DriveSet& drives, SizeSpec min_free, Evict evict,
          LastResort last_resort);

  void Start() {
    ticker_.Start(100, [this] { Run(); });
  }
  void Wake() { ticker_.Wake(); }
  void Stop() { ticker_.Stop(); }

 private:
  void Run();
  // Removes `files` blocks of a drive whose filesystem has hardly an inode left.
  void FreeFiles(uint64_t files, uint16_t drive);
  Outcome Remove(const std::vector<Residents::Victim>& victims);
  // Frees up to `bytes`; returns what came free.
  uint64_t Free(uint64_t bytes, int drive, bool* leased_ahead);

  Budget& budget_;
  Residents& residents_;
  DriveSet& drives_;
  const SizeSpec min_free_;
  const Evict evict_;
  const LastResort last_resort_;
  Ticker ticker_;
};

}  // namespace prefixfs
