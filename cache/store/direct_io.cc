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

namespace prefixfs {
namespace {

constexpr size_t kHugePage = 2 << 20;

uint64_t RoundDown(uint64_t value, uint64_t to) { return value / to * to; }
uint64_t RoundUp(uint64_t value, uint64_t to) { return RoundDown(value + to - 1, to); }

bool IsAligned(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kDirectMemoryAlignment == 0;
}

// Grows to what was asked of it; huge pages, because the kernel looks up every page of a transfer.
class Bounce {
 public:
  Bounce() = default;
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;
  ~Bounce() { Free(); }

  // Empty if there is no memory.
  std::span<char> Get(size_t size) {
    if (size <= size_) return {memory_, size};
    Free();
    const size_t wanted = RoundUp(size, kHugePage);
    // As much again, so that there is a start that huge pages take.
    void* mapped = mmap(nullptr, wanted + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return {};
    mapped_ = mapped;
    mapped_size_ = wanted + kHugePage;
    memory_ =
        reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(mapped), uint64_t{kHugePage}));
    size_ = wanted;
    (void)madvise(memory_, size_, MADV_HUGEPAGE);
    return {memory_, size};
  }

 private:
  void Free() {
    if (mapped_ != nullptr) munmap(mapped_, mapped_size_);
    mapped_ = nullptr;
    memory_ = nullptr;
    size_ = 0;
  }

  void* mapped_ = nullptr;
  size_t mapped_size_ = 0;
  char* memory_ = nullptr;
  size_t size_ = 0;
};

std::span<char> ThreadMemory(size_t size) {
  thread_local Bounce bounce;
  return bounce.Get(size);
}

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

Result<std::span<const char>> ReadDirect(const DataFile& file, uint64_t offset, size_t size,
                                         std::span<char> memory) {
  const uint64_t begin = RoundDown(offset, file.alignment);
  const auto span = static_cast<size_t>(RoundUp(offset + size, file.alignment) - begin);
  if (!IsAligned(memory.data()) || memory.size() < span) memory = ThreadMemory(span);
  if (memory.empty()) return Status(Code::kInvalid, "no memory for direct I/O");
  size_t done = 0;
  while (done < span) {
    const ssize_t n =
        pread(file.direct_fd, memory.data() + done, span - done, static_cast<off_t>(begin + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "read");
    done += static_cast<size_t>(n);
    // The end of the file, or the kernel stopped in between: whole blocks can be asked for again.
    if (n == 0 || done % file.alignment != 0) break;
  }
  const auto before = static_cast<size_t>(offset - begin);
  if (done <= before) return std::span<const char>(memory.data(), 0);
  return std::span<const char>(memory.data() + before, std::min(size, done - before));
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
  const std::span<char> copy = ThreadMemory(bytes.size());
  if (copy.empty()) return WriteAt(file.fd, offset, bytes, flags);
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  return WriteAt(file.direct_fd, offset, copy, flags);
}

}  // namespace prefixfs
