// DataIo: the bytes of a read or write that reached the daemon, between the request and the backing
// file.
//
// A handle that asks for O_DIRECT is served past the page cache, unless what it wants is in there
// already; every other one is served through it. What comes from the page cache is spliced where it
// fits in a pipe. Over io_uring the drive fills the ring's own buffer.
//
// Threads: every call from any thread; it may wait for the drive.
#pragma once

#include <span>

#include "cache/cache.h"
#include "fs/request.h"

namespace prefixfs {

struct DataRange {
  off_t offset = 0;
  size_t size = 0;
  int flags = 0;  // the client's open flags as they are now: fcntl may have changed O_DIRECT
};

// Answers `request` with the bytes, fewer only at the end of the file.
void ReadData(Cache& cache, Request request, const Handle& handle, const DataRange& range);
// Writes `bytes` and answers how many; there is room for them already (Cache::PrepareWrite).
void WriteData(Cache& cache, Request request, const Handle& handle, const DataRange& range,
               std::span<const char> bytes);
// Whether reading the range can wait for the drive.
bool MayWait(Cache& cache, const Handle& handle, const DataRange& range);

}  // namespace prefixfs
