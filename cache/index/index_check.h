// CheckIndex with what only tests vary. Private to cache/index and its tests; everyone else has
// index.h.
#pragma once

#include <cstdint>
#include <string>

#include "cache/index/tables.h"

namespace prefixfs {

Status CheckIndexWith(const std::string& directory, int64_t timeout_ms, NameHash name_hash);

// Runs `job` in a child process and returns its status. A child that dies, or has not answered
// after `timeout_ms`, is kCorrupt. What the child changes in memory is lost.
Status RunInChild(Status (*job)(const std::string& directory, NameHash name_hash),
                  const std::string& directory, NameHash name_hash, int64_t timeout_ms);

}  // namespace prefixfs
