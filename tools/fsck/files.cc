#include "tools/fsck/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

namespace prefixfs::fsck {
namespace {

constexpr std::chrono::milliseconds kLockPatience{1000};

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string HexOf(const Block& block) {
  std::string text;
  for (const uint8_t byte : block) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", byte);
    text += hex;
  }
  return text;
}

bool IsLowerHex(std::string_view text, size_t digits) {
  if (text.size() != digits) return false;
  for (const char c : text) {
    if (DigitOf(c) < 0) return false;
  }
  return true;
}

std::optional<Block> BlockOf(std::string_view name) {
  if (!IsLowerHex(name, 32)) return std::nullopt;
  Block block{};
  for (size_t i = 0; i < block.size(); ++i) {
    block[i] = static_cast<uint8_t>(DigitOf(name[2 * i]) * 16 + DigitOf(name[2 * i + 1]));
  }
  return block;
}

std::string BlockPath(const Block& block) {
  const std::string hex = HexOf(block);
  return "blocks/" + hex.substr(0, 2) + "/" + hex;
}

std::string RecordPath(uint64_t ino) {
  char name[17];
  std::snprintf(name, sizeof(name), "%016llx", static_cast<unsigned long long>(ino));
  return "records/" + std::string(name + 14) + "/" + name;
}

// No part of `name` may be a link, not only the last: whoever planted one must not lead us away.
Result<Fd> OpenBelow(int directory, const std::string& name, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC | O_NOFOLLOW);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  Fd fd(static_cast<int>(::syscall(SYS_openat2, directory, name.c_str(), &how, sizeof(how))));
  if (!fd.valid()) return Status::FromErrno(errno, name);
  return fd;
}

Result<Fd> OpenToRead(int directory, const std::string& name) {
  return OpenBelow(directory, name, O_RDONLY | O_NONBLOCK | O_NOATIME);
}

Result<Fd> OpenDirectory(int directory, const std::string& name) {
  return OpenBelow(directory, name, O_RDONLY | O_DIRECTORY);
}

Result<struct stat> StatBelow(int directory, const std::string& name) {
  const Fd fd = PFS_TRY(OpenBelow(directory, name, O_PATH));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return Status::FromErrno(errno, name);
  return st;
}

Result<std::string> ReadWhole(int fd, size_t most) {
  std::string bytes(most + 1, '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n =
        ::pread(fd, bytes.data() + have, bytes.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "read");
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  if (have > most) return {Code::kTooLong, "it is too long"};
  bytes.resize(have);
  return bytes;
}

Status WriteWhole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return Ok();
}

Result<std::string> ReadHeader(int fd) {
  std::string header(kMostRecordBytes, '\0');
  const ssize_t n = ::fgetxattr(fd, kHeaderName, header.data(), header.size());
  if (n < 0 && errno == ENODATA) return {Code::kNotFound, "there is none"};
  if (n < 0) return Status::FromErrno(errno, "header");
  header.resize(static_cast<size_t>(n));
  return header;
}

Status ForEachName(int directory, const std::function<Status(const std::string&)>& visit) {
  // A stream of its own, so that the descriptor can be walked again.
  const int own = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own < 0) return Status::FromErrno(errno, "open directory");
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(own), ::closedir);
  if (!stream) {
    ::close(own);
    return Status::FromErrno(errno, "open directory");
  }
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) return errno == 0 ? Ok() : Status::FromErrno(errno, "read directory");
    const std::string name(entry->d_name);
    if (name != "." && name != "..") PFS_TRY(visit(name));
  }
}

Status TakeLock(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Status::FromErrno(errno, "lock");
    if (std::chrono::steady_clock::now() >= deadline) return Code::kRejected;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return Ok();
}

}  // namespace prefixfs::fsck
