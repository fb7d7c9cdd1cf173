// What is called before the first input: with PREFIXFS_FUZZ_SEEDS=DIR the seeds are written to DIR,
// and that is all.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/fuzz/fuzz.h"

namespace prefixfs::fuzz {
namespace {

struct Scratch {
  Scratch() {
    const char* base = std::getenv("TMPDIR");  // run.py gives one in memory, and removes it
    std::string pattern =
        std::string(base != nullptr ? base : "/tmp") + "/prefixfs-test-fuzz-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

}  // namespace

const std::string& ScratchDirectory() {
  static const Scratch scratch;
  return scratch.path;
}

}  // namespace prefixfs::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* directory = std::getenv("PREFIXFS_FUZZ_SEEDS");
  if (directory == nullptr) return 0;
  int number = 0;
  for (const std::string& seed : prefixfs::fuzz::Seeds()) {
    std::ofstream file(std::string(directory) + "/seed-" + std::to_string(number++));
    file << seed;
    if (!file.flush()) std::exit(1);
  }
  std::exit(0);
}
