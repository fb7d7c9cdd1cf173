// Where things are on a drive, and how records are read from it. Private to cache/store.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cache/base/status.h"
#include "cache/index/record.h"
#include "cache/store/drive.h"

namespace prefixfs {

// Longer than any record: name, hash and target at their limits leave room to spare.
constexpr size_t kMaxRecord = 8192;

// Below blocks/: the first digits of the id spread blocks over 256 directories. That keeps each
// small up to tens of millions of blocks, and few first blocks have to wait for their directory.
constexpr size_t kFanOutDigits = 2;
inline std::string BlockDirectory(const BlockId& block) {
  return ToHex(block).substr(0, kFanOutDigits);
}
inline std::string BlockPath(const BlockId& block) {
  const std::string hex = ToHex(block);
  return hex.substr(0, kFanOutDigits) + "/" + hex;
}

// Below records/: the last two digits, because numbers are given in sequence.
std::string RecordName(Ino ino);
std::string RecordDirectory(Ino ino);

inline std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// kNotFound without the xattr, kCorrupt if it is longer than any record.
Result<std::string> ReadRecordXattr(int fd);

inline Status CheckHealthy(const Drive& drive) {
  if (drive.failed()) return Status(Code::kUnavailable, drive.path() + " has failed");
  return Ok();
}

}  // namespace prefixfs
