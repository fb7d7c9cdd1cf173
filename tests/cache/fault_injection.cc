// Both names of a call are defined, with and without 64: libraries use either.
#undef _FILE_OFFSET_BITS
#include "tests/cache/fault_injection.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace prefixfs::faults {
namespace {

// What a call does, and so which errors it has.
enum Kind : uint8_t {
  kReads = 0,
  kOpens = 1,   // EMFILE
  kWrites = 2,  // EROFS
  kGrows = 4,   // ENOSPC
  kMeta = 8,    // a meta page of LMDB
};
constexpr uint64_t kMaxCalls = 4096;  // whose kind is kept
// LMDB's meta pages. It answers a failed write of one by writing there again, what it knows to be
// wrong; a filesystem that fails the one fails the other.
constexpr size_t kMetaBytes = 120;

struct Shared {
  std::atomic<bool> armed{false};
  std::atomic<uint64_t> calls{0}, faults{0};
  uint64_t at = 0;
  int error = 0;
  std::atomic<bool> from_then_on{false};
  bool reflinks = false;
  dev_t device = 0;
  char directory[256] = {};
  std::atomic<const char*> failed{nullptr};  // the first call
  std::atomic<uint8_t> kinds[kMaxCalls] = {};
};

// Shared with children. Null before this file's own initialization, when nothing is armed either.
Shared* shared = nullptr;

const bool made = [] {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  shared = new (memory) Shared;
  return true;
}();

thread_local int exempt = 0;

bool Armed() {
  return shared != nullptr && exempt == 0 && shared->armed.load(std::memory_order_acquire);
}

// Asked of the kernel itself: fstat is one of the calls that may fail.
bool OnFd(int fd) {
  if (!Armed()) return false;
  const int before = errno;
  struct stat st;
  const bool ours = ::syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) == 0 &&
                    st.st_dev == shared->device && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
  errno = before;
  return ours;
}

bool OnPath(int directory, const char* path) {
  if (!Armed()) return false;
  if (path[0] != '/') return directory != AT_FDCWD && OnFd(directory);
  return std::string_view(path).starts_with(shared->directory);
}

bool Has(uint8_t kind, int error) {
  if (error == EMFILE) return (kind & kOpens) != 0;
  if (error == EROFS) return (kind & kWrites) != 0;
  if (error == ENOSPC) return (kind & kGrows) != 0;
  return true;
}

// A filesystem that writes in place needs space only for what lies behind the file's end.
uint8_t KindOfWrite(int fd, size_t size, off_t at) {
  struct stat st {};
  (void)::syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH);
  const off_t from = at >= 0 ? at : ::lseek(fd, 0, SEEK_CUR);
  const bool grows = from + static_cast<off_t>(size) > st.st_size;
  return static_cast<uint8_t>(kWrites | (grows ? kGrows : 0) | (size == kMetaBytes ? kMeta : 0));
}

size_t BytesOf(const iovec* pieces, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  return bytes;
}

bool IsThere(int directory, const char* path) {
  struct stat st;
  return ::syscall(SYS_newfstatat, directory, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

uint8_t KindOfOpen(int directory, const char* path, int flags) {
  const bool writes = (flags & O_CREAT) != 0 || (flags & O_ACCMODE) != O_RDONLY;
  const bool makes = (flags & O_CREAT) != 0 && !IsThere(directory, path);
  return static_cast<uint8_t>(kOpens | (writes ? kWrites : 0) | (makes ? kGrows : 0));
}

uint8_t KindOfMake(int directory, const char* path) {
  return static_cast<uint8_t>(kWrites | (IsThere(directory, path) ? 0 : kGrows));
}

bool Fails(const char* call, uint8_t kind) {
  const uint64_t number = shared->calls.fetch_add(1) + 1;
  if (number < kMaxCalls) shared->kinds[number] = kind;
  const uint64_t at = shared->at;
  const bool fails = at != 0 && (number == at || (shared->from_then_on && number > at));
  if (!fails || !Has(kind, shared->error)) return false;
  if ((kind & kMeta) != 0) shared->from_then_on = true;
  const char* none = nullptr;
  shared->failed.compare_exchange_strong(none, call);
  shared->faults.fetch_add(1);
  errno = shared->error;
  return true;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// What FICLONE would do, for a file of the test's size.
int CopyAll(int to, int from) {
  const Exempt unseen;
  char piece[65536];
  off_t at = 0;
  for (;;) {
    const ssize_t n = ::pread(from, piece, sizeof(piece), at);
    if (n <= 0) return static_cast<int>(n);
    if (::pwrite(to, piece, static_cast<size_t>(n), at) != n) return -1;
    at += n;
  }
}

}  // namespace

void Arm(const Plan& plan) {
  struct stat st;
  if (::syscall(SYS_newfstatat, AT_FDCWD, plan.directory.c_str(), &st, 0) != 0) std::abort();
  shared->device = st.st_dev;
  shared->calls = shared->faults = 0;
  shared->failed = nullptr;
  shared->at = plan.at;
  shared->error = plan.error;
  shared->from_then_on = plan.from_then_on;
  std::snprintf(shared->directory, sizeof(shared->directory), "%s", plan.directory.c_str());
  shared->armed.store(true, std::memory_order_release);
}

uint64_t Disarm() {
  shared->armed.store(false, std::memory_order_release);
  return shared->calls.load();
}

bool CanFail(uint64_t at, int error) { return at >= kMaxCalls || Has(shared->kinds[at], error); }

std::string WhatFailed() {
  // Of a child too: the text of a call lies where it does here.
  const char* failed = shared->failed.load();
  if (failed == nullptr) return {};
  return std::string(failed) + " (" + std::to_string(shared->faults.load()) + " faults)";
}

void ImitateReflinks(bool on) { shared->reflinks = on; }

Exempt::Exempt() { ++exempt; }
Exempt::~Exempt() { --exempt; }

}  // namespace prefixfs::faults

using prefixfs::faults::BytesOf;
using prefixfs::faults::CopyAll;
using prefixfs::faults::Fails;
using prefixfs::faults::kGrows;
using prefixfs::faults::KindOfMake;
using prefixfs::faults::KindOfOpen;
using prefixfs::faults::KindOfWrite;
using prefixfs::faults::kReads;
using prefixfs::faults::kWrites;
using prefixfs::faults::Next;
using prefixfs::faults::OnFd;
using prefixfs::faults::OnPath;
using prefixfs::faults::shared;

// One call: what it is, and whether it goes to the filesystem under test.
#define CALL(result, name, parameters, arguments, throws, kind, ours) \
  extern "C" result name parameters throws {                          \
    static const auto next = Next<result parameters>(#name);          \
    if ((ours) && Fails(#name, kind)) return -1;                      \
    return next arguments;                                            \
  }

#define OPEN_CALL(name, parameters, arguments, kind, ours) \
  extern "C" int name parameters {                         \
    static const auto next = Next<int parameters>(#name);  \
    va_list rest;                                          \
    va_start(rest, flags);                                 \
    const mode_t mode = va_arg(rest, mode_t);              \
    va_end(rest);                                          \
    if ((ours) && Fails(#name, kind)) return -1;           \
    return next arguments;                                 \
  }

// clang-format off
OPEN_CALL(open, (const char* path, int flags, ...), (path, flags, mode), KindOfOpen(AT_FDCWD, path, flags), OnPath(AT_FDCWD, path))
OPEN_CALL(open64, (const char* path, int flags, ...), (path, flags, mode), KindOfOpen(AT_FDCWD, path, flags), OnPath(AT_FDCWD, path))
OPEN_CALL(openat, (int fd, const char* path, int flags, ...), (fd, path, flags, mode), KindOfOpen(fd, path, flags), OnPath(fd, path))
OPEN_CALL(openat64, (int fd, const char* path, int flags, ...), (fd, path, flags, mode), KindOfOpen(fd, path, flags), OnPath(fd, path))
CALL(ssize_t, read, (int fd, void* to, size_t size), (fd, to, size), , (kReads), OnFd(fd))
CALL(ssize_t, write, (int fd, const void* from, size_t size), (fd, from, size), , KindOfWrite(fd, size, -1), OnFd(fd))
CALL(ssize_t, pread, (int fd, void* to, size_t size, off_t at), (fd, to, size, at), , (kReads), OnFd(fd))
CALL(ssize_t, pread64, (int fd, void* to, size_t size, off64_t at), (fd, to, size, at), , (kReads), OnFd(fd))
CALL(ssize_t, pwrite, (int fd, const void* from, size_t size, off_t at), (fd, from, size, at), , KindOfWrite(fd, size, at), OnFd(fd))
CALL(ssize_t, pwrite64, (int fd, const void* from, size_t size, off64_t at), (fd, from, size, at), , KindOfWrite(fd, size, at), OnFd(fd))
CALL(ssize_t, writev, (int fd, const iovec* from, int count), (fd, from, count), , KindOfWrite(fd, BytesOf(from, count), -1), OnFd(fd))
CALL(int, fsync, (int fd), (fd), , kWrites, OnFd(fd))
CALL(int, fdatasync, (int fd), (fd), , kWrites, OnFd(fd))
CALL(int, ftruncate, (int fd, off_t size), (fd, size), noexcept, kWrites, OnFd(fd))
CALL(int, ftruncate64, (int fd, off64_t size), (fd, size), noexcept, kWrites, OnFd(fd))
CALL(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), , (kWrites | kGrows), OnFd(fd))
CALL(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size), , (kWrites | kGrows), OnFd(fd))
CALL(int, renameat, (int fd, const char* from, int to_fd, const char* to), (fd, from, to_fd, to), noexcept, (kWrites | kGrows), OnPath(fd, from))
CALL(int, unlinkat, (int fd, const char* path, int flags), (fd, path, flags), noexcept, (kWrites), OnPath(fd, path))
CALL(int, mkdir, (const char* path, mode_t mode), (path, mode), noexcept, KindOfMake(AT_FDCWD, path), OnPath(AT_FDCWD, path))
CALL(int, mkdirat, (int fd, const char* path, mode_t mode), (fd, path, mode), noexcept, KindOfMake(fd, path), OnPath(fd, path))
CALL(int, fchmodat, (int fd, const char* path, mode_t mode, int flags), (fd, path, mode, flags), noexcept, (kWrites), OnPath(fd, path))
CALL(int, faccessat, (int fd, const char* path, int mode, int flags), (fd, path, mode, flags), noexcept, (kReads), OnPath(fd, path))
CALL(int, fsetxattr, (int fd, const char* name, const void* value, size_t size, int flags), (fd, name, value, size, flags), noexcept, (kWrites | kGrows), OnFd(fd))
CALL(ssize_t, fgetxattr, (int fd, const char* name, void* value, size_t size), (fd, name, value, size), noexcept, (kReads), OnFd(fd))
CALL(ssize_t, flistxattr, (int fd, char* names, size_t size), (fd, names, size), noexcept, (kReads), OnFd(fd))
CALL(int, fremovexattr, (int fd, const char* name), (fd, name), noexcept, (kWrites), OnFd(fd))
CALL(int, stat, (const char* path, struct stat* st), (path, st), noexcept, (kReads), OnPath(AT_FDCWD, path))
CALL(int, stat64, (const char* path, struct stat64* st), (path, st), noexcept, (kReads), OnPath(AT_FDCWD, path))
CALL(int, fstat, (int fd, struct stat* st), (fd, st), noexcept, (kReads), OnFd(fd))
CALL(int, fstat64, (int fd, struct stat64* st), (fd, st), noexcept, (kReads), OnFd(fd))
CALL(int, fstatat, (int fd, const char* path, struct stat* st, int flags), (fd, path, st, flags), noexcept, (kReads), OnPath(fd, path))
CALL(int, fstatat64, (int fd, const char* path, struct stat64* st, int flags), (fd, path, st, flags), noexcept, (kReads), OnPath(fd, path))
CALL(int, statx, (int fd, const char* path, int flags, unsigned mask, struct statx* st), (fd, path, flags, mask, st), noexcept, (kReads), OnPath(fd, path))
CALL(int, fstatfs, (int fd, struct statfs* st), (fd, st), noexcept, (kReads), OnFd(fd))
CALL(int, fstatvfs, (int fd, struct statvfs* st), (fd, st), noexcept, (kReads), OnFd(fd))
CALL(int, fstatvfs64, (int fd, struct statvfs64* st), (fd, st), noexcept, (kReads), OnFd(fd))
CALL(int, futimens, (int fd, const timespec times[2]), (fd, times), noexcept, (kWrites), OnFd(fd))
CALL(int, flock, (int fd, int operation), (fd, operation), noexcept, (kReads), OnFd(fd))
CALL(ssize_t, copy_file_range, (int in, off64_t* in_at, int out, off64_t* out_at, size_t size, unsigned flags), (in, in_at, out, out_at, size, flags), , (kWrites | kGrows), OnFd(out))
// clang-format on

extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  static const auto next = Next<int(int, unsigned long, ...)>("ioctl");
  va_list rest;
  va_start(rest, request);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (OnFd(fd) && Fails("ioctl", kWrites | kGrows)) return -1;
  if (request == FICLONE && shared != nullptr && shared->reflinks) {
    return CopyAll(fd, static_cast<int>(reinterpret_cast<intptr_t>(argument)));
  }
  return next(fd, request, argument);
}
