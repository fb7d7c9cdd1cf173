#include "tests/support/pattern.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "cache/base/fd.h"
#include "tests/support/fail.h"

namespace prefixfs::support {
namespace {

// splitmix64, Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
uint64_t Word(uint64_t seed, uint64_t index) {
  if (index == 0) return seed;
  uint64_t z = seed + index * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

Buffer::Buffer(size_t size) : size_(size) {
  const size_t rounded = (size + 4095) / 4096 * 4096;
  data_ = static_cast<uint8_t*>(aligned_alloc(4096, rounded == 0 ? 4096 : rounded));
  Check(data_ != nullptr, "out of memory");
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() { free(data_); }

void Fill(std::span<uint8_t> bytes, uint64_t seed) {
  const size_t words = bytes.size() / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = Word(seed, i);
    memcpy(bytes.data() + i * 8, &word, 8);
  }
  const uint64_t last = Word(seed, words);
  if (bytes.size() % 8 != 0) memcpy(bytes.data() + words * 8, &last, bytes.size() % 8);
}

Buffer Pattern(size_t size, uint64_t seed) {
  Buffer buffer(size);
  Fill(buffer.span(), seed);
  return buffer;
}

std::optional<size_t> FirstWrong(std::span<const uint8_t> bytes, uint64_t seed) {
  const size_t words = bytes.size() / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = Word(seed, i);
    if (memcmp(bytes.data() + i * 8, &word, 8) != 0) return i * 8;
  }
  const uint64_t last = Word(seed, words);
  if (memcmp(bytes.data() + words * 8, &last, bytes.size() % 8) != 0) return words * 8;
  return std::nullopt;
}

uint64_t SeedOf(std::span<const uint8_t> bytes) {
  uint64_t seed = 0;
  memcpy(&seed, bytes.data(), std::min<size_t>(8, bytes.size()));
  return seed;
}

std::string Verify(std::span<const uint8_t> bytes, uint64_t seed, size_t size) {
  if (bytes.size() != size) {
    return "size " + std::to_string(bytes.size()) + ", expected " + std::to_string(size);
  }
  const auto wrong = FirstWrong(bytes, seed);
  if (!wrong) return {};
  return "wrong bytes at offset " + std::to_string(*wrong) + " of " + std::to_string(size) +
         ", seed " + std::to_string(seed) + ", the file claims seed " +
         std::to_string(SeedOf(bytes));
}

std::string VerifyFile(const std::string& path, uint64_t seed, size_t size) {
  try {
    const std::string problem = Verify(ReadFile(path), seed, size);
    return problem.empty() ? problem : path + ": " + problem;
  } catch (const Failure& failure) {
    return failure.what();
  }
}

void WriteFile(const std::string& path, std::span<const uint8_t> bytes) {
  Fd fd(Sys(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), "create " + path));
  size_t done = 0;
  while (done < bytes.size()) {
    done += static_cast<size_t>(
        Sys(write(fd.get(), bytes.data() + done, bytes.size() - done), "write " + path));
  }
  Sys(close(fd.Release()), "close " + path);
}

void WriteText(const std::string& path, const std::string& text) {
  WriteFile(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

Buffer ReadFile(const std::string& path) {
  Fd fd(Sys(open(path.c_str(), O_RDONLY | O_CLOEXEC), "open " + path));
  struct stat st {};
  Sys(fstat(fd.get(), &st), "fstat " + path);
  Buffer buffer(static_cast<size_t>(st.st_size));
  size_t done = 0;
  while (done < buffer.size()) {
    const auto got = static_cast<size_t>(
        Sys(read(fd.get(), buffer.data() + done, buffer.size() - done), "read " + path));
    if (got == 0)
      Fail(path + ": ends at " + std::to_string(done) + ", fstat said " +
           std::to_string(buffer.size()));
    done += got;
  }
  return buffer;
}

std::string ReadText(const std::string& path) {
  // Control files have no size before they are read.
  Fd fd(Sys(open(path.c_str(), O_RDONLY | O_CLOEXEC), "open " + path));
  std::string text;
  char piece[16 << 10];
  while (const auto got =
             static_cast<size_t>(Sys(read(fd.get(), piece, sizeof(piece)), "read " + path))) {
    text.append(piece, got);
  }
  return text;
}

}  // namespace prefixfs::support
