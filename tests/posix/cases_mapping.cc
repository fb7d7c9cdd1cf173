// mmap: private and shared, growth of the file under a mapping, and the end of the file.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/posix/script.h"

namespace prefixfs::posix {
namespace {

constexpr size_t kPage = 4096;

char* Map(int fd, size_t size, int protection, int flags, off_t offset = 0) {
  void* memory = mmap(nullptr, size, protection, flags, fd, offset);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

void Shared(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  DO(ftruncate(fd, 3 * kPage));
  char* memory = Map(fd, 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
  if (memory == nullptr) return t.Say("mmap", Errno());
  strcpy(memory + kPage - 3, "through the mapping");
  char bytes[32] = {};
  DO(pread(fd, bytes, 19, kPage - 3));
  SAY(std::string(bytes));
  DO(pwrite(fd, "by write", 8, 2 * kPage));
  SAY(std::string(memory + 2 * kPage));
  DO(msync(memory, 3 * kPage, MS_SYNC));
  DO(msync(memory, 3 * kPage, MS_ASYNC));
  DO(msync(memory + 1, kPage, MS_SYNC));
  DO(madvise(memory, 3 * kPage, MADV_WILLNEED));
  DO(madvise(memory, 3 * kPage, MADV_DONTNEED));
  SAY(std::string(memory + kPage - 3));
  DO(munmap(memory, 3 * kPage));
  t.State("after");
}

// The handle goes, the mapping stays.
void SharedAfterClose(Script& t) {
  const int fd = FD(open("f.tmp", O_RDWR | O_CREAT, 0644));
  DO(ftruncate(fd, kPage));
  const int once = open("f.tmp", O_RDWR);
  char* memory = Map(once, kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
  if (memory == nullptr) return t.Say("mmap", Errno());
  close(once);
  strcpy(memory, "after close");
  DO(rename("f.tmp", "f"));
  strcpy(memory + 20, "after rename");
  DO(munmap(memory, kPage));
  char bytes[64] = {};
  const int back = FD(open("f", O_RDONLY));
  DO(pread(back, bytes, 64, 0));
  SAY(std::string(bytes));
  SAY(std::string(bytes + 20));
}

void Private(Script& t) {
  Put("f", std::string(2 * kPage, 'x'));
  const int fd = FD(open("f", O_RDONLY));
  char* memory = Map(fd, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE);
  if (memory == nullptr) return t.Say("mmap", Errno());
  SAY(std::string(memory + kPage, 3));
  memset(memory, 'y', 2 * kPage);
  char byte;
  DO(pread(fd, &byte, 1, 0));
  SAY(byte);
  DO(munmap(memory, 2 * kPage));
  SAY(Get("f"));
}

void Refusals(Script& t) {
  Put("f", "content");
  const int read_only = FD(open("f", O_RDONLY));
  const int write_only = FD(open("g", O_WRONLY | O_CREAT, 0644));
  SAY(Map(read_only, kPage, PROT_WRITE, MAP_SHARED) == nullptr ? Errno() : "mapped");
  SAY(Map(write_only, kPage, PROT_READ, MAP_SHARED) == nullptr ? Errno() : "mapped");
  SAY(Map(read_only, 0, PROT_READ, MAP_SHARED) == nullptr ? Errno() : "mapped");
  SAY(Map(read_only, kPage, PROT_READ, MAP_SHARED, 1) == nullptr ? Errno() : "mapped");
  SAY(Map(read_only, kPage, PROT_READ, MAP_SHARED_VALIDATE) == nullptr ? Errno() : "mapped");
  const int directory = FD(open(".", O_RDONLY));
  SAY(Map(directory, kPage, PROT_READ, MAP_SHARED) == nullptr ? Errno() : "mapped");
  char* memory = Map(read_only, kPage, PROT_READ, MAP_SHARED);
  DO(mprotect(memory, kPage, PROT_READ | PROT_WRITE));
  SAY(Map(read_only, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE) == nullptr ? Errno() : "mapped");
}

// What it maps must not hold the mount.
void RefusalsInAChild(Script& t) { t.InChild(Refusals); }

void TouchPastTheEnd(Script& t) {
  const int fd = FD(open("f", O_RDWR));
  volatile char* memory = Map(fd, 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
  SAY(memory[0]);
  SAY(memory[kPage - 1]);  // after the end, within its page
  SAY(memory[kPage]);
}

void WritePastTheEnd(Script& t) {
  const int fd = FD(open("f", O_RDWR));
  volatile char* memory = Map(fd, 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
  memory[2 * kPage] = 'x';
  t.Say("wrote", 1);
}

void PastTheEnd(Script& t) {
  Put("f", "content");
  t.InChild(TouchPastTheEnd);
  t.InChild(WritePastTheEnd);
  SAY(Get("f"));
}

void Growth(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  DO(write(fd, "start", 5));
  char* memory = Map(fd, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
  if (memory == nullptr) return t.Say("mmap", Errno());
  SAY(std::string(memory));
  DO(ftruncate(fd, 4 * kPage));
  strcpy(memory + 3 * kPage, "in the new part");
  char bytes[32] = {};
  DO(pread(fd, bytes, 15, 3 * kPage));
  SAY(std::string(bytes));
  DO(pwrite(fd, "beyond", 6, 5 * kPage));
  memory = static_cast<char*>(mremap(memory, 4 * kPage, 6 * kPage, MREMAP_MAYMOVE));
  SAY(std::string(memory + 5 * kPage));
  DO(ftruncate(fd, 10));
  DO(ftruncate(fd, kPage));
  SAY(static_cast<long>(strlen(memory)));
  SAY(memory[100]);
  DO(munmap(memory, 6 * kPage));
  t.State("after");
}

void TouchAfterTheCut(Script& t) {
  const int fd = FD(open("f", O_RDWR));
  volatile char* memory = Map(fd, 2 * kPage, PROT_READ, MAP_SHARED);
  SAY(memory[kPage]);
  DO(ftruncate(fd, 10));
  SAY(memory[9]);
  SAY(memory[kPage]);
}

void Cut(Script& t) {
  Put("f", std::string(2 * kPage, 'x'));
  t.InChild(TouchAfterTheCut);
}

void ChildWrites(Script& t) {
  const int fd = FD(open("f", O_RDWR));
  char* memory = Map(fd, kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
  strcpy(memory, "from the child");
}

// Two mappings, two processes, one file.
void SeenByBoth(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  DO(ftruncate(fd, kPage));
  char* memory = Map(fd, kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
  if (memory == nullptr) return t.Say("mmap", Errno());
  t.InChild(ChildWrites);
  SAY(std::string(memory));
  DO(munmap(memory, kPage));
}

}  // namespace

void AddMappingCases(Cases& cases) {
  cases.insert(cases.end(), {{"mapping.shared", Shared},
                             {"mapping.shared_after_close", SharedAfterClose},
                             {"mapping.private", Private},
                             {"mapping.refusals", RefusalsInAChild},
                             {"mapping.past_the_end", PastTheEnd},
                             {"mapping.growth", Growth},
                             {"mapping.cut", Cut},
                             {"mapping.seen_by_both", SeenByBoth}});
}

}  // namespace prefixfs::posix
