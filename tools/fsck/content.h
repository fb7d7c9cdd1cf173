// The checksum of a backing file's content.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "cache/base/status.h"

namespace prefixfs::fsck {

using Checksum = std::array<uint8_t, 16>;  // XXH3-128, big-endian

// Reads the whole file.
Result<Checksum> ChecksumOf(int fd);

// Says on stderr every few seconds how far the reading is; --checksums may take hours.
class Progress {
 public:
  void Expect(uint64_t bytes) { expected_ += bytes; }
  void Add(uint64_t bytes);

 private:
  uint64_t expected_ = 0, done_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace prefixfs::fsck
