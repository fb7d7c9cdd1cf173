// Which files are worth nothing without others: what clients write in pieces, and read as one.
#include <re2/re2.h>

#include "cache/naming/naming.h"

namespace prefixfs {
namespace {

// LMCache GDS and Weka: what KEY.kvcache.safetensors holds says KEY.kvcache.safetensors.metadata.
constexpr std::string_view kDescription = ".metadata";

bool EndsBlock(std::string_view name) {
  return name.ends_with(".kvcache.safetensors") || name.ends_with(".weka1");
}

// SGLang HiCache NIXL and SGLang on Mooncake: keys and values of one page are a file each.
bool IsHalf(std::string_view name) {
  static const RE2& half = *new RE2(R"([0-9a-f]{16,128}[._][^/]*_[kv]|[0-9a-f]{16,128}_[kv])");
  return RE2::FullMatch(re2::StringPiece(name.data(), name.size()), half);
}

// vLLM's example connector and VAST VUA: a directory of that name has all layers of a block.
bool IsFolderOfLayers(std::string_view directory, std::string_view name) {
  static const RE2& folder = *new RE2("[0-9a-f]{32,128}");
  return name.ends_with(".safetensors") &&
         RE2::FullMatch(re2::StringPiece(directory.data(), directory.size()), folder);
}

}  // namespace

BlockGroup Naming::GroupOf(std::string_view directory, std::string_view name) const {
  BlockGroup group;
  if (IsDescription(name)) {
    group.sibling = name.substr(0, name.size() - kDescription.size());
  } else if (EndsBlock(name)) {
    group.sibling = std::string(name) + std::string(kDescription);
  } else if (IsHalf(name)) {
    group.sibling = name;
    group.sibling.back() = name.back() == 'k' ? 'v' : 'k';
  } else {
    group.directory = IsFolderOfLayers(directory, name);
  }
  return group;
}

bool Naming::IsDescription(std::string_view name) const {
  return name.ends_with(kDescription) &&
         EndsBlock(name.substr(0, name.size() - kDescription.size()));
}

}  // namespace prefixfs
