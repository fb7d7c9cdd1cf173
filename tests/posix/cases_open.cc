// open: flags, access modes, O_TMPFILE, O_PATH, fcntl.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/posix/script.h"

namespace prefixfs::posix {
namespace {

constexpr size_t kPage = 4096;

std::unique_ptr<char, decltype(&free)> Aligned(size_t size, char fill) {
  auto* memory = static_cast<char*>(aligned_alloc(kPage, size));
  memset(memory, fill, size);
  return {memory, &free};
}

void Creating(Script& t) {
  DO(open("absent", O_RDONLY));
  FD(open("f", O_RDWR | O_CREAT | O_EXCL, 0640));
  DO(open("f", O_RDWR | O_CREAT | O_EXCL, 0640));
  FD(open("f", O_RDWR | O_CREAT, 0600));
  DO(open("f/x", O_RDONLY));
  DO(open("f/", O_RDONLY));
  DO(open("absent/x", O_CREAT | O_RDWR, 0644));
  DO(open("new/", O_CREAT | O_RDWR, 0644));
  DO(open("", O_RDONLY));
  DO(open("", O_CREAT | O_RDWR, 0644));
  t.State("after");
}

void Directories(Script& t) {
  DO(mkdir("d", 0755));
  Put("f", "F");
  FD(open("d", O_RDONLY));
  FD(open("d", O_RDONLY | O_DIRECTORY));
  DO(open("d", O_WRONLY));
  DO(open("d", O_RDWR));
  DO(open("d", O_CREAT | O_RDWR, 0644));
  DO(open("d", O_RDONLY | O_TRUNC));
  DO(open("f", O_RDONLY | O_DIRECTORY));
  DO(open("d", O_CREAT | O_DIRECTORY, 0644));
  const int d = FD(open("d", O_RDONLY | O_DIRECTORY));
  char byte;
  DO(read(d, &byte, 1));
  DO(write(d, &byte, 1));
  DO(ftruncate(d, 0));
  DO(lseek(d, 0, SEEK_SET));
  DO(fallocate(d, 0, 0, 1));
  FD(openat(d, "inside", O_CREAT | O_RDWR, 0644));
  t.State("after");
}

void Symlinks(Script& t) {
  Put("f", "F");
  DO(symlink("f", "link"));
  DO(symlink("made", "dangling"));
  DO(symlink("loop", "loop"));
  FD(open("link", O_RDONLY));
  DO(open("link", O_RDONLY | O_NOFOLLOW));
  DO(open("loop", O_RDONLY));
  DO(open("dangling", O_RDONLY));
  DO(open("dangling", O_CREAT | O_EXCL | O_RDWR, 0644));
  FD(open("dangling", O_CREAT | O_RDWR, 0644));
  DO(open("link/", O_RDONLY));
  FD(open("link", O_PATH | O_NOFOLLOW));
  t.State("after");
}

void Truncating(Script& t) {
  Put("f", "content");
  FD(open("f", O_WRONLY | O_TRUNC));
  SAY(Get("f"));
  Put("f", "content");
  SAY(Get("f"));
  FD(open("f", O_WRONLY | O_CREAT | O_TRUNC, 0600));
  SAY(Get("f"));
  t.State("after");
}

// The same name opened several times over while it is new.
void Twice(Script& t) {
  const int one = FD(open("f", O_RDWR | O_CREAT, 0644));
  DO(write(one, "first", 5));
  const int two = FD(open("f", O_RDWR));
  DO(pwrite(two, "F", 1, 0));
  char bytes[16] = {};
  DO(pread(one, bytes, sizeof bytes, 0));
  SAY(std::string(bytes));
  SAY(Get("f"));
  FD(open("f", O_WRONLY | O_TRUNC));
  SAY(Get("f"));
  DO(pwrite(one, "+", 1, 0));
  t.State("after");
}

// Closed in between, so that each opens what the one before left.
void TwiceInTurn(Script& t) {
  for (const int flags : {O_CREAT, O_TRUNC, 0, O_APPEND, O_CREAT | O_TRUNC}) {
    const int fd = open("f", O_RDWR | flags, 0644);
    DO(write(fd, "abc", 3));
    DO(close(fd));
    SAY(Get("f"));
  }
}

void Appending(Script& t) {
  Put("f", "one ");
  const int fd = FD(open("f", O_RDWR | O_APPEND));
  DO(lseek(fd, 0, SEEK_CUR));
  DO(write(fd, "two ", 4));
  DO(lseek(fd, 0, SEEK_CUR));
  DO(lseek(fd, 0, SEEK_SET));
  DO(write(fd, "three ", 6));
  DO(pwrite(fd, "four", 4, 0));
  DO(lseek(fd, 0, SEEK_CUR));
  char all[64] = {};
  DO(pread(fd, all, sizeof all, 0));
  SAY(std::string(all));
  DO(close(dup(fd)));
  DO(ftruncate(fd, 2));
  DO(write(fd, "!", 1));
  t.State("after");
}

void AccessModes(Script& t) {
  Put("f", "content");
  char bytes[8];
  const int read_only = FD(open("f", O_RDONLY));
  DO(write(read_only, "x", 1));
  DO(pwrite(read_only, "x", 1, 0));
  DO(ftruncate(read_only, 0));
  DO(fallocate(read_only, 0, 0, 10));
  DO(read(read_only, bytes, 8));
  const int write_only = FD(open("g", O_WRONLY | O_CREAT, 0644));
  DO(read(write_only, bytes, 8));
  DO(pread(write_only, bytes, 8, 0));
  DO(write(write_only, "x", 1));
  const int neither = FD(open("f", O_ACCMODE));
  DO(read(neither, bytes, 8));
  DO(write(neither, bytes, 8));
  // The mode of a new file does not bind the handle that made it.
  const int locked = FD(open("locked", O_RDWR | O_CREAT | O_EXCL, 0));
  DO(write(locked, "x", 1));
  DO(pread(locked, bytes, 1, 0));
  t.State("after");
}

void PathOnly(Script& t) {
  Put("f", "content");
  DO(mkdir("d", 0755));
  const int file = FD(open("f", O_PATH));
  const int dir = FD(open("d", O_PATH | O_DIRECTORY));
  char byte;
  struct stat st {};
  DO(read(file, &byte, 1));
  DO(fstat(file, &st));
  SAY(st.st_size);
  DO(fchmod(file, 0600));
  DO(fchownat(file, "", 5, 6, AT_EMPTY_PATH));
  DO(ftruncate(file, 0));
  DO(fcntl(file, F_GETFL) & ~0100000);
  FD(openat(dir, "inside", O_CREAT | O_RDWR, 0644));
  const std::string through = "/proc/self/fd/" + std::to_string(file);
  const int opened = FD(open(through.c_str(), O_RDONLY));
  DO(read(opened, &byte, 1));
  DO(chmod(through.c_str(), 0611));
  t.State("after");
}

void NoAccessTimeOfAnothers(Script& t) {
  DO(open("f", O_RDONLY | O_NOATIME));
  FD(open("f", O_RDONLY));
}

void NoAccessTime(Script& t) {
  Put("f", "content");
  const int fd = FD(open("f", O_RDONLY | O_NOATIME));
  char byte;
  DO(read(fd, &byte, 1));
  DO(fcntl(fd, F_SETFL, 0));
  DO(fcntl(fd, F_SETFL, O_NOATIME));
  t.AsUser(kNobody, NoAccessTimeOfAnothers);
}

void Unnamed(Script& t) {
  const int fd = FD(open(".", O_TMPFILE | O_RDWR, 0640));
  DO(write(fd, "content", 7));
  struct stat st {};
  DO(fstat(fd, &st));
  SAY(st.st_nlink);
  SAY(st.st_size);
  SAY(st.st_mode & 07777);
  t.State("unnamed");
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  const int again = FD(open(self.c_str(), O_RDONLY));
  char bytes[16] = {};
  DO(read(again, bytes, sizeof bytes));
  SAY(std::string(bytes));
  FD(open(self.c_str(), O_RDWR));
  Put("taken", "T");
  DO(linkat(AT_FDCWD, self.c_str(), AT_FDCWD, "taken", AT_SYMLINK_FOLLOW));
  DO(linkat(AT_FDCWD, self.c_str(), AT_FDCWD, "absent/x", AT_SYMLINK_FOLLOW));
  DO(linkat(AT_FDCWD, self.c_str(), AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
  t.State("named");
  DO(write(fd, " and more", 9));
  DO(fstat(fd, &st));
  SAY(st.st_nlink);
  SAY(Get("named"));
  DO(rename("named", "renamed"));
  DO(unlink("renamed"));
  DO(fstat(fd, &st));
  SAY(st.st_nlink);
  t.State("unlinked");
}

void UnnamedByDescriptor(Script& t) {
  DO(mkdir("d", 0755));
  const int fd = FD(open("d", O_TMPFILE | O_WRONLY, 0600));
  DO(write(fd, "content", 7));
  DO(linkat(fd, "", AT_FDCWD, "d/named", AT_EMPTY_PATH));
  DO(close(dup(fd)));
  t.State("named");
  DO(rmdir("d"));
}

void UnnamedAndGone(Script& t) {
  DO(mkdir("d", 0755));
  {
    Script inner;
    (void)inner.Descriptor("open", open("d", O_TMPFILE | O_RDWR, 0600));
  }
  const int exclusive = FD(open("d", O_TMPFILE | O_RDWR | O_EXCL, 0600));
  const std::string self = "/proc/self/fd/" + std::to_string(exclusive);
  DO(linkat(AT_FDCWD, self.c_str(), AT_FDCWD, "never", AT_SYMLINK_FOLLOW));
  DO(open("d", O_TMPFILE | O_RDONLY, 0600));
  DO(open("absent", O_TMPFILE | O_RDWR, 0600));
  Put("f", "");
  DO(open("f", O_TMPFILE | O_RDWR, 0600));
  t.State("after");
  DO(rmdir("d"));
}

void StatusFlags(Script& t) {
  constexpr int kLarge = 0100000;  // O_LARGEFILE, which the kernel adds
  Put("f", "content");
  const int fd = FD(open("f", O_RDWR | O_NONBLOCK));
  DO(fcntl(fd, F_GETFL) & ~kLarge);
  DO(fcntl(fd, F_SETFL, O_APPEND));
  DO(fcntl(fd, F_GETFL) & ~kLarge);
  DO(write(fd, "!", 1));
  DO(fcntl(fd, F_SETFL, 0));
  DO(fcntl(fd, F_GETFL) & ~kLarge);
  DO(pwrite(fd, "C", 1, 0));
  const int synced = FD(open("f", O_RDWR | O_SYNC));
  DO(fcntl(synced, F_GETFL) & ~kLarge);
  DO(pwrite(synced, "O", 1, 1));
  const int data_synced = FD(open("f", O_RDWR | O_DSYNC));
  DO(fcntl(data_synced, F_GETFL) & ~kLarge);
  DO(fcntl(fd, F_GETFD));
  t.State("after");
}

// Aligned throughout: what misaligned direct I/O does is another matter.
void DirectIo(Script& t) {
  const auto out = Aligned(4 * kPage, 'd');
  const auto in = Aligned(4 * kPage, 0);
  const int fd = FD(open("f", O_RDWR | O_CREAT | O_DIRECT, 0644));
  DO(write(fd, out.get(), 4 * kPage));
  DO(pread(fd, in.get(), 4 * kPage, 0));
  SAY(memcmp(in.get(), out.get(), 4 * kPage));
  DO(pread(fd, in.get(), 4 * kPage, 3 * kPage));
  DO(pread(fd, in.get(), 4 * kPage, 4 * kPage));
  DO(fcntl(fd, F_SETFL, 0));
  DO(fcntl(fd, F_GETFL) & O_DIRECT);
  DO(pwrite(fd, "x", 1, 10));
  DO(fcntl(fd, F_SETFL, O_DIRECT));
  DO((fcntl(fd, F_GETFL) & O_DIRECT) != 0);
  memset(in.get(), 0, kPage);
  DO(pread(fd, in.get(), kPage, 0));
  SAY(std::string(in.get() + 9, 3));
  DO(pwrite(fd, out.get(), kPage, 0));
  DO(pwrite(fd, out.get(), kPage, 4 * kPage));
  DO(fcntl(fd, F_SETFL, O_APPEND | O_DIRECT));
  DO(write(fd, out.get(), kPage));
  t.State("after");
}

void ThroughProc(Script& t) {
  Put("f", "content");
  const int fd = FD(open("f", O_RDONLY));
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  const int again = FD(open(self.c_str(), O_RDONLY));
  char bytes[16] = {};
  DO(read(again, bytes, sizeof bytes));
  SAY(std::string(bytes));
  DO(rename("f", "g"));
  FD(open(self.c_str(), O_RDONLY));
  char target[4096] = {};
  DO(readlink(self.c_str(), target, sizeof target) > 0);
  SAY(std::string(strrchr(target, '/')));
  DO(unlink("g"));
  const int gone = FD(open(self.c_str(), O_RDONLY));
  DO(read(gone, bytes, sizeof bytes));
  memset(target, 0, sizeof target);
  DO(readlink(self.c_str(), target, sizeof target) > 0);
  SAY(std::string(strrchr(target, '/')));
}

}  // namespace

void AddOpenCases(Cases& cases) {
  cases.insert(cases.end(), {{"open.create", Creating},
                             {"open.directory", Directories},
                             {"open.symlink", Symlinks},
                             {"open.truncate", Truncating},
                             {"open.twice", Twice},
                             {"open.twice_in_turn", TwiceInTurn},
                             {"open.append", Appending},
                             {"open.access_modes", AccessModes},
                             {"open.path", PathOnly},
                             {"open.noatime", NoAccessTime},
                             {"open.tmpfile", Unnamed},
                             {"open.tmpfile_by_descriptor", UnnamedByDescriptor},
                             {"open.tmpfile_dropped", UnnamedAndGone},
                             {"open.status_flags", StatusFlags},
                             {"open.direct", DirectIo},
                             {"open.through_proc", ThroughProc}});
}

}  // namespace prefixfs::posix
