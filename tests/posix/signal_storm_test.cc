// A signal every millisecond, with a handler that restarts nothing: a read is whole all the same.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "cache/base/fd.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {
namespace {

using namespace support;

std::atomic<long> signals{0};

// While it lives, SIGALRM interrupts this process a thousand times a second.
class Storm {
 public:
  Storm() {
    struct sigaction action {};
    action.sa_handler = [](int) { signals.fetch_add(1); };
    Sys(sigaction(SIGALRM, &action, &before_), "sigaction");
    const itimerval every{{0, 1000}, {0, 1000}};
    Sys(setitimer(ITIMER_REAL, &every, nullptr), "setitimer");
  }
  ~Storm() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

 private:
  struct sigaction before_ {};
};

constexpr size_t kSizes[] = {2 << 20, 8 << 20, 1'124'352};
// A file; so that many fall into its reads.
const long kSignals = getenv("PREFIXFS_FULL") != nullptr ? 3000 : 150;
constexpr int kMostRounds = 1'000'000;

enum class Way { kCached, kCold, kDirect };

// One read of the whole file a round, until enough signals have come.
void ReadWhole(const std::string& path, size_t size, uint64_t seed, Way way) {
  const bool direct = way == Way::kDirect;
  const Fd fd(Sys(open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0)), path));
  Buffer data(size);
  const long until = signals.load() + kSignals;
  for (int round = 0; signals.load() < until && round < kMostRounds; ++round) {
    if (way == Way::kCold) posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    const ssize_t got = pread(fd.get(), data.data(), size, 0);
    ASSERT_EQ(got, static_cast<ssize_t>(size))
        << path << ", round " << round << (got < 0 ? strerrorname_np(errno) : "");
    if (round % 16 == 0) {
      ASSERT_EQ(Verify(data, seed, size), "") << path;
    }
  }
  EXPECT_GE(signals.load(), until) << "there was no storm";
}

void ReadThrough(const char* passthrough) {
  MountOptions options;
  options.set = {std::string("passthrough=") + passthrough};
  Mount mount(options);
  uint64_t seed = 1;
  for (const size_t size : kSizes) {
    const std::string path = mount / ("block_" + std::to_string(size));
    const Buffer data = Pattern(size, seed);
    {
      const Storm storm;
      const Fd fd(
          Sys(open((path + ".tmp").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644), path));
      ASSERT_EQ(write(fd.get(), data.data(), size), static_cast<ssize_t>(size)) << path;
    }
    ASSERT_EQ(rename((path + ".tmp").c_str(), path.c_str()), 0);
    const Storm storm;
    ReadWhole(path, size, seed, Way::kCached);
    ReadWhole(path, size, seed, Way::kCold);
    if (size % 4096 == 0) ReadWhole(path, size, seed, Way::kDirect);
    ++seed;
  }
}

TEST(SignalStorm, ReadsAndWritesByPassthroughAreWhole) { ReadThrough("auto"); }

TEST(SignalStorm, ReadsAndWritesServedByTheDaemonAreWhole) { ReadThrough("off"); }

}  // namespace
}  // namespace prefixfs
