// Holders: who keeps a mount busy, read from /proc without a single call on the mount, which may be
// dead.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/mounts.h"

namespace prefixfs {

struct Holder {
  pid_t pid = 0;  // 0: a mount of this namespace
  std::string command;
  std::string how;   // "cwd", "root", "exe", "fd 7", "mmap", "mount namespace", "mount"
  std::string path;  // as the kernel prints it
};

// Everything that holds `mount`: working and root directories, programs, open files and mappings of
// other processes, other mount namespaces that have it, and other mount points of the same
// filesystem. A process that ends meanwhile is left out.
std::vector<Holder> FindHolders(const Mount& mount);

// One line a holder, at most `max`, each indented by two spaces and ended by a newline.
std::string HoldersText(const std::vector<Holder>& holders, size_t max);

}  // namespace prefixfs
