#include "tests/bench/measures.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "cache/base/fd.h"

namespace prefixfs::bench {
namespace {

constexpr uint64_t kPiece = 4ull << 20;
constexpr uint64_t kFileBytes = 1ull << 20;
constexpr uint64_t kNameBytes = 4096;
// Sizes that are no multiple of a sector: a layer of one odd token, 16 tokens of DeepSeek-V3's MLA.
constexpr uint64_t kOddSmall = 70'273;
constexpr int kOddSmallFiles = 16;
constexpr uint64_t kOddLarge = 1'124'352;
constexpr double kGiB = 1024.0 * 1024 * 1024;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "bench_io: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct FreeDeleter {
  void operator()(char* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<char, FreeDeleter>;

// Aligned for O_DIRECT and filled, so that no page is touched for the first time while the clock
// runs.
Buffer MakeBuffer(uint64_t bytes) {
  Buffer buffer(static_cast<char*>(std::aligned_alloc(4096, bytes)));
  if (!buffer) Die("memory");
  for (uint64_t i = 0; i < bytes; ++i) buffer.get()[i] = static_cast<char>(i * 131 + (i >> 12));
  return buffer;
}

std::string BigFile(const Options& o) { return o.dir + "/big.bin"; }
std::string BlockFile(const Options& o, int i) {
  return o.dir + "/block" + std::to_string(i) + ".bin";
}
std::string NameFile(const Options& o, int i) {
  return o.dir + "/name" + std::to_string(i) + ".bin";
}

Fd Open(const std::string& path, int flags) {
  Fd fd(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (!fd.valid()) Die("open " + path);
  return fd;
}

void Write(int fd, const char* data, uint64_t bytes, const std::string& path) {
  errno = EIO;  // what a short write is reported as
  if (::write(fd, data, bytes) != static_cast<ssize_t>(bytes)) Die("write " + path);
}

// As the engines do: a temporary, one write, close, rename.
void WriteBlock(const std::string& path, const char* data, uint64_t bytes, int flags = 0) {
  const std::string temp = path + ".tmp";
  Fd fd = Open(temp, O_CREAT | O_EXCL | O_WRONLY | O_TRUNC | flags);
  Write(fd.get(), data, bytes, temp);
  fd.Reset();
  if (::rename(temp.c_str(), path.c_str()) != 0) Die("rename " + temp);
}

bool Whole(const std::string& path, uint64_t bytes) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && static_cast<uint64_t>(st.st_size) == bytes;
}

void WriteBig(const Options& o, const char* piece) {
  const std::string temp = BigFile(o) + ".tmp";
  Fd fd = Open(temp, O_CREAT | O_WRONLY | O_TRUNC);
  for (uint64_t at = 0; at < o.big_bytes; at += kPiece) Write(fd.get(), piece, kPiece, temp);
  fd.Reset();
  if (::rename(temp.c_str(), BigFile(o).c_str()) != 0) Die("rename " + temp);
}

// The median of what `operation(i)` takes, in microseconds.
template <typename Operation>
double MedianUs(int samples, Operation operation) {
  std::vector<double> times(static_cast<size_t>(samples));
  for (int i = 0; i < samples; ++i) {
    const double start = Now();
    operation(i);
    times[static_cast<size_t>(i)] = (Now() - start) * 1e6;
  }
  const auto middle = times.begin() + samples / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void PassOver(const Options& o, int fd, char* buffer) {
  for (uint64_t at = 0; at < o.big_bytes; at += kPiece) {
    errno = EIO;
    if (::pread(fd, buffer, kPiece, static_cast<off_t>(at)) != ssize_t{kPiece})
      Die("read " + BigFile(o));
  }
}

// Each thread reads the whole file through a handle of its own, and has a processor of its own.
double ReadPieces(const Options& o, int flags, unsigned threads) {
  const unsigned processors = std::thread::hardware_concurrency();
  const auto first = static_cast<unsigned>(::sched_getcpu());
  std::barrier start(threads + 1), end(threads + 1);
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < threads; ++i) {
    readers.emplace_back([&, i] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET((first + i) % processors, &set);
      if (::sched_setaffinity(0, sizeof set, &set) != 0) Die("sched_setaffinity");
      Buffer buffer = MakeBuffer(kPiece);
      Fd fd = Open(BigFile(o), O_RDONLY | flags);
      // The first fills the page cache; for O_DIRECT it only warms the code.
      PassOver(o, fd.get(), buffer.get());
      start.arrive_and_wait();
      for (int pass = 0; pass < o.passes; ++pass) PassOver(o, fd.get(), buffer.get());
      end.arrive_and_wait();
    });
  }
  start.arrive_and_wait();
  const double began = Now();
  end.arrive_and_wait();
  const double seconds = Now() - began;
  for (std::thread& reader : readers) reader.join();
  return static_cast<double>(o.big_bytes) * o.passes * threads / kGiB / seconds;
}

double ReadHot(const Options& o) { return ReadPieces(o, 0, 1); }
double ReadHotTwo(const Options& o) { return ReadPieces(o, 0, 2); }
double ReadDirect(const Options& o) { return ReadPieces(o, O_DIRECT, 1); }
double ReadDirectTwo(const Options& o) { return ReadPieces(o, O_DIRECT, 2); }

// Twice, and the second counts: a virtual machine gives idle memory back to its host, and the first
// to write would pay for finding it again.
double WriteBlocks(const Options& o, uint64_t bytes, int flags = 0) {
  Buffer buffer = MakeBuffer(bytes);
  const int count = static_cast<int>(std::max<uint64_t>(1, o.write_bytes / bytes));
  double seconds = 0;
  for (const char* prefix : {"/warm", "/write"}) {
    std::vector<std::string> paths;
    for (int i = 0; i < count; ++i) paths.push_back(o.dir + prefix + std::to_string(i) + ".bin");
    const double start = Now();
    for (const auto& path : paths) WriteBlock(path, buffer.get(), bytes, flags);
    seconds = Now() - start;
    for (const auto& path : paths) {
      if (::unlink(path.c_str()) != 0) Die("unlink " + path);
    }
  }
  return static_cast<double>(bytes) * count / kGiB / seconds;
}

double Write2(const Options& o) { return WriteBlocks(o, 2ull << 20); }
double Write8(const Options& o) { return WriteBlocks(o, 8ull << 20); }

double Write2Direct(const Options& o) { return WriteBlocks(o, 2ull << 20, O_DIRECT); }
double Write8Direct(const Options& o) { return WriteBlocks(o, 8ull << 20, O_DIRECT); }

double OpenClose(const Options& o) {
  std::vector<std::string> paths;
  for (int i = 0; i < o.files; ++i) paths.push_back(BlockFile(o, i));
  for (const auto& path : paths) Open(path, O_RDONLY);
  return MedianUs(o.samples,
                  [&](int i) { Open(paths[static_cast<size_t>(i % o.files)], O_RDONLY); });
}

double FirstStat(const Options& o) {
  std::vector<std::string> paths;
  for (int i = 0; i < o.names; ++i) paths.push_back(NameFile(o, i));
  return MedianUs(o.names, [&](int i) {
    struct stat st;
    if (::stat(paths[static_cast<size_t>(i)].c_str(), &st) != 0) Die("stat");
  });
}

// What vLLM asks of each block before it reads or writes it; names that the kernel does not know.
double AccessNew(const Options& o) {
  std::vector<std::string> paths;
  for (int i = 0; i < o.names; ++i) paths.push_back(NameFile(o, i));
  return MedianUs(o.names, [&](int i) {
    if (::access(paths[static_cast<size_t>(i)].c_str(), F_OK) != 0) Die("access");
  });
}

double AccessAbsent(const Options& o) {
  std::vector<std::string> paths;
  for (int i = 0; i < o.names; ++i) paths.push_back(o.dir + "/absent" + std::to_string(i) + ".bin");
  return MedianUs(o.names, [&](int i) {
    if (::access(paths[static_cast<size_t>(i)].c_str(), F_OK) == 0) Die("an absent name is there");
  });
}

double ReadFile(const Options& o) {
  Buffer buffer = MakeBuffer(kFileBytes);
  std::vector<std::string> paths;
  for (int i = 0; i < o.files; ++i) paths.push_back(BlockFile(o, i));
  const auto read_one = [&](int i) {
    Fd fd = Open(paths[static_cast<size_t>(i % o.files)], O_RDONLY);
    struct stat st;
    if (::fstat(fd.get(), &st) != 0) Die("fstat");
    errno = EIO;
    if (::pread(fd.get(), buffer.get(), static_cast<size_t>(st.st_size), 0) != st.st_size)
      Die("read");
  };
  for (int i = 0; i < o.files; ++i) read_one(i);
  return MedianUs(o.samples, read_one);
}

std::string OddFile(const Options& o, uint64_t bytes, int i) {
  return o.dir + "/odd" + std::to_string(bytes) + "-" + std::to_string(i) + ".bin";
}

// O_DIRECT if the directory takes it for a length that is no multiple of a sector, else 0.
int OddDirect(const Options& o) {
  Buffer buffer = MakeBuffer(8192);
  const std::string path = OddFile(o, 0, 0);
  Fd fd(::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_DIRECT | O_CLOEXEC, 0644));
  const bool taken = fd.valid() && ::write(fd.get(), buffer.get(), 5001) == 5001;
  fd.Reset();
  ::unlink(path.c_str());
  return taken ? O_DIRECT : 0;
}

// Whole files, one pread each, through handles that stay open: what open costs has a row of its
// own.
double ReadOdd(const Options& o, uint64_t bytes, int files) {
  const int direct = OddDirect(o);
  Buffer buffer = MakeBuffer((bytes + 4095) / 4096 * 4096);
  const int rounds = std::max(1, o.samples / files);
  std::vector<Fd> open;
  for (int i = 0; i < files; ++i) open.push_back(Open(OddFile(o, bytes, i), O_RDONLY | direct));
  double start = 0;
  for (int round = -1; round < rounds; ++round) {
    if (round == 0) start = Now();
    for (const Fd& fd : open) {
      errno = EIO;
      if (::pread(fd.get(), buffer.get(), bytes, 0) != static_cast<ssize_t>(bytes))
        Die("read " + OddFile(o, bytes, 0));
    }
  }
  return static_cast<double>(bytes) * files * rounds / kGiB / (Now() - start);
}

double WriteOdd(const Options& o, uint64_t bytes, int files) {
  const int direct = OddDirect(o);
  Buffer buffer = MakeBuffer((bytes + 4095) / 4096 * 4096);
  const int rounds = std::max(1, std::min(o.samples, 400) / files);
  double seconds = 0;
  for (int round = -1; round < rounds; ++round) {
    const double start = Now();
    for (int i = 0; i < files; ++i)
      WriteBlock(o.dir + "/oddwrite" + std::to_string(i) + ".bin", buffer.get(), bytes, direct);
    if (round >= 0) seconds += Now() - start;
    for (int i = 0; i < files; ++i)
      ::unlink((o.dir + "/oddwrite" + std::to_string(i) + ".bin").c_str());
  }
  return static_cast<double>(bytes) * files * rounds / kGiB / seconds;
}

double ReadOddSmall(const Options& o) { return ReadOdd(o, kOddSmall, kOddSmallFiles); }
double ReadOddLarge(const Options& o) { return ReadOdd(o, kOddLarge, 1); }
double WriteOddSmall(const Options& o) { return WriteOdd(o, kOddSmall, kOddSmallFiles); }
double WriteOddLarge(const Options& o) { return WriteOdd(o, kOddLarge, 1); }

void PrepareOdd(const Options& o, const char* data, uint64_t bytes, int files, int direct) {
  for (int i = 0; i < files; ++i) {
    if (!Whole(OddFile(o, bytes, i), bytes)) WriteBlock(OddFile(o, bytes, i), data, bytes, direct);
  }
}

}  // namespace

void Prepare(const Options& o) {
  Buffer piece = MakeBuffer(kPiece);
  if (!Whole(BigFile(o), o.big_bytes)) WriteBig(o, piece.get());
  for (int i = 0; i < o.files; ++i) {
    if (!Whole(BlockFile(o, i), kFileBytes)) WriteBlock(BlockFile(o, i), piece.get(), kFileBytes);
  }
  for (int i = 0; i < o.names; ++i) {
    if (!Whole(NameFile(o, i), kNameBytes)) WriteBlock(NameFile(o, i), piece.get(), kNameBytes);
  }
  const int direct = OddDirect(o);
  PrepareOdd(o, piece.get(), kOddSmall, kOddSmallFiles, direct);
  PrepareOdd(o, piece.get(), kOddLarge, 1, direct);
}

void Clean(const Options& o) {
  ::unlink(BigFile(o).c_str());
  for (int i = 0; i < o.files; ++i) ::unlink(BlockFile(o, i).c_str());
  for (int i = 0; i < o.names; ++i) ::unlink(NameFile(o, i).c_str());
  for (int i = 0; i < kOddSmallFiles; ++i) ::unlink(OddFile(o, kOddSmall, i).c_str());
  ::unlink(OddFile(o, kOddLarge, 0).c_str());
}

const std::vector<Measure>& Measures() {
  static const std::vector<Measure> measures = {
      {"read_hot", "read 4 MiB pieces, page cache hot", "GiB/s", false, ReadHot},
      {"read_hot_2", "read 4 MiB pieces, page cache hot, 2 threads", "GiB/s", false, ReadHotTwo},
      {"read_direct", "read 4 MiB pieces, O_DIRECT", "GiB/s", false, ReadDirect},
      {"read_direct_2", "read 4 MiB pieces, O_DIRECT, 2 threads", "GiB/s", false, ReadDirectTwo},
      {"write_2m", "write + rename, 2 MiB blocks", "GiB/s", false, Write2},
      {"write_8m", "write + rename, 8 MiB blocks", "GiB/s", false, Write8},
      {"write_2m_direct", "write + rename, 2 MiB blocks, O_DIRECT", "GiB/s", false, Write2Direct},
      {"write_8m_direct", "write + rename, 8 MiB blocks, O_DIRECT", "GiB/s", false, Write8Direct},
      {"open_close", "open + close of a block, p50", "us", false, OpenClose},
      {"first_stat", "first stat of a name, p50", "us", true, FirstStat},
      {"access_new", "access() of a new name, p50", "us", true, AccessNew},
      {"access_absent", "access() of an absent name, p50", "us", true, AccessAbsent},
      {"read_1m", "whole 1 MiB file (open fstat pread close), p50", "us", false, ReadFile},
      {"odd_small", "read 16 files of 70,273 B, O_DIRECT where taken", "GiB/s", false,
       ReadOddSmall},
      {"odd_large", "read 1,124,352 B, O_DIRECT where taken", "GiB/s", false, ReadOddLarge},
      {"write_odd_small", "write + rename 16 files of 70,273 B, the same", "GiB/s", false,
       WriteOddSmall},
      {"write_odd_large", "write + rename 1,124,352 B, the same", "GiB/s", false, WriteOddLarge},
  };
  return measures;
}

}  // namespace prefixfs::bench
