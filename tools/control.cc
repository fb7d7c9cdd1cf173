#include "tools/control.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>

#include "cache/base/fd.h"
#include "tools/deadline.h"

namespace prefixfs {
namespace {

constexpr size_t kMaxAttributeBytes = 64 << 10;

Result<std::string> ReadFile(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Status::FromErrno(errno, path);
  std::string text;
  char piece[16384];
  ssize_t n = 0;
  while ((n = ::read(file.get(), piece, sizeof(piece))) > 0) {
    text.append(piece, static_cast<size_t>(n));
  }
  if (n < 0) return Status::FromErrno(errno, path);
  return text;
}

Result<std::string> GetAttribute(const std::string& path, const std::string& name) {
  std::string value(kMaxAttributeBytes, '\0');
  const ssize_t n = ::getxattr(path.c_str(), name.c_str(), value.data(), value.size());
  if (n >= 0) return value.substr(0, static_cast<size_t>(n));
  if (errno == ENODATA || errno == ENOTDIR) return {Code::kNotFound, path + ": has no " + name};
  return Status::FromErrno(errno, path);
}

// Adds what to do to the two ways in which a daemon fails to answer.
Status Explain(const Status& status, const std::string& point) {
  if (status.Is(Code::kTimedOut)) {
    return {Code::kTimedOut, point + ": the daemon does not answer; `prefixfs umount " + point +
                                 "` frees the mount point"};
  }
  if (status.Is(Code::kUnavailable)) {
    return {Code::kUnavailable,
            point + ": the daemon has died; mount it again with `prefixfs mount`"};
  }
  return status;
}

}  // namespace

Result<Mount> FindPrefixFs(const std::string& path) {
  const auto mounts = PFS_TRY(ReadMounts());
  const std::string resolved = ResolveMountPoint(mounts, path);
  const Mount* mount = MountOf(mounts, resolved);
  if (mount == nullptr || !mount->IsPrefixFs()) {
    return {Code::kInvalid, resolved + ": is not on a PrefixFS mount"};
  }
  return *mount;
}

Result<std::string> ReadControlFile(const Mount& mount, const std::string& name,
                                    int64_t timeout_ms) {
  auto text =
      WithDeadline(timeout_ms, [&] { return ReadFile(mount.point + "/.prefixfs/" + name); });
  // Not even the directory may be reached, while the kernel holds the root for a call in it.
  if (name == "requests" && text.status().Is(Code::kTimedOut))
    text = WithDeadline(timeout_ms,
                        [&] { return GetAttribute(mount.point, "user.prefixfs.requests"); });
  if (!text.ok()) return Explain(text.status(), mount.point);
  return text;
}

Result<std::string> ReadAttribute(const std::string& path, const std::string& name,
                                  int64_t timeout_ms) {
  const auto value = WithDeadline(timeout_ms, [&] { return GetAttribute(path, name); });
  if (!value.ok()) return Explain(value.status(), path);
  return value;
}

}  // namespace prefixfs
