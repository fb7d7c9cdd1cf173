#include "fs/access.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace prefixfs {
namespace {

constexpr int kMaxDepth = 512;
constexpr uint32_t kRead = 4, kSearch = 1, kEverything = 7;

// The supplementary groups of a thread, which a request does not carry. None for one that is gone,
// or outside our PID namespace.
std::vector<gid_t> GroupsOf(pid_t tid) {
  std::vector<gid_t> groups;
  if (tid == 0) return groups;
  std::ifstream status("/proc/" + std::to_string(tid) + "/status");
  constexpr std::string_view kGroups = "Groups:";
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kGroups)) continue;
    std::istringstream numbers(line.substr(kGroups.size()));
    for (gid_t group; numbers >> group;) groups.push_back(group);
  }
  return groups;
}

}  // namespace

bool Access::IsInGroup(gid_t group) {
  if (group == caller_.gid()) return true;
  if (!groups_) groups_ = GroupsOf(caller_.tid());
  return std::find(groups_->begin(), groups_->end(), group) != groups_->end();
}

// As the kernel decides it: the owner's bits count for the owner even if others have more.
uint32_t Access::BitsOn(const Inode& directory) {
  if (root()) return kEverything;
  if (directory.uid == caller_.uid()) return directory.mode >> 6 & kEverything;
  if (IsInGroup(directory.gid)) return directory.mode >> 3 & kEverything;
  return directory.mode & kEverything;
}

bool Access::HasAll(Ino directory, uint32_t wanted) {
  std::vector<Ino> path;
  uint32_t bits = kEverything;
  for (Ino ino = directory; static_cast<int>(path.size()) < kMaxDepth;) {
    if (const auto known = bits_with_above_.find(ino); known != bits_with_above_.end()) {
      bits &= known->second;
      break;
    }
    const Result<Inode> inode = cache_.Look(ino);
    if (!inode.ok() || !inode->IsDirectory()) return false;
    path.push_back(ino);
    bits &= BitsOn(*inode);
    if (ino == kRootIno) break;
    ino = inode->parent;
  }
  if (!path.empty()) bits_with_above_[path.front()] = bits;
  return (bits & wanted) == wanted;
}

bool Access::MayList(Ino directory) { return HasAll(directory, kRead | kSearch); }

bool Access::MayReach(Ino directory) { return HasAll(directory, kSearch); }

}  // namespace prefixfs
