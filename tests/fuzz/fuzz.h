// What the fuzzers share. A fuzzer is one file: LLVMFuzzerTestOneInput, and the inputs to start
// from.
//
// Most of what is read here carries a digest, which a mutation never gets right by chance. So a
// fuzzer first takes the bytes as they are, and then once more with the digest that they should
// have: what lies behind the digest is met as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

// Fails the run with the input that led here.
#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (0)

namespace prefixfs::fuzz {

// The first inputs. tests/fuzz/run.py writes them beside those of seeds/ before a run.
std::vector<std::string> Seeds();

inline std::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Takes what lies before the first `separator` off the front of `rest`.
inline std::string_view TakePart(std::string_view* rest, char separator) {
  const size_t end = rest->find(separator);
  const std::string_view part = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  return part;
}

// A directory of this program's own, removed at its end.
const std::string& ScratchDirectory();

}  // namespace prefixfs::fuzz
