// DriveFormat: what DIR/PREFIXFS says about a drive. A few lines of text, so that an operator can
// read it, closed by a digest (XXH3-128, hex) over all bytes before the digest's line. Format:
// docs/DATA_FORMAT.md.
//
//   prefixfs-drive 1
//   uuid 8d0c...          of the drive, given once
//   pool 5b1e...          of the set of drives; absent until the drive joins one
//   slot 0                number of the drive within the pool; absent until then
//   slots 2               slots the pool has given so far
//   digest 0123...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cache/base/status.h"

namespace prefixfs {

constexpr uint32_t kDriveFormatVersion = 1;
constexpr size_t kMaxDriveFormat = 4096;  // bytes; a longer file is not ours

struct DriveFormat {
  std::string uuid;
  std::string pool_uuid;  // empty: in no pool yet
  int slot = -1;          // 0 to 65535; -1: none yet
  uint32_t slots_given = 0;
};

std::string FormatToText(const DriveFormat& format);
// kInvalid if it is no drive file or of an unknown version, kCorrupt if it is ours but damaged.
Result<DriveFormat> FormatFromText(std::string_view text);

// 128 random bits as 8-4-4-4-12 hex digits.
std::string NewUuid();
bool IsUuid(std::string_view text);

}  // namespace prefixfs
