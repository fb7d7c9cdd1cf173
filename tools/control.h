// Control: what a mount tells about itself, read through its control files and extended attributes,
// never waiting longer than a deadline for a daemon that hangs.
#pragma once

#include <cstdint>
#include <string>

#include "cache/base/status.h"
#include "tools/mounts.h"

namespace prefixfs {

constexpr int64_t kControlTimeoutMs = 5000;

// The PrefixFS mount that `path` lies in. kInvalid with a text for the user if it lies in none.
Result<Mount> FindPrefixFs(const std::string& path);

// The text of MOUNT/.prefixfs/`name`, such as "stats". kTimedOut if the daemon hangs, kUnavailable
// if it died.
Result<std::string> ReadControlFile(const Mount& mount, const std::string& name,
                                    int64_t timeout_ms = kControlTimeoutMs);

// An extended attribute of `path`. kNotFound if there is none of that name, or no such file.
Result<std::string> ReadAttribute(const std::string& path, const std::string& name,
                                  int64_t timeout_ms = kControlTimeoutMs);

}  // namespace prefixfs
