// Groups: blocks of which one is worth nothing without the others go together.
#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "cache/cache.h"

namespace prefixfs {
namespace {
constexpr size_t kMostMembers = 1024;  // a directory with more is no group
}

// What goes with the block. A folder that is a group goes as a whole, with the links in it: clients
// ask whether it is there, and take that for an answer about all of its files.
Cache::Group Cache::GroupOf(const Inode& inode) {
  Group group;
  Result<Inode> directory = index_->Get(inode.parent);
  if (!directory.ok()) return group;
  const BlockGroup names = naming_->GroupOf(directory->name, inode.name);
  if (names.directory) {
    Result<std::vector<Inode>> all = index_->List(inode.parent, 0, kMostMembers + 1);
    if (!all.ok() || all->size() > kMostMembers) return group;
    for (Inode& other : *all) {
      if (other.ino == inode.ino) continue;
      if (other.IsFile())
        group.blocks.push_back(std::move(other));
      else if (other.IsSymlink())
        group.rest.push_back(std::move(other));
    }
    group.rest.push_back(std::move(directory).value());
    group.folder = inode.parent;
  } else if (!names.sibling.empty()) {
    Result<Inode> sibling = index_->Lookup(inode.parent, names.sibling);
    if (sibling.ok()) group.blocks.push_back(std::move(sibling).value());
  }
  return group;
}

// Whether nobody has looked the folder up within the lease; as for a block, that counts no more
// once it was wanted for a lease. If so it is absent from now on, as its blocks are, until
// FoldersDecided.
bool Cache::TakeFolder(Ino folder) {
  constexpr size_t kMostWanted = 65'536;
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(side_mutex_);
  const auto leased_until = directory_leases_.UntilOf(folder);
  if (!leased_until || *leased_until <= now) {
    wanted_folders_.erase(folder);
    going_folders_.insert(folder);
    return true;
  }
  if (wanted_folders_.size() >= kMostWanted) wanted_folders_.clear();
  const auto [it, added] = wanted_folders_.try_emplace(folder, *leased_until);
  if (added || now < it->second) return false;
  wanted_folders_.erase(it);
  going_folders_.insert(folder);
  return true;
}

// They are gone, or stay.
void Cache::FoldersDecided() {
  MutexLock lock(side_mutex_);
  going_folders_.clear();
}

// Whether one of it is still being written.
bool Cache::IsUnfinished(const Group& group) {
  if (group.folder != 0 && open_.HasProvisional(group.folder)) return true;
  return std::any_of(group.blocks.begin(), group.blocks.end(),
                     [](const Inode& block) { return block.state == FileState::kOpen; });
}

// The victims and the rest of their groups, in the order in which they are to go. A group of which
// a member may not go yet stays as a whole. It goes when the member that was used last has its
// turn, or another of it the second one: that last one may be on a drive that has room.
Cache::Going Cache::WholeGroups(const std::vector<Residents::Victim>& victims,
                                Evictor::Outcome* outcome) {
  Going going;
  std::unordered_set<Ino> taken;  // as members of another victim's group
  for (const auto& victim : victims) {
    if (taken.contains(victim.ino)) continue;
    const Result<Inode> inode = index_->Get(victim.ino);
    Group group = inode.ok() ? GroupOf(*inode) : Group();
    const bool later =
        std::any_of(group.blocks.begin(), group.blocks.end(), [&](const Inode& block) {
          return block.state == FileState::kSealed && block.atime_ns > inode->atime_ns;
        });
    if (later && residents_->PutOff(victim.ino)) {
      outcome->put_off = true;
      continue;
    }
    if (IsUnfinished(group) || (group.folder != 0 && !TakeFolder(group.folder))) {
      residents_->Hold(victim.ino, kNsPerSecond);
      outcome->leased_ahead = true;
      continue;
    }
    std::vector<Ino> others;
    for (const Inode& block : group.blocks) others.push_back(block.ino);
    if (!residents_->TakeWith(victim.ino, &others)) {
      outcome->leased_ahead = true;
      continue;
    }
    // Descriptions first: a reader that finds one expects what it describes.
    const bool description = inode.ok() && naming_->IsDescription(inode->name);
    if (description) going.blocks.push_back(victim.ino);
    going.blocks.insert(going.blocks.end(), others.begin(), others.end());
    taken.insert(others.begin(), others.end());
    if (!description) going.blocks.push_back(victim.ino);
    // Links before the folder that they are in.
    std::move(group.rest.begin(), group.rest.end(), std::back_inserter(going.rest));
  }
  return going;
}

// In a transaction in which their blocks have gone: what is left of folders, as far as nothing new
// has come into them.
Status Cache::RemoveRest(IndexTxn& txn, const std::vector<Inode>& rest, Removal* removal) {
  for (const Inode& inode : rest) {
    const Result<Inode> now = txn.Get(inode.ino);
    if (!now.ok() || now->parent != inode.parent || now->Has(inode_flag::kKeep)) continue;
    if (now->IsDirectory()) {
      const bool children = PFS_TRY(txn.HasChildren(now->ino));
      if (children || open_.HasProvisional(now->ino)) continue;
    } else if (!now->IsSymlink()) {
      continue;
    }
    PFS_TRY(RemoveName(txn, *now, removal));
  }
  return Ok();
}

}  // namespace prefixfs
