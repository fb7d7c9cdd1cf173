#include "tools/holders.h"

#include <dirent.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <set>

namespace prefixfs {
namespace {

std::string ReadLink(const std::string& path) {
  char target[8192];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof(target));
  return n < 0 ? std::string() : std::string(target, static_cast<size_t>(n));
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Names in `directory` that are numbers.
std::vector<std::string> Numbers(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), &::closedir);
  if (!dir) return names;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name.find_first_not_of("0123456789") == std::string_view::npos) names.emplace_back(name);
  }
  return names;
}

// The id of the mount that an open file belongs to: the line "mnt_id:" of fdinfo.
uint64_t MountIdOf(const std::string& fdinfo) {
  std::ifstream file(fdinfo);
  std::string word;
  uint64_t id = 0;
  while (file >> word) {
    if (word == "mnt_id:" && file >> id) return id;
  }
  return 0;
}

// Looks at one process; `proc` is /proc/PID.
class Inspector {
 public:
  Inspector(const Mount& mount, std::string proc, pid_t pid, std::vector<Holder>* out)
      : mount_(mount), proc_(std::move(proc)), pid_(pid), out_(out) {}

  void Links() {
    for (const char* link : {"cwd", "root", "exe"}) {
      const std::string target = ReadLink(proc_ + "/" + link);
      if (!target.empty() && IsBelow(target, mount_.point)) Add(link, target);
    }
  }
  void Files() {
    for (const auto& fd : Numbers(proc_ + "/fd")) {
      const std::string target = ReadLink(proc_ + "/fd/" + fd);
      if (!target.starts_with('/')) continue;  // a pipe, a socket
      if (MountIdOf(proc_ + "/fdinfo/" + fd) == mount_.id) Add("fd " + fd, target);
    }
  }
  // A line of maps: start-end perms offset major:minor inode path, the device in hexadecimal.
  void Mappings() {
    char device[32];
    std::snprintf(device, sizeof(device), "%02x:%02x", mount_.major, mount_.minor);
    std::ifstream file(proc_ + "/maps");
    std::set<std::string> seen;
    std::string line;
    while (std::getline(file, line)) {
      const size_t slash = line.find('/');
      if (slash == std::string::npos) continue;
      const std::string path = line.substr(slash);
      const bool ours =
          line.substr(0, slash).find(" " + std::string(device) + " ") != std::string::npos;
      if ((ours || IsBelow(path, mount_.point)) && seen.insert(path).second) Add("mmap", path);
    }
  }
  // A mount namespace of its own that has the filesystem too, such as a container's.
  void Namespace(std::set<std::string>* seen) {
    const std::string ns = ReadLink(proc_ + "/ns/mnt");
    if (ns.empty() || !seen->insert(ns).second) return;
    const auto mounts = ReadMounts(proc_ + "/mountinfo");
    if (!mounts.ok()) return;
    for (const auto& other : *mounts) {
      if (other.SameFilesystem(mount_)) return Add("mount namespace", other.point);
    }
  }

 private:
  void Add(std::string how, std::string path) {
    out_->push_back({pid_, FirstLine(proc_ + "/comm"), std::move(how), std::move(path)});
  }

  const Mount& mount_;
  const std::string proc_;
  const pid_t pid_;
  std::vector<Holder>* out_;
};

void FindMounts(const Mount& mount, std::vector<Holder>* out) {
  const auto mounts = ReadMounts();
  if (!mounts.ok()) return;
  for (const auto& other : *mounts) {
    const bool stacked = other.id != mount.id && IsBelow(other.point, mount.point);
    if (stacked || (other.id != mount.id && other.SameFilesystem(mount))) {
      out->push_back({0, "", "mount", other.point});
    }
  }
}

}  // namespace

std::vector<Holder> FindHolders(const Mount& mount) {
  std::vector<Holder> holders;
  FindMounts(mount, &holders);
  std::set<std::string> namespaces{ReadLink("/proc/self/ns/mnt")};
  for (const auto& name : Numbers("/proc")) {
    pid_t pid = 0;
    std::from_chars(name.data(), name.data() + name.size(), pid);
    if (pid == ::getpid()) continue;
    Inspector inspector(mount, "/proc/" + name, pid, &holders);
    inspector.Links();
    inspector.Files();
    inspector.Mappings();
    inspector.Namespace(&namespaces);
  }
  return holders;
}

std::string HoldersText(const std::vector<Holder>& holders, size_t max) {
  std::string text;
  for (size_t i = 0; i < holders.size() && i < max; ++i) {
    const Holder& h = holders[i];
    text += "  ";
    if (h.pid != 0) text += "pid " + std::to_string(h.pid) + " (" + h.command + "): ";
    text += h.how + " " + h.path + "\n";
  }
  if (holders.size() > max) text += "  and " + std::to_string(holders.size() - max) + " more\n";
  return text;
}

}  // namespace prefixfs
