#include "cache/store/direct_io.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cache/base/mutex.h"

namespace prefixfs {
namespace {

constexpr size_t kHugePage = 2 << 20;
// The largest request of FUSE and a block on either side; only what is used of it is ever real.
constexpr size_t kPooledBytes = 4 << 20;
constexpr size_t kMaxPooled = 32;

uint64_t RoundDown(uint64_t value, uint64_t to) { return value / to * to; }
uint64_t RoundUp(uint64_t value, uint64_t to) { return RoundDown(value + to - 1, to); }

bool IsAligned(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kDirectMemoryAlignment == 0;
}

// Huge pages, because the kernel looks up every page of a transfer.
char* Map() {
  constexpr size_t size = kPooledBytes;
  // As much again, so that there is a start that huge pages take.
  void* mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto from = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t start = RoundUp(from, kHugePage);
  if (start > from) munmap(mapped, start - from);
  if (from + kHugePage > start)
    munmap(reinterpret_cast<void*>(start + size), from + kHugePage - start);
  (void)madvise(reinterpret_cast<void*>(start), size, MADV_HUGEPAGE);
  return reinterpret_cast<char*>(start);
}

// The idle memory, last in first out. Never freed: threads may end after static objects do.
class Pool {
 public:
  static Pool& Get() {
    static Pool& pool = *new Pool;
    return pool;
  }
  char* Take() PFS_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (!idle_.empty()) {
        char* start = idle_.back();
        idle_.pop_back();
        return start;
      }
    }
    return Map();
  }
  void Give(char* start) PFS_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (idle_.size() < kMaxPooled) {
        idle_.push_back(start);
        return;
      }
    }
    munmap(start, kPooledBytes);
  }

 private:
  Mutex mutex_;
  std::vector<char*> idle_ PFS_GUARDED_BY(mutex_);
};

}  // namespace

Fd ReopenDirect(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return {};
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return Fd(open(path, (flags & O_ACCMODE) | O_DIRECT | O_CLOEXEC | O_NONBLOCK));
}

bool IsCached(int fd, uint64_t offset, size_t size) {
  // cachestat(2) of kernel 6.5, which older headers lack.
  constexpr long kCachestat = 451;
  struct {
    uint64_t offset, length;
  } range{offset, size};
  struct {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } found{};
  static std::atomic<bool> absent{false};
  if (size == 0 || absent.load(std::memory_order_relaxed)) return false;
  if (syscall(kCachestat, fd, &range, &found, 0) != 0) {
    if (errno == ENOSYS) absent.store(true, std::memory_order_relaxed);
    return false;
  }
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t pages = (RoundUp(offset + size, page) - RoundDown(offset, page)) / page;
  return found.cached >= pages;
}

TransferMemory::TransferMemory(size_t size) : size_(size) {
  if (size <= kPooledBytes) start_ = Pool::Get().Take();
  if (start_ == nullptr) size_ = 0;
}

TransferMemory::~TransferMemory() {
  if (start_ != nullptr) Pool::Get().Give(start_);
}

size_t BlocksAround(const DataFile& file, uint64_t offset, size_t size) {
  return static_cast<size_t>(RoundUp(offset + size, file.alignment) -
                             RoundDown(offset, file.alignment));
}

Result<std::span<const char>> ReadAt(int fd, uint64_t offset, size_t size, std::span<char> memory) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n =
        pread(fd, memory.data() + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    // Direct I/O cannot go on behind the part of a block with which the file ended.
    if (n == 0 || (n < 0 && errno == EINVAL && done > 0)) break;
    if (n < 0) return Status::FromErrno(errno, "read");
    done += static_cast<size_t>(n);
  }
  return std::span<const char>(memory.data(), done);
}

Result<std::span<const char>> ReadDirect(const DataFile& file, uint64_t offset, size_t size,
                                         std::span<char> memory) {
  const uint64_t begin = RoundDown(offset, file.alignment);
  const auto got = PFS_TRY(ReadAt(file.direct_fd, begin, BlocksAround(file, offset, size), memory));
  const auto before = static_cast<size_t>(offset - begin);
  if (got.size() <= before) return got.subspan(0, 0);
  return got.subspan(before, std::min(size, got.size() - before));
}

Result<size_t> WriteAt(int fd, uint64_t offset, std::span<const char> bytes, int flags) {
  size_t done = 0;
  while (done < bytes.size()) {
    const iovec piece{const_cast<char*>(bytes.data()) + done, bytes.size() - done};
    const ssize_t n = pwritev2(fd, &piece, 1, static_cast<off_t>(offset + done), flags);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && done == 0) return Status::FromErrno(errno, "write");
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

Result<size_t> WriteDirect(const DataFile& file, uint64_t offset, std::span<const char> bytes,
                           int flags) {
  const bool whole = offset % file.alignment == 0 && bytes.size() % file.alignment == 0;
  if (!whole) return WriteAt(file.fd, offset, bytes, flags);
  if (IsAligned(bytes.data())) return WriteAt(file.direct_fd, offset, bytes, flags);
  const TransferMemory copy(bytes.size());
  if (copy.bytes().empty()) return WriteAt(file.fd, offset, bytes, flags);
  std::memcpy(copy.bytes().data(), bytes.data(), bytes.size());
  return WriteAt(file.direct_fd, offset, copy.bytes(), flags);
}

}  // namespace prefixfs
