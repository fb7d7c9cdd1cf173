// Where the mount answers otherwise than the filesystem below it, on purpose: the one list. Every
// entry must occur when the battery runs, and nothing else may. docs/POSIX.md gives the reasons to
// users; a test compares the two.
#pragma once

#include <span>
#include <string_view>

namespace prefixfs::posix {

// In which of the four settings that the battery runs in.
enum Where : unsigned {
  kBlockPassthrough = 1,
  kPosixPassthrough = 2,
  kBlockServed = 4,
  kPosixServed = 8,
  kBlocks = kBlockPassthrough | kBlockServed,
  kPosix = kPosixPassthrough | kPosixServed,
  kPassthrough = kBlockPassthrough | kPosixPassthrough,
  kServed = kBlockServed | kPosixServed,
  kEverywhere = kBlocks | kPosix,
};

struct KnownDifference {
  std::string_view test;    // the case
  std::string_view call;    // as the transcript has it
  std::string_view native;  // the two answers
  std::string_view mount;
  unsigned where;
  std::string_view reason;  // the name of one of the reasons
  bool sometimes = false;   // the native answer is possible too
};

struct Reason {
  std::string_view name;
  std::string_view text;  // stands in docs/POSIX.md in these words
};

std::span<const KnownDifference> KnownDifferences();
std::span<const Reason> Reasons();

}  // namespace prefixfs::posix
