// Data: reads and writes of every kind, fallocate, holes, copies inside the kernel, sync.
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <vector>

#include "tests/posix/script.h"

namespace prefixfs::posix {
namespace {

constexpr off_t kBlock = 65'536;

std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>('a' + i * 7 % 26);
  return bytes;
}

std::string Content(int fd) {
  std::string all(8 << 20, '\0');
  const ssize_t got = pread(fd, all.data(), all.size(), 0);
  return got < 0 ? Errno() : Digest({all.data(), static_cast<size_t>(got)});
}

long SizeOf(int fd) {
  struct stat st {};
  return fstat(fd, &st) == 0 ? st.st_size : -1;
}

void ReadAndWrite(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  char bytes[32] = {};
  DO(read(fd, bytes, 10));
  DO(write(fd, "0123456789", 10));
  DO(write(fd, "", 0));
  DO(read(fd, bytes, 10));
  DO(pread(fd, bytes, 20, 5));
  DO(pread(fd, bytes, 20, 10));
  DO(pread(fd, bytes, 20, 1 << 30));
  DO(pread(fd, bytes, 20, -1));
  DO(pwrite(fd, "x", 1, -1));
  DO(pread(fd, bytes, 0, 0));
  DO(lseek(fd, 3, SEEK_SET));
  DO(read(fd, bytes, 4));
  DO(lseek(fd, 0, SEEK_CUR));
  DO(lseek(fd, -2, SEEK_END));
  DO(lseek(fd, -100, SEEK_END));
  DO(lseek(fd, -1, SEEK_SET));
  DO(lseek(fd, 0, 99));
  DO(lseek(fd, LLONG_MAX, SEEK_SET));
  DO(write(fd, "x", 1));
  DO(lseek(fd, 100, SEEK_SET));
  DO(write(fd, "end", 3));
  SAY(Content(fd));
  DO(read(fd, Nowhere(), 10));
  DO(write(fd, Nowhere(), 10));
  DO(read(99, bytes, 1));
}

void Vectors(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  char a[8] = "aaaa", b[8] = "bbbb";
  const iovec out[3] = {{a, 4}, {b, 0}, {b, 4}};
  DO(writev(fd, out, 3));
  DO(pwritev(fd, out, 3, 100));
  DO(pwritev2(fd, out, 3, 200, RWF_SYNC));
  DO(pwritev2(fd, out, 3, 0, RWF_APPEND));
  DO(pwritev2(fd, out, 3, 300, RWF_DSYNC));
  DO(pwritev2(fd, out, 3, -1, 0));
  DO(pwritev2(fd, out, 3, 0, 1 << 30));
  SAY(SizeOf(fd));
  char c[4] = {}, d[16] = {};
  const iovec in[2] = {{c, 4}, {d, 16}};
  DO(preadv(fd, in, 2, 0));
  DO(preadv2(fd, in, 2, 100, 0));
  DO(preadv2(fd, in, 2, 100, RWF_HIPRI) >= 0);
  DO(preadv2(fd, in, 2, 100, 1 << 30));
  DO(lseek(fd, 0, SEEK_SET));
  DO(readv(fd, in, 2));
  DO(preadv2(fd, in, 2, -1, 0));
  const std::vector<iovec> too_many(IOV_MAX + 1, {c, 0});
  DO(readv(fd, too_many.data(), IOV_MAX + 1));
  SAY(Content(fd));
}

// Whole in one call, at odd sizes and offsets.
void LargeTransfers(Script& t) {
  const std::string bytes = Bytes(3'098'113);
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  DO(pwrite(fd, bytes.data(), bytes.size(), 4097));
  std::string back(bytes.size() + 5000, '\0');
  DO(pread(fd, back.data(), back.size(), 4097));
  SAY(back.compare(0, bytes.size(), bytes));
  DO(pread(fd, back.data(), 1'124'352, 777));
  SAY(Digest({back.data(), 1'124'352}));
  DO(pwrite(fd, bytes.data(), 70'273, 1'000'001));
  SAY(Content(fd));
}

void Allocate(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  const std::string bytes = Bytes(4 * kBlock);
  DO(write(fd, bytes.data(), bytes.size()));
  DO(fallocate(fd, 0, 0, 6 * kBlock));
  SAY(SizeOf(fd));
  DO(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 8 * kBlock));
  SAY(SizeOf(fd));
  const int sparse = FD(open("sparse", O_RDWR | O_CREAT, 0644));
  DO(fallocate(sparse, 0, 1ll << 40, 1));
  SAY(SizeOf(sparse));
  DO(fallocate(sparse, FALLOC_FL_KEEP_SIZE, 1ll << 41, 5000));
  DO(fallocate(sparse, 0, 1ll << 60, 1));
  DO(unlink("sparse"));
  DO(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kBlock, kBlock));
  SAY(Content(fd));
  DO(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, kBlock));
  DO(fallocate(fd, FALLOC_FL_ZERO_RANGE, 100, 200));
  SAY(Content(fd));
  DO(fallocate(fd, FALLOC_FL_ZERO_RANGE, 5 * kBlock, 4 * kBlock));
  SAY(SizeOf(fd));
  DO(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 8 * kBlock, 4 * kBlock));
  SAY(SizeOf(fd));
  DO(fallocate(fd, 0, 0, 0));
  DO(fallocate(fd, 0, -1, 10));
  DO(fallocate(fd, 0, 0, -10));
  DO(fallocate(fd, 0, LLONG_MAX - 10, 20));
  DO(fallocate(fd, 1 << 20, 0, 10));
  DO(posix_fallocate(fd, 0, 10));
  DO(posix_fallocate(fd, 12 * kBlock, 10));
  SAY(SizeOf(fd));
  const int read_only = FD(open("f", O_RDONLY));
  DO(fallocate(read_only, 0, 0, 10));
  DO(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
  DO(posix_fadvise(fd, 0, 0, 99));
  SAY(Content(fd));
}

void Reshape(Script& t) {
  Put("f", Bytes(4 * kBlock));
  const int fd = FD(open("f", O_RDWR));
  DO(fallocate(fd, FALLOC_FL_UNSHARE_RANGE, 0, kBlock));
  DO(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, kBlock));
  DO(fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, kBlock));
}

void Holes(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  const std::string bytes = Bytes(kBlock);
  DO(pwrite(fd, bytes.data(), bytes.size(), 4 * kBlock));
  DO(ftruncate(fd, 8 * kBlock));
  DO(fsync(fd));
  DO(lseek(fd, 0, SEEK_DATA));
  DO(lseek(fd, 0, SEEK_HOLE));
  DO(lseek(fd, 4 * kBlock + 10, SEEK_DATA));
  DO(lseek(fd, 4 * kBlock, SEEK_HOLE));
  DO(lseek(fd, 6 * kBlock, SEEK_DATA));
  DO(lseek(fd, 6 * kBlock, SEEK_HOLE));
  DO(lseek(fd, 8 * kBlock, SEEK_HOLE));
  DO(lseek(fd, 9 * kBlock, SEEK_DATA));
  DO(lseek(fd, -1, SEEK_DATA));
  DO(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * kBlock, kBlock));
  DO(lseek(fd, 0, SEEK_DATA));
  DO(close(dup(fd)));
}

void Copies(Script& t) {
  const std::string bytes = Bytes(300'000);
  Put("from", bytes);
  const int from = FD(open("from", O_RDONLY));
  const int to = FD(open("to", O_RDWR | O_CREAT, 0644));
  off64_t in = 1000, out = 5;
  long copied = 0;
  for (long got = 1; got > 0 && copied < 200'000; copied += got)
    got = copy_file_range(from, &in, to, &out, static_cast<size_t>(200'000 - copied), 0);
  SAY(copied);
  SAY(static_cast<long>(in));
  SAY(static_cast<long>(out));
  SAY(Content(to));
  in = 300'000;
  DO(copy_file_range(from, &in, to, &out, 10, 0));
  DO(copy_file_range(to, nullptr, from, nullptr, 10, 0));
  DO(copy_file_range(from, nullptr, to, nullptr, 10, 1));
  in = 0;
  out = 100;
  DO(copy_file_range(to, &in, to, &out, 200, 0));
  off_t at = 100;
  const int sent = FD(open("sent", O_RDWR | O_CREAT, 0644));
  copied = 0;
  for (long got = 1; got > 0 && copied < 150'000; copied += got)
    got = sendfile(sent, from, &at, static_cast<size_t>(150'000 - copied));
  SAY(copied);
  SAY(static_cast<long>(at));
  SAY(Content(sent));
}

void Splices(Script& t) {
  const std::string bytes = Bytes(30'000);
  Put("from", bytes);
  const int from = FD(open("from", O_RDONLY));
  const int to = FD(open("to", O_RDWR | O_CREAT, 0644));
  int pipe_ends[2];
  DO(pipe(pipe_ends));
  off64_t in = 10;
  long moved = 0;
  while (moved < 20'000) {
    const long got = splice(from, &in, pipe_ends[1], nullptr, 4096, 0);
    if (got <= 0) break;
    for (long put = 0; put < got;) {
      const long now =
          splice(pipe_ends[0], nullptr, to, nullptr, static_cast<size_t>(got - put), 0);
      if (now <= 0) break;
      put += now;
    }
    moved += got;
  }
  SAY(moved);
  SAY(Content(to));
  DO(close(pipe_ends[0]) | close(pipe_ends[1]));
  pollfd ready{};
  ready.fd = to;
  ready.events = POLLIN | POLLOUT;
  DO(poll(&ready, 1, 0));
  SAY(ready.revents);
}

void Syncing(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  DO(write(fd, "content", 7));
  DO(fsync(fd));
  DO(fdatasync(fd));
  DO(sync_file_range(fd, 0, 7, SYNC_FILE_RANGE_WRITE));
  DO(syncfs(fd));
  const int read_only = FD(open("f", O_RDONLY));
  DO(fsync(read_only));
  const int directory = FD(open(".", O_RDONLY | O_DIRECTORY));
  DO(fsync(directory));
  DO(fdatasync(directory));
  DO(syncfs(directory));
  int pipe_ends[2];
  DO(pipe(pipe_ends));
  DO(fsync(pipe_ends[1]));
  DO(close(pipe_ends[0]) | close(pipe_ends[1]));
}

// A block that is there is opened and changed in all the ways there are.
void ChangingWhatIsThere(Script& t) {
  Put("f", "0123456789");
  int fd = FD(open("f", O_RDWR));
  DO(pwrite(fd, "ab", 2, 2));
  DO(close(dup(fd)));
  SAY(Get("f"));
  fd = FD(open("f", O_WRONLY));
  DO(write(fd, "X", 1));
  SAY(Get("f"));
  fd = FD(open("f", O_WRONLY | O_APPEND));
  DO(write(fd, "!", 1));
  SAY(Get("f"));
  fd = FD(open("f", O_RDWR));
  char bytes[16] = {};
  DO(read(fd, bytes, sizeof bytes));
  SAY(std::string(bytes));
  t.State("after");
}

}  // namespace

void AddDataCases(Cases& cases) {
  cases.insert(cases.end(), {{"data.read_and_write", ReadAndWrite},
                             {"data.vectors", Vectors},
                             {"data.large", LargeTransfers},
                             {"data.fallocate", Allocate},
                             {"data.reshape", Reshape},
                             {"data.holes", Holes},
                             {"data.copies", Copies},
                             {"data.splices", Splices},
                             {"data.sync", Syncing},
                             {"data.changes", ChangingWhatIsThere}});
}

}  // namespace prefixfs::posix
