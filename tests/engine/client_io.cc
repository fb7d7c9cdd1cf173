#include "tests/engine/client_io.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace prefixfs::engine {

std::string Parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

void StatAndMakeParents(const std::string& path) {
  const std::string parent = Parent(path);
  struct stat st {};
  if (stat(parent.c_str(), &st) == 0) return;
  if (errno != ENOENT) throw SysFailure(errno, "stat " + parent);
  StatAndMakeParents(parent);
  if (mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) {
    throw SysFailure(errno, "mkdir " + parent);
  }
}

Fd Open(const std::string& path, int flags, mode_t mode) {
  return Fd(Sys(open(path.c_str(), flags | O_CLOEXEC, mode), "open " + path));
}

std::optional<Fd> OpenIfThere(const std::string& path, int flags) {
  Fd fd(open(path.c_str(), flags | O_CLOEXEC));
  if (fd.valid()) return fd;
  if (errno == ENOENT) return std::nullopt;
  throw SysFailure(errno, "open " + path);
}

void WriteOnce(const Fd& fd, Bytes data, const std::string& what) {
  const ssize_t done = Sys(write(fd.get(), data.data(), data.size()), "write " + what);
  Check(static_cast<size_t>(done) == data.size(), "short write of " + what);
}

void WriteLoop(const Fd& fd, Bytes data, size_t piece, const std::string& what) {
  while (!data.empty()) {
    const size_t want = std::min(piece, data.size());
    data =
        data.subspan(static_cast<size_t>(Sys(write(fd.get(), data.data(), want), "write " + what)));
  }
}

void PwriteLoop(const Fd& fd, Bytes data, uint64_t offset, const std::string& what) {
  while (!data.empty()) {
    const auto done = static_cast<size_t>(Sys(
        pwrite(fd.get(), data.data(), data.size(), static_cast<off_t>(offset)), "pwrite " + what));
    data = data.subspan(done);
    offset += done;
  }
}

Buffer ReadOnce(const Fd& fd, uint64_t size, const std::string& what) {
  Buffer buffer(size);
  const ssize_t got = Sys(read(fd.get(), buffer.data(), size), "read " + what);
  Check(static_cast<uint64_t>(got) == size,
        "short read of " + what + ": " + std::to_string(got) + " of " + std::to_string(size));
  return buffer;
}

void PreadLoop(const Fd& fd, std::span<uint8_t> into, uint64_t offset, const std::string& what) {
  while (!into.empty()) {
    const auto got = static_cast<size_t>(Sys(
        pread(fd.get(), into.data(), into.size(), static_cast<off_t>(offset)), "pread " + what));
    Check(got > 0, what + " ends at " + std::to_string(offset));
    into = into.subspan(got);
    offset += got;
  }
}

void MappedCopy(const Fd& fd, std::span<uint8_t> into, uint64_t offset, int flags,
                const std::string& what) {
  if (into.empty()) return;
  void* memory = mmap(nullptr, into.size(), PROT_READ, flags, fd.get(), static_cast<off_t>(offset));
  if (memory == MAP_FAILED) throw SysFailure(errno, "mmap " + what);
  memcpy(into.data(), memory, into.size());
  munmap(memory, into.size());
}

void Rename(const std::string& from, const std::string& to) {
  Sys(rename(from.c_str(), to.c_str()), "rename " + from + " to " + to);
}

void Close(Fd fd, const std::string& what) { Sys(close(fd.Release()), "close " + what); }

bool StatExists(const std::string& path) {
  struct stat st {};
  if (stat(path.c_str(), &st) == 0) return true;
  if (errno == ENOENT) return false;
  throw SysFailure(errno, "stat " + path);
}

bool AccessExists(const std::string& path) {
  if (access(path.c_str(), F_OK) == 0) return true;
  if (errno == ENOENT) return false;
  throw SysFailure(errno, "access " + path);
}

std::string UniqueSuffix() {
  static uint32_t counter = 0;
  return std::to_string(getpid()) + std::to_string(1'000'000 + ++counter);
}

void NoStart(const Place&, uint32_t) {}

}  // namespace prefixfs::engine
