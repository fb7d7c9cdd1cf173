// Block contents that can be told apart: every 8 bytes depend on the seed and on their place, and
// the first 8 are the seed itself, so a reader can see whose version it got and whether all of it
// is of that version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace prefixfs::support {

// Bytes at an address that O_DIRECT takes (4096).
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<uint8_t> span() { return {data_, size_}; }
  operator std::span<const uint8_t>() const { return {data_, size_}; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

void Fill(std::span<uint8_t> bytes, uint64_t seed);
Buffer Pattern(size_t size, uint64_t seed);

// The first offset where `bytes` is not the pattern of `seed`.
std::optional<size_t> FirstWrong(std::span<const uint8_t> bytes, uint64_t seed);
// The seed that `bytes` claims; the first 8 bytes.
uint64_t SeedOf(std::span<const uint8_t> bytes);

// Empty if right, else what is wrong and at which offset.
std::string Verify(std::span<const uint8_t> bytes, uint64_t seed, size_t size);
std::string VerifyFile(const std::string& path, uint64_t seed, size_t size);

// Plain file helpers; they throw.
void WriteFile(const std::string& path, std::span<const uint8_t> bytes);
void WriteText(const std::string& path, const std::string& text);
Buffer ReadFile(const std::string& path);
std::string ReadText(const std::string& path);

}  // namespace prefixfs::support
