#include "cache/policy/policy.h"

#include "cache/policy/lru.h"

namespace prefixfs {
namespace {

struct KnownPolicy {
  std::string_view name;
  std::unique_ptr<EvictionPolicy> (*make)();
};

template <typename Policy>
std::unique_ptr<EvictionPolicy> Make() {
  return std::make_unique<Policy>();
}

constexpr KnownPolicy kPolicies[] = {{"lru", Make<LruPolicy>}};

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> MakePolicy(std::string_view name) {
  std::string known;
  for (const KnownPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.make();
    known += (known.empty() ? "" : ", ") + std::string(policy.name);
  }
  return Status(Code::kInvalid,
                "unknown eviction policy \"" + std::string(name) + "\"; known: " + known);
}

}  // namespace prefixfs
