// The built-in tables of naming: what clients call their blocks, and which of their files are no
// blocks. Private to cache/naming.
#pragma once

#include <span>

#include "cache/base/config.h"

namespace prefixfs {

// How the client spells the model's name in a path.
enum class ModelText {
  kPlain,
  kSep,      // "/" is written "-SEP-"
  kPercent,  // URL-quoted
};

// How the client spells the rank.
enum class RankText {
  kDecimal,
  kPacked,  // LMCache's kv_rank, 8 hex digits: world size, rank, local world size, local rank, a
            // byte each
};

// RE2 over the path below the mount, named groups hash, model and rank. Tried in order; the first
// that matches is it.
struct Profile {
  const char* name;
  const char* pattern;
  ModelText model = ModelText::kPlain;
  RankText rank = RankText::kDecimal;
};
std::span<const Profile> BuiltinProfiles();

// RE2 over the path below the mount, for files or for directories. Tried in order; the first that
// matches is it.
struct PolicyPattern {
  bool directory;
  PathPolicy policy;
  const char* pattern;
};
std::span<const PolicyPattern> BuiltinPolicies();

}  // namespace prefixfs
