// Blocks written as most clients write them (temporary, one write, rename), named and filled by
// number, so that any process can say of any block whether it is right, absent, or a wrong answer.
#pragma once

#include <cstdint>
#include <string>

namespace prefixfs::blocks {

enum class Found { kRight, kAbsent };

// Sizes by turns: 2 MiB, 8 MiB, 1,124,352 B.
uint64_t MixedSize(uint64_t number);

std::string Path(const std::string& root, uint64_t number);

// Throws SysFailure if any step fails.
void Write(const std::string& root, uint64_t number, uint64_t size);
// kAbsent only for ENOENT at open; anything else that is not exactly the block throws.
Found Read(const std::string& root, uint64_t number, uint64_t size);

// How many of the blocks [first, last) are there; the others are absent; a wrong one throws.
uint64_t CountRight(const std::string& root, uint64_t first, uint64_t last, uint64_t size);
uint64_t CountRightMixed(const std::string& root, uint64_t first, uint64_t last);

}  // namespace prefixfs::blocks
