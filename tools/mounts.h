// Mounts: what /proc/self/mountinfo says (proc_pid_mountinfo(5)). Reading it never waits for a
// filesystem.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/status.h"

namespace prefixfs {

constexpr std::string_view kMountType = "fuse.prefixfs";

struct Mount {
  uint64_t id = 0;  // as in /proc/PID/fdinfo
  uint32_t major = 0, minor = 0;
  std::string root;  // what of the filesystem is mounted; "/" unless it is a bind mount of a part
  std::string point;
  std::string type;
  std::string source;

  bool IsPrefixFs() const { return type == kMountType; }
  bool SameFilesystem(const Mount& other) const {
    return major == other.major && minor == other.minor;
  }
};

// Lines that cannot be read are left out. Names come back as bytes: \040 is a space.
std::vector<Mount> ParseMounts(std::string_view mountinfo);
// The mounts of this process, or of another one: `file` is /proc/PID/mountinfo.
Result<std::vector<Mount>> ReadMounts(const std::string& file = "/proc/self/mountinfo");

// The topmost mount exactly at `point`, or null. Later lines cover earlier ones.
const Mount* MountAt(const std::vector<Mount>& mounts, std::string_view point);
// The mount that `path` (absolute, without links) lies in, or null.
const Mount* MountOf(const std::vector<Mount>& mounts, std::string_view path);

// `path` as mountinfo would name it. Follows links, but never into a mount that may hang.
std::string ResolveMountPoint(const std::vector<Mount>& mounts, const std::string& path);

// True if `path` is `point` or lies below it.
bool IsBelow(std::string_view path, std::string_view point);

}  // namespace prefixfs
