// Groups: blocks of which one is worth nothing without the others go together.
#include <algorithm>
#include <unordered_set>

#include "cache/cache.h"

namespace prefixfs {
namespace {
constexpr size_t kMostMembers = 1024;  // a directory with more is no group
}

// The other files of the block's group.
std::vector<Inode> Cache::GroupOf(const Inode& inode) {
  std::vector<Inode> members;
  const Result<Inode> directory = index_->Get(inode.parent);
  if (!directory.ok()) return members;
  const BlockGroup group = naming_->GroupOf(directory->name, inode.name);
  if (group.directory) {
    Result<std::vector<Inode>> all = index_->List(inode.parent, 0, kMostMembers + 1);
    if (all.ok() && all->size() <= kMostMembers) members = std::move(all).value();
    std::erase_if(members, [&](const Inode& other) { return other.ino == inode.ino; });
  } else if (!group.sibling.empty()) {
    Result<Inode> sibling = index_->Lookup(inode.parent, group.sibling);
    if (sibling.ok()) members.push_back(std::move(sibling).value());
  }
  return members;
}

// The victims and the rest of their groups, in the order in which they are to go. A group of which
// a member may not go yet stays as a whole. It goes when the member that was used last has its
// turn, or another of it the second one: that last one may be on a drive that has room.
std::vector<Ino> Cache::WholeGroups(const std::vector<Residents::Victim>& victims,
                                    Evictor::Outcome* outcome) {
  std::vector<Ino> going;
  std::unordered_set<Ino> taken;  // as members of another victim's group
  for (const auto& victim : victims) {
    if (taken.contains(victim.ino)) continue;
    const Result<Inode> inode = index_->Get(victim.ino);
    const std::vector<Inode> members = inode.ok() ? GroupOf(*inode) : std::vector<Inode>();
    if (members.empty()) {
      going.push_back(victim.ino);
      continue;
    }
    const bool later = std::any_of(members.begin(), members.end(), [&](const Inode& member) {
      return member.state == FileState::kSealed && member.atime_ns > inode->atime_ns;
    });
    if (later && residents_->PutOff(victim.ino)) {
      outcome->put_off = true;
      continue;
    }
    std::vector<Ino> others;
    for (const Inode& member : members) others.push_back(member.ino);
    if (!residents_->TakeWith(victim.ino, &others)) {
      outcome->leased_ahead = true;
      continue;
    }
    // Descriptions first: a reader that finds one expects what it describes.
    const bool description = naming_->IsDescription(inode->name);
    if (description) going.push_back(victim.ino);
    going.insert(going.end(), others.begin(), others.end());
    taken.insert(others.begin(), others.end());
    if (!description) going.push_back(victim.ino);
  }
  return going;
}

}  // namespace prefixfs
