// scale_io: fills a directory with many small blocks, and takes single measurements on it, printed
// as a number. tests/bench/scale.py runs it at several sizes and makes the table.
//
// A block's name follows from its number, so no list of names is kept anywhere.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/fd.h"

namespace prefixfs::bench {
namespace {

constexpr size_t kBlockBytes = 4096;
constexpr size_t kPageBytes = 32 << 10;  // what readdir of the C library asks for at once
constexpr uint64_t kExtra = uint64_t{1}
                            << 40;  // numbers of the blocks that the write measure makes
constexpr std::string_view kModel = "/m_0a1b2c3d4e5f_r0";

struct Options {
  std::string dir;
  std::string layout = "flat";
  uint64_t count = 1000;  // blocks that are there: numbers 0 to count - 1
  uint64_t samples = 1000;
  uint64_t seed = 1;  // picks the samples
  uint64_t from = 0;  // fill: the first number to make
  int writers = 4;    // fill: processes
};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "scale_io: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

double NowUs() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::string Hash(uint64_t number) {
  char text[65];
  for (int i = 0; i < 4; ++i) {
    const auto word = static_cast<unsigned long long>(Mix(number * 4 + static_cast<uint64_t>(i)));
    std::snprintf(text + 16 * i, 17, "%016llx", word);
  }
  return text;
}

// As vLLM lays them out: a million blocks in the tree are in some 600,000 directories.
std::string Path(const Options& o, uint64_t number) {
  const std::string hash = Hash(number);
  if (o.layout == "flat") return o.dir + "/" + hash + ".bin";
  return o.dir + std::string(kModel) + "/" + hash.substr(0, 3) + "/" + hash.substr(3, 2) + "_g0/" +
         hash + ".bin";
}

void MakeParents(const std::string& root, const std::string& path) {
  for (size_t at = path.find('/', root.size() + 1); at != std::string::npos;
       at = path.find('/', at + 1)) {
    const std::string parent = path.substr(0, at);
    if (::mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) Die("mkdir " + parent);
  }
}

void WriteBlock(const Options& o, const std::string& path, const std::string& data) {
  const std::string temp = path + ".tmp";
  constexpr int kFlags = O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC;
  int fd = ::open(temp.c_str(), kFlags, 0644);
  if (fd < 0 && errno == ENOENT) {
    MakeParents(o.dir, path);
    fd = ::open(temp.c_str(), kFlags, 0644);
  }
  if (fd < 0) Die("create " + temp);
  if (::write(fd, data.data(), data.size()) != static_cast<ssize_t>(data.size()))
    Die("write " + temp);
  if (::close(fd) != 0) Die("close " + temp);
  if (::rename(temp.c_str(), path.c_str()) != 0) Die("rename " + temp);
}

void FillPart(const Options& o, uint64_t part) {
  const std::string data(kBlockBytes, 'k');
  const auto step = static_cast<uint64_t>(o.writers);
  for (uint64_t n = o.from + part; n < o.count; n += step) WriteBlock(o, Path(o, n), data);
}

int Fill(const Options& o) {
  for (int part = 0; part < o.writers; ++part) {
    const pid_t child = ::fork();
    if (child < 0) Die("fork");
    if (child != 0) continue;
    FillPart(o, static_cast<uint64_t>(part));
    ::_exit(0);
  }
  bool good = true;
  for (int part = 0; part < o.writers; ++part) {
    int status = 0;
    good &= ::wait(&status) > 0 && status == 0;
  }
  return good ? 0 : 1;
}

// Numbers of blocks that are there, without order and each once while there are enough.
std::vector<uint64_t> Sample(const Options& o) {
  std::vector<uint64_t> numbers;
  const uint64_t samples = std::min(o.samples, o.count);
  const uint64_t step = o.count / samples;
  for (uint64_t i = 0; i < samples; ++i) numbers.push_back(i * step + Mix(o.seed + i) % step);
  for (uint64_t i = samples; i > 1; --i)
    std::swap(numbers[i - 1], numbers[Mix(o.seed * 31 + i) % i]);
  return numbers;
}

std::vector<std::string> SamplePaths(const Options& o) {
  std::vector<std::string> paths;
  for (const uint64_t number : Sample(o)) paths.push_back(Path(o, number));
  return paths;
}

// The median of what `operation(path)` takes, in microseconds.
template <typename Operation>
double MedianUs(const std::vector<std::string>& paths, Operation operation) {
  std::vector<double> times;
  for (const std::string& path : paths) {
    const double start = NowUs();
    operation(path);
    times.push_back(NowUs() - start);
  }
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void OpenAndClose(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) Die("open " + path);
}

double AccessPresent(const Options& o) {
  return MedianUs(SamplePaths(o), [](const std::string& path) {
    if (::access(path.c_str(), F_OK) != 0) Die("access " + path);
  });
}

// In directories that are there.
double AccessAbsent(const Options& o) {
  std::vector<std::string> paths = SamplePaths(o);
  const std::string suffix = ".absent" + std::to_string(::getpid());
  for (std::string& path : paths) path += suffix;
  return MedianUs(paths, [](const std::string& path) {
    if (::access(path.c_str(), F_OK) == 0) Die(path + " is there");
  });
}

double Stat(const Options& o) {
  return MedianUs(SamplePaths(o), [](const std::string& path) {
    struct stat st;
    if (::stat(path.c_str(), &st) != 0 || st.st_size != kBlockBytes) Die("stat " + path);
  });
}

// Names that the kernel knows, blocks that it has not opened yet.
double OpenClose(const Options& o) {
  const std::vector<std::string> paths = SamplePaths(o);
  for (const std::string& path : paths) {
    if (::access(path.c_str(), F_OK) != 0) Die("access " + path);
  }
  return MedianUs(paths, OpenAndClose);
}

double OpenCloseAgain(const Options& o) {
  const std::vector<std::string> paths = SamplePaths(o);
  for (const std::string& path : paths) OpenAndClose(path);
  return MedianUs(paths, OpenAndClose);
}

// In directories that are there: a new block beside each block of the sample.
std::vector<std::string> ExtraPaths(const Options& o) {
  std::vector<std::string> paths = SamplePaths(o);
  for (size_t i = 0; i < paths.size(); ++i) {
    const size_t slash = paths[i].rfind('/');
    paths[i] = paths[i].substr(0, slash + 1) + Hash(kExtra + i) + ".bin";
  }
  return paths;
}

double Write(const Options& o) {
  const std::string data(kBlockBytes, 'w');
  return MedianUs(ExtraPaths(o), [&](const std::string& path) { WriteBlock(o, path, data); });
}

// Of what Write has made.
double Unlink(const Options& o) {
  return MedianUs(ExtraPaths(o), [](const std::string& path) {
    if (::unlink(path.c_str()) != 0) Die("unlink " + path);
  });
}

struct Listing {
  uint64_t names = 0;
  std::vector<off_t> pages;  // where each page but the first begins
  std::vector<std::string> directories;
};

// linux_dirent64 as the kernel gives it: number, offset, length, type, name.
bool ReadPage(int fd, Listing* listing) {
  static char page[kPageBytes];
  const long got = ::syscall(SYS_getdents64, fd, page, sizeof page);
  if (got < 0) Die("getdents64");
  off_t next = 0;
  for (long at = 0; at < got;) {
    uint16_t length;
    std::memcpy(&next, page + at + 8, sizeof next);
    std::memcpy(&length, page + at + 16, sizeof length);
    const char type = page[at + 18];
    const std::string_view name(page + at + 19);
    at += length;
    if (name == "." || name == "..") continue;
    if (type == DT_DIR) {
      listing->directories.emplace_back(name);
    } else {
      ++listing->names;
    }
  }
  if (got > 0) listing->pages.push_back(next);
  return got > 0;
}

Listing ListDirectory(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) Die("open " + path);
  Listing listing;
  while (ReadPage(fd.get(), &listing)) {
  }
  return listing;
}

uint64_t Walk(const std::string& path) {
  const Listing listing = ListDirectory(path);
  uint64_t names = listing.names;
  for (const std::string& directory : listing.directories) names += Walk(path + "/" + directory);
  return names;
}

double List(const Options& o) {
  const double start = NowUs();
  const uint64_t names = Walk(o.layout == "flat" ? o.dir : o.dir + std::string(kModel));
  const double took = NowUs() - start;
  if (names != o.count) {
    std::fprintf(stderr, "scale_io: %llu names instead of %llu\n",
                 static_cast<unsigned long long>(names), static_cast<unsigned long long>(o.count));
    std::exit(1);
  }
  return took / static_cast<double>(names);
}

double Page(const Options& o) {
  const std::string path = o.layout == "flat" ? o.dir : o.dir + std::string(kModel);
  const Listing listing = ListDirectory(path);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) Die("open " + path);
  std::vector<double> times;
  for (uint64_t i = 0; i < 200; ++i) {
    // Not the last, which is where the end is found.
    const size_t pages = std::max<size_t>(1, listing.pages.size() - 1);
    const off_t at = listing.pages.size() < 2 ? 0 : listing.pages[Mix(o.seed + i) % pages];
    Listing ignored;
    const double start = NowUs();
    if (::lseek(fd.get(), at, SEEK_SET) != at) Die("lseek " + path);
    ReadPage(fd.get(), &ignored);
    times.push_back(NowUs() - start);
  }
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

struct Measure {
  const char* name;
  const char* title;
  bool cold;  // the driver drops the kernel's names and inodes before
  double (*run)(const Options&);
};

constexpr Measure kMeasures[] = {
    {"access_present", "access of a present name, unknown to the kernel", true, AccessPresent},
    {"access_absent", "access of an absent name", true, AccessAbsent},
    {"stat", "stat of a name unknown to the kernel", true, Stat},
    {"open_first", "first open + close of a block", true, OpenClose},
    {"open_again", "open + close of a block opened before", false, OpenCloseAgain},
    {"write", "create + write + close + rename", false, Write},
    {"unlink", "unlink", false, Unlink},
    {"page", "one page of a listing (32 KiB)", false, Page},
    {"list", "whole listing, for each name", false, List},
};

int PrintMeasures() {
  for (const Measure& m : kMeasures) std::printf("%s\t%s\t%d\n", m.name, m.title, m.cold ? 1 : 0);
  return 0;
}

int Run(const std::string& name, const Options& options) {
  for (const Measure& m : kMeasures) {
    if (m.name != name) continue;
    std::printf("%.3f\n", m.run(options));
    return 0;
  }
  std::fprintf(stderr, "scale_io: no measure is called %s; see --list\n", name.c_str());
  return 2;
}

void Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) Die("sched_setaffinity");
}

int Main(int argc, char** argv) {
  Options options;
  std::string measure;
  int cpu = -1;
  bool list = false, fill = false;
  CLI::App app{"Many small blocks: makes them, or takes one measurement on them"};
  app.add_flag("--list", list, "List the measures: name, title, whether names must be cold");
  app.add_flag("--fill", fill, "Make the blocks from --from to --count");
  app.add_option("--measure", measure, "The measure to take; microseconds are printed");
  app.add_option("--dir", options.dir, "The directory to work in");
  app.add_option("--layout", options.layout, "flat: one directory; tree: as vLLM")
      ->check(CLI::IsMember({"flat", "tree"}));
  app.add_option("--count", options.count, "Blocks that are there")->check(CLI::PositiveNumber);
  app.add_option("--from", options.from, "The first block to make");
  app.add_option("--writers", options.writers, "Processes that make them")
      ->check(CLI::PositiveNumber);
  app.add_option("--samples", options.samples, "Operations a median")->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "Picks the blocks that a measure takes");
  app.add_option("--cpu", cpu, "Run on this CPU only");
  CLI11_PARSE(app, argc, argv);
  if (list) return PrintMeasures();
  if (options.dir.empty()) {
    std::fprintf(stderr, "scale_io: --dir is needed\n");
    return 2;
  }
  if (cpu >= 0) Pin(cpu);
  if (fill) return Fill(options);
  return Run(measure, options);
}

}  // namespace
}  // namespace prefixfs::bench

int main(int argc, char** argv) { return prefixfs::bench::Main(argc, argv); }
