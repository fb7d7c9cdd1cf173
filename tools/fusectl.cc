#include "tools/fusectl.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

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

Result<FuseConnection> FuseConnection::Of(const Mount& mount) {
  PFS_TRY(MountControl());
  // The connection's name is the device number, which for FUSE (major 0) is the minor.
  const std::string path = std::string(kConnections) + "/" + std::to_string(mount.minor) + "/abort";
  Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return Status::FromErrno(errno, path);
  // Still mounted, so the number has been this mount's all the time.
  const auto mounts = PFS_TRY(ReadMounts());
  const bool there = std::any_of(mounts.begin(), mounts.end(), [&](const Mount& other) {
    return other.id == mount.id && other.point == mount.point && other.SameFilesystem(mount);
  });
  if (!there) return Status(Code::kNotFound, mount.point + ": is not mounted any more");
  return FuseConnection(std::move(file));
}

Status FuseConnection::Abort() const {
  if (::write(abort_.get(), "1", 1) != 1) return Status::FromErrno(errno, kConnections);
  return Ok();
}

}  // namespace prefixfs
