// Reads and writes of any address, length and offset on a backing file, past the page cache as far
// as the filesystem allows.
//
// A read is made of the whole blocks around what is wanted. A write of whole blocks goes direct,
// any other through the page cache, so no byte beyond its range is ever touched: nothing is padded,
// and two writers of one block do not lose each other's bytes. The filesystem keeps both ways
// consistent, as it does for any program that mixes them.
//
// Errors: kInvalid if direct I/O is refused although it was aligned (the caller can do without it),
// else as Status::FromErrno says.
// Threads: every call from any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "cache/base/fd.h"
#include "cache/base/status.h"

namespace prefixfs {

// The descriptors of one backing file; they are the owner's.
struct DataFile {
  int fd = -1;             // through the page cache
  int direct_fd = -1;      // O_DIRECT; -1: there is no direct I/O on this file
  uint32_t alignment = 0;  // of offsets and lengths for direct_fd, a power of two
};

constexpr size_t kDirectMemoryAlignment = 4096;  // of addresses; enough for every drive

// The same file with O_DIRECT and the same access mode; invalid, with errno, if that is refused.
Fd ReopenDirect(int fd);

// Whether all of the range is in the page cache. False where the kernel (before 6.5) cannot say.
bool IsCached(int fd, uint64_t offset, size_t size);

// Memory for one transfer, aligned for direct I/O and lent from a pool: what was used last is used
// next, while it is still in the processor's caches.
class TransferMemory {
 public:
  explicit TransferMemory(size_t size);
  ~TransferMemory();
  TransferMemory(const TransferMemory&) = delete;
  TransferMemory& operator=(const TransferMemory&) = delete;

  std::span<char> bytes() const { return {start_, size_}; }  // empty above 4 MiB or without memory

 private:
  char* start_ = nullptr;
  size_t size_;
};

// Bytes of the whole blocks around a range: the room that ReadDirect needs.
size_t BlocksAround(const DataFile& file, uint64_t offset, size_t size);

// At most `size` bytes from `offset`, fewer only at the end of the file. They are in `memory`,
// which is aligned and has room for BlocksAround.
Result<std::span<const char>> ReadDirect(const DataFile& file, uint64_t offset, size_t size,
                                         std::span<char> memory);
// The same through one descriptor, as it is; `memory` need not be aligned and has room for `size`.
Result<std::span<const char>> ReadAt(int fd, uint64_t offset, size_t size, std::span<char> memory);

// Writes all of `bytes`, or as many as it could before an error: how many is the result, unless it
// is none. `flags` are those of pwritev2 (RWF_DSYNC, RWF_SYNC).
Result<size_t> WriteDirect(const DataFile& file, uint64_t offset, std::span<const char> bytes,
                           int flags);
// The same through one descriptor, as it is.
Result<size_t> WriteAt(int fd, uint64_t offset, std::span<const char> bytes, int flags);

}  // namespace prefixfs
