#include "tools/mounts.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>

#include "cache/base/fd.h"
#include "tools/mount_options.h"

namespace prefixfs {
namespace {

std::string Unescape(std::string_view text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) &&
        octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename T>
bool Number(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// 36 35 98:0 /root /point rw,noatime [optional fields] - type source options
std::optional<Mount> ParseLine(std::string_view line) {
  const auto fields = Split(line, ' ');
  size_t dash = 6;
  while (dash < fields.size() && fields[dash] != "-") ++dash;
  if (dash + 2 >= fields.size()) return std::nullopt;
  const auto device = Split(fields[2], ':');
  Mount mount;
  if (device.size() != 2 || !Number(fields[0], &mount.id) || !Number(device[0], &mount.major) ||
      !Number(device[1], &mount.minor)) {
    return std::nullopt;
  }
  mount.root = Unescape(fields[3]);
  mount.point = Unescape(fields[4]);
  mount.type = Unescape(fields[dash + 1]);
  mount.source = Unescape(fields[dash + 2]);
  return mount;
}

}  // namespace

std::vector<Mount> ParseMounts(std::string_view mountinfo) {
  std::vector<Mount> mounts;
  for (const auto line : Split(mountinfo, '\n')) {
    if (auto mount = ParseLine(line)) mounts.push_back(std::move(*mount));
  }
  return mounts;
}

Result<std::vector<Mount>> ReadMounts(const std::string& file) {
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::FromErrno(errno, file);
  std::string text;
  char piece[4096];
  ssize_t n = 0;
  while ((n = ::read(fd.get(), piece, sizeof(piece))) > 0) {
    text.append(piece, static_cast<size_t>(n));
  }
  if (n < 0) return Status::FromErrno(errno, file);
  return ParseMounts(text);
}

bool IsBelow(std::string_view path, std::string_view point) {
  if (point == "/") return path.starts_with('/');
  return path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/');
}

const Mount* MountAt(const std::vector<Mount>& mounts, std::string_view point) {
  const Mount* found = nullptr;
  for (const auto& mount : mounts) {
    if (mount.point == point) found = &mount;
  }
  return found;
}

const Mount* MountOf(const std::vector<Mount>& mounts, std::string_view path) {
  const Mount* found = nullptr;
  for (const auto& mount : mounts) {
    if (!IsBelow(path, mount.point)) continue;
    if (found == nullptr || mount.point.size() >= found->point.size()) found = &mount;
  }
  return found;
}

std::string ResolveMountPoint(const std::vector<Mount>& mounts, const std::string& path) {
  const std::string absolute = AbsoluteMountPoint(path);
  if (MountAt(mounts, absolute) != nullptr) return absolute;
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(absolute.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : absolute;
}

}  // namespace prefixfs
