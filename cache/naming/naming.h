// Naming: reads the prefix hash, model and rank out of the names that clients give their blocks,
// and says which paths are not blocks at all. One small table of RE2 patterns a client
// (profiles.cc), extensible in the configuration. A name that no profile knows is opaque and works
// the same. A configured pattern is searched for anywhere in the path: it says ^ and $ where it
// means them.
//
// Threads: constant after Make, so every call from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/config.h"
#include "cache/base/status.h"

namespace prefixfs {

struct BlockName {
  std::string_view profile;  // name of the profile, empty if opaque
  std::string hash;   // raw bytes if the text was an even number of hex digits, else the text; at
                      // most 64 bytes
  std::string model;  // as the client wrote it
  int32_t rank = -1;
};

// What a block is worthless without.
struct BlockGroup {
  bool directory = false;  // all files of its directory
  std::string sibling;     // one file beside it; empty if none
};

class Naming {
 public:
  // kInvalid if a pattern of the configuration does not compile or has no group `hash`; names it.
  static Result<std::unique_ptr<Naming>> Make(const std::vector<NamingProfile>& profiles,
                                              const std::vector<PathRule>& rules);
  ~Naming();

  // `path`: below the mount, no leading slash.
  BlockName Parse(std::string_view path) const;
  // Whether a file of this name (not a path) is likely to be renamed when it is written.
  bool IsTemporary(std::string_view name) const;
  // The group of a file of this name in a directory of that name.
  BlockGroup GroupOf(std::string_view directory, std::string_view name) const;
  // Whether it says what another block holds, and so goes before that.
  bool IsDescription(std::string_view name) const;
  PathPolicy PolicyOf(std::string_view path, bool directory) const;

  // What a user types as a hash: hex text becomes raw bytes, anything else stays.
  static std::string HashFromText(std::string_view text);
  static std::string HashToText(std::string_view hash);

 private:
  struct Compiled;
  Naming();
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace prefixfs
