#include "cache/base/memory.h"

#include <spdlog/spdlog.h>

#include "cache/base/rarely.h"

namespace prefixfs {

void LogNoMemory() noexcept {
  static Rarely rarely;
  if (!rarely.Now()) return;
  try {
    spdlog::error(
        "out of memory: what was being done was refused; raise the limit that the daemon runs "
        "under (MemoryMax or LimitAS of its service, ulimit -v)");
  } catch (...) {
    // The log has no memory either.
  }
}

}  // namespace prefixfs
