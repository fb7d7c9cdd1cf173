#include "tools/fusectl.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "cache/base/fd.h"

namespace prefixfs {
namespace {

constexpr const char* kConnections = "/sys/fs/fuse/connections";

Status MountControl() {
  const auto mounts = PFS_TRY(ReadMounts());
  const Mount* there = MountAt(mounts, kConnections);
  if (there != nullptr && there->type == "fusectl") return Ok();
  if (::mount("fusectl", kConnections, "fusectl", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0) {
    return Ok();
  }
  return Status::FromErrno(errno, std::string("mounting fusectl on ") + kConnections);
}

}  // namespace

Status AbortConnection(const Mount& mount) {
  PFS_TRY(MountControl());
  // The connection's name is the device number, which for FUSE (major 0) is the minor.
  const std::string path = std::string(kConnections) + "/" + std::to_string(mount.minor) + "/abort";
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return Status::FromErrno(errno, path);
  if (::write(file.get(), "1", 1) != 1) return Status::FromErrno(errno, path);
  return Ok();
}

}  // namespace prefixfs
