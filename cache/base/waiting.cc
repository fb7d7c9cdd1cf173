#include "cache/base/waiting.h"

#include <iterator>

namespace prefixfs {

std::string_view WaitText(Wait wait) {
  static constexpr std::string_view kTexts[] = {
      "nothing",  "worker", "space", "file",   "rename",   "index", "checksum",
      "new_file", "create", "open",  "remove", "metadata", "data",  "chores"};
  static_assert(std::size(kTexts) == static_cast<size_t>(Wait::kChores) + 1);
  return kTexts[static_cast<size_t>(wait)];
}

}  // namespace prefixfs
