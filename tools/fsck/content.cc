#include "tools/fsck/content.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "cache/base/units.h"

namespace prefixfs::fsck {
namespace {
constexpr size_t kPiece = 1 << 20;
constexpr std::chrono::seconds kBetween{5};
}  // namespace

Result<Checksum> ChecksumOf(int fd) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  // From the drive, and not what memory remembers of it; nor is it kept there.
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  thread_local std::string piece(kPiece, '\0');
  off_t offset = 0;
  for (;;) {
    const ssize_t n = ::pread(fd, piece.data(), piece.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "read");
    if (n == 0) break;
    XXH3_128bits_update(state.get(), piece.data(), static_cast<size_t>(n));
    offset += n;
  }
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
  Checksum checksum;
  std::memcpy(checksum.data(), canonical.digest, checksum.size());
  return checksum;
}

void Progress::Add(uint64_t bytes) {
  done_ += bytes;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kBetween) return;
  last_ = now;
  std::fprintf(stderr, "prefixfs fsck: %s of %s read\n", HumanBytes(done_).c_str(),
               HumanBytes(expected_).c_str());
}

}  // namespace prefixfs::fsck
