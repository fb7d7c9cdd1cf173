// Many names: listings are complete while others write, seeks go where they should, and neither
// descriptors nor memory nor the number of inodes grow without bound.
//
// With PREFIXFS_FULL=1 the directory and the tree have a million names each.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <unordered_map>
#include <vector>

#include "cache/base/fd.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {
namespace {

using namespace support;

constexpr int kWriters = 8;
constexpr uint64_t kMaxBacking = 256;

bool Full() { return getenv("PREFIXFS_FULL") != nullptr; }
size_t Names() { return Full() ? 1'000'000 : 20'000; }

// Small, and made as clients make blocks.
void WriteBlock(const std::string& path) {
  const std::string temp = path + ".tmp";
  Fd fd(Sys(open(temp.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644), "create " + temp));
  Check(write(fd.get(), "block", 5) == 5, "write " + temp);
  Sys(close(fd.Release()), "close " + temp);
  Sys(rename(temp.c_str(), path.c_str()), "rename " + temp);
}

// Calls `make(i)` for 0 to `count` - 1, in several processes.
template <typename Make>
void InParallel(size_t count, const Make& make) {
  std::vector<Child> children;
  for (size_t part = 0; part < kWriters; ++part) {
    children.emplace_back([&, part] {
      for (size_t i = part; i < count; i += kWriters) make(i);
    });
  }
  for (Child& child : children) child.Join(std::chrono::hours(1));
}

using Counts = std::unordered_map<std::string, int>;

// How often each name is in one listing.
Counts ListOnce(const std::string& path) {
  Counts counts;
  DIR* stream = opendir(path.c_str());
  Check(stream != nullptr, "opendir " + path);
  errno = 0;
  while (const dirent* entry = readdir(stream)) ++counts[entry->d_name];
  const int error = errno;
  closedir(stream);
  if (error != 0) throw SysFailure(error, "readdir " + path);
  return counts;
}

uint64_t RssAnonBytes(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  Fail("no RssAnon");
}

size_t OpenDescriptors(int pid) {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// One mount with one large directory for all tests.
class Scale : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    mount_ = std::make_unique<Mount>(MountOptions{
        .drive_bytes = Full() ? 16ull << 30 : 2ull << 30,
        .capacity = Full() ? "12G" : "1G",
        .set = {"reserve_initial=\"4K\"", "max_backing=" + std::to_string(kMaxBacking)}});
    Sys(mkdir(Flat().c_str(), 0755), "mkdir");
    InParallel(Names(), [](size_t i) { WriteBlock(Name(i)); });
  }
  static void TearDownTestSuite() { mount_.reset(); }

  static std::string Flat() { return mount_->path() + "/flat"; }
  static std::string Name(size_t i) { return Flat() + "/block_" + std::to_string(i); }
  static size_t Descriptors() { return OpenDescriptors(mount_->daemon_pid()); }

  static inline std::unique_ptr<Mount> mount_;
};

// What the writers had made when a listing began must be in it, once.
struct Made {
  std::array<std::atomic<uint64_t>, kWriters> names;
  std::atomic<bool> stop{false};
};

void RenameIntoDirectory(const std::string& directory, int writer, Made& made) {
  const std::string prefix = directory + "/writer" + std::to_string(writer) + "_";
  for (uint64_t i = 0; !made.stop; ++i) {
    WriteBlock(prefix + std::to_string(i));
    made.names[static_cast<size_t>(writer)] = i + 1;
    // A name that is replaced all the time may come twice or not at all, and hides no other.
    WriteBlock(prefix + "again");
  }
}

TEST_F(Scale, ListingIsCompleteWhileEightWritersRenameIntoTheDirectory) {
  Shared<Made> made;
  std::vector<Child> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] { RenameIntoDirectory(Flat(), writer, *made); });
  }
  const int listings = Full() ? 5 : 10;
  for (int listing = 0; listing < listings && !HasFailure(); ++listing) {
    std::array<uint64_t, kWriters> before{};
    for (size_t w = 0; w < kWriters; ++w) before[w] = made->names[w];
    const Counts counts = ListOnce(Flat());
    const auto count = [&](const std::string& name) {
      const auto it = counts.find(name);
      return it == counts.end() ? 0 : it->second;
    };
    for (size_t i = 0; i < Names(); ++i)
      ASSERT_EQ(count("block_" + std::to_string(i)), 1) << i << " in listing " << listing;
    for (size_t w = 0; w < kWriters; ++w) {
      for (uint64_t i = 0; i < before[w]; ++i) {
        const std::string name = "writer" + std::to_string(w) + "_" + std::to_string(i);
        ASSERT_EQ(count(name), 1) << name << " in listing " << listing;
      }
    }
  }
  made->stop = true;
  for (Child& writer : writers) EXPECT_NO_THROW(writer.Join());
  for (const auto& names : made->names) EXPECT_GT(names.load(), 0u);
  for (int writer = 0; writer < kWriters; ++writer) {
    const std::string prefix = Flat() + "/writer" + std::to_string(writer) + "_";
    for (uint64_t i = 0; i < made->names[static_cast<size_t>(writer)]; ++i)
      ASSERT_EQ(unlink((prefix + std::to_string(i)).c_str()), 0);
    ASSERT_EQ(unlink((prefix + "again").c_str()), 0);
  }
}

TEST_F(Scale, SeekdirGoesBackToEveryPlaceThatTelldirGave) {
  DIR* stream = opendir(Flat().c_str());
  ASSERT_NE(stream, nullptr);
  std::vector<std::pair<long, std::string>> places;  // and the name that comes next
  for (long at = telldir(stream); const dirent* entry = readdir(stream); at = telldir(stream))
    places.emplace_back(at, entry->d_name);
  EXPECT_EQ(places.size(), Names() + 2);
  std::minstd_rand random(5);
  for (int i = 0; i < 500; ++i) {
    const auto& [at, name] = places[random() % places.size()];
    seekdir(stream, at);
    const dirent* entry = readdir(stream);
    ASSERT_NE(entry, nullptr) << name;
    ASSERT_EQ(entry->d_name, name);
  }
  // Where a name has gone, the next one that is left comes; in a stream of its own too.
  const size_t middle = places.size() / 2;
  const std::string gone = places[middle].second;
  ASSERT_EQ(unlink((Flat() + "/" + gone).c_str()), 0);
  DIR* other = opendir(Flat().c_str());
  ASSERT_NE(other, nullptr);
  seekdir(other, places[middle].first);
  const dirent* entry = readdir(other);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->d_name, places[middle + 1].second);
  closedir(other);
  closedir(stream);
  ASSERT_NO_THROW(WriteBlock(Flat() + "/" + gone));
}

TEST_F(Scale, DescriptorsAndMemoryStayBoundedWhileManyBlocksAreOpened) {
  if (NativeMode()) GTEST_SKIP() << "no daemon";
  const auto open_all = [&] {
    for (size_t i = 0; i < Names(); ++i) {
      const Fd fd(open(Name(i).c_str(), O_RDONLY | O_CLOEXEC));
      ASSERT_TRUE(fd.valid()) << Name(i) << ": " << strerrordesc_np(errno);
    }
  };
  const size_t descriptors = Descriptors();
  ASSERT_NO_FATAL_FAILURE(open_all());
  // What is kept for a block once opened is kept now, so a second round adds nothing.
  const uint64_t memory = RssAnonBytes(mount_->daemon_pid());
  ASSERT_NO_FATAL_FAILURE(open_all());
  EXPECT_LE(Descriptors(), descriptors + 64);
  EXPECT_LE(mount_->Stat("backing_files"), kMaxBacking);
  EXPECT_LE(RssAnonBytes(mount_->daemon_pid()), memory + (16ull << 20));
}

TEST_F(Scale, WhatTheKernelForgetsIsGivenBack) {
  if (NativeMode()) GTEST_SKIP() << "no daemon";
  for (size_t i = 0; i < kMaxBacking / 2; ++i)
    ASSERT_TRUE(Fd(open(Name(i).c_str(), O_RDONLY | O_CLOEXEC)).valid()) << Name(i);
  if (!mount_->ReadStats().at("passthrough").get<bool>()) GTEST_SKIP() << "no passthrough";
  EXPECT_GE(mount_->Stat("backing_files"), kMaxBacking / 2);
  WaitUntil(
      [] {
        std::ofstream("/proc/sys/vm/drop_caches") << 2 << std::flush;
        return mount_->Stat("backing_files") == 0;
      },
      "the backing files are closed");
  const Fd fd(open(Name(0).c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(fd.valid());
}

// As vLLM lays its blocks out: hardly more than one in a directory.
TEST_F(Scale, AShardedTreeIsListedWhole) {
  const size_t names = Full() ? Names() : 2'000;
  const std::string root = mount_->path() + "/m_0a1b2c3d4e5f_r0";
  const auto directory = [&](size_t i) {
    char text[16];
    snprintf(text, sizeof text, "%05zx", i * 0x9E3779B1 % 0x100000 & ~size_t{1});
    const std::string hash(text);
    return root + "/" + hash.substr(0, 3) + "/" + hash.substr(3) + "_g0";
  };
  InParallel(names, [&](size_t i) {
    std::filesystem::create_directories(directory(i));
    WriteBlock(directory(i) + "/block_" + std::to_string(i));
  });
  Counts counts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) ++counts[entry.path().filename()];
  }
  EXPECT_EQ(counts.size(), names);
  for (size_t i = 0; i < names; ++i) ASSERT_EQ(counts["block_" + std::to_string(i)], 1) << i;
}

class InodeLimit : public ::testing::Test {
 protected:
  static constexpr uint64_t kMost = 64;

  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS has no such limit";
    mount_ = std::make_unique<Mount>(
        MountOptions{.set = {"lease=\"0s\"", "max_inodes=" + std::to_string(kMost)}});
  }
  std::string Path(const std::string& kind, int i) const {
    return mount_->path() + "/" + kind + std::to_string(i);
  }
  std::unique_ptr<Mount> mount_;
};

TEST_F(InodeLimit, CreatesBeyondItTakeThePlaceOfTheColdestBlocks) {
  constexpr int kBlocks = 200;
  for (int i = 0; i < kBlocks; ++i) {
    ASSERT_NO_THROW(WriteBlock(Path("block", i)));
    ASSERT_LE(mount_->Stat("inodes"), kMost);
  }
  struct statvfs status {};
  ASSERT_EQ(statvfs(mount_->path().c_str(), &status), 0);
  EXPECT_EQ(status.f_files, kMost);
  EXPECT_GT(status.f_ffree, 0u);
  EXPECT_NE(access(Path("block", 0).c_str(), F_OK), 0);
  EXPECT_EQ(access(Path("block", kBlocks - 1).c_str(), F_OK), 0);
  EXPECT_GE(mount_->Stat("blocks"), kMost / 2);
  mount_->Remount();
  EXPECT_EQ(mount_->Stat("inodes"), mount_->Stat("blocks") + 1);  // and the root
}

TEST_F(InodeLimit, DirectoriesTakeThePlaceOfBlocksAndThenThereIsNoSpace) {
  for (int i = 0; i < 40; ++i) ASSERT_NO_THROW(WriteBlock(Path("block", i)));
  int made = 0;
  while (mkdir(Path("dir", made).c_str(), 0755) == 0 && made < 1000) ++made;
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(static_cast<uint64_t>(made), kMost - 1);
  EXPECT_EQ(mount_->Stat("blocks"), 0u);
  struct statvfs status {};
  ASSERT_EQ(statvfs(mount_->path().c_str(), &status), 0);
  EXPECT_EQ(status.f_ffree, 0u);
  EXPECT_NE(mount_->Log().find("max_inodes = 64"), std::string::npos) << mount_->Log();
  EXPECT_EQ(open(Path("block", 0).c_str(), O_CREAT | O_WRONLY, 0644), -1);
  EXPECT_EQ(errno, ENOSPC);
  // And it recovers.
  ASSERT_EQ(rmdir(Path("dir", 0).c_str()), 0);
  EXPECT_NO_THROW(WriteBlock(Path("block", 0)));
}

}  // namespace
}  // namespace prefixfs
