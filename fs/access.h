// Access: what a caller of the control files could see by path as well. Names that he could not
// list do not reach him through statistics or answers about blocks either.
//
// Threads: one thread, while it serves one request.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "cache/cache.h"

namespace prefixfs {

class Access {
 public:
  Access(Cache& cache, const Caller& caller) : cache_(cache), caller_(caller) {}

  bool root() const { return caller_.uid() == 0; }
  uid_t uid() const { return caller_.uid(); }
  // Whether he can list `directory` and each one above it: then he can know every name on the way.
  bool MayList(Ino directory);
  // Whether he can reach what is in `directory` by its path, if he knows that.
  bool MayReach(Ino directory);

 private:
  // The permission bits that the caller has on a directory: r = 4, w = 2, x = 1.
  uint32_t BitsOn(const Inode& directory);
  // All bits of `wanted` on `directory` and on each above it.
  bool HasAll(Ino directory, uint32_t wanted);
  bool IsInGroup(gid_t group);

  Cache& cache_;
  const Caller& caller_;
  std::optional<std::vector<gid_t>> groups_;           // read when they are needed
  std::unordered_map<Ino, uint32_t> bits_with_above_;  // what is allowed on all of the path
};

}  // namespace prefixfs
