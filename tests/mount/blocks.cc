#include "tests/mount/blocks.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "tests/support/fail.h"
#include "tests/support/pattern.h"

namespace prefixfs::blocks {

using support::Check;
using support::Sys;
using support::SysFailure;

uint64_t MixedSize(uint64_t number) {
  constexpr uint64_t kSizes[] = {2 << 20, 8 << 20, 1'124'352};
  return kSizes[number % 3];
}

std::string Path(const std::string& root, uint64_t number) {
  return root + "/block_" + std::to_string(number);
}

void Write(const std::string& root, uint64_t number, uint64_t size) {
  const std::string path = Path(root, number);
  // Unique even when an earlier attempt left its temporary behind.
  static uint64_t attempt = 0;
  const std::string temp =
      path + "_" + std::to_string(getpid()) + std::to_string(1'000'000 + ++attempt) + ".tmp";
  const support::Buffer data = support::Pattern(size, number + 1);
  Fd fd(Sys(open(temp.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644), "create " + temp));
  const ssize_t done = Sys(write(fd.get(), data.data(), size), "write " + temp);
  Check(static_cast<uint64_t>(done) == size, "short write of " + temp);
  Sys(close(fd.Release()), "close " + temp);
  Sys(rename(temp.c_str(), path.c_str()), "rename " + temp);
}

Found Read(const std::string& root, uint64_t number, uint64_t size) {
  const std::string path = Path(root, number);
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return Found::kAbsent;
  if (!fd.valid()) throw SysFailure(errno, "open " + path);
  support::Buffer data(size + 1);
  const ssize_t got = Sys(read(fd.get(), data.data(), size + 1), "read " + path);
  const std::string problem =
      support::Verify({data.data(), static_cast<size_t>(got)}, number + 1, size);
  Check(problem.empty(), path + ": " + problem);
  return Found::kRight;
}

uint64_t CountRight(const std::string& root, uint64_t first, uint64_t last, uint64_t size) {
  uint64_t right = 0;
  for (uint64_t number = first; number < last; ++number) {
    if (Read(root, number, size) == Found::kRight) ++right;
  }
  return right;
}

uint64_t CountRightMixed(const std::string& root, uint64_t first, uint64_t last) {
  uint64_t right = 0;
  for (uint64_t number = first; number < last; ++number) {
    if (Read(root, number, MixedSize(number)) == Found::kRight) ++right;
  }
  return right;
}

}  // namespace prefixfs::blocks
