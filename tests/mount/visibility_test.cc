// When a name is seen by whom: between processes, through a real mount.
//
// A provisional name is visible to its writer and the writer's children, so here the writer is
// always a child and the test's own process, its parent, is "another process".
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "cache/base/fd.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {
namespace {

using namespace support;

constexpr size_t kSize = 70'273;

bool Listed(const std::string& directory, const std::string& name) {
  DIR* stream = opendir(directory.c_str());
  Check(stream != nullptr, "opendir " + directory);
  bool found = false;
  while (const dirent* entry = readdir(stream)) found = found || name == entry->d_name;
  closedir(stream);
  return found;
}

bool Exists(const std::string& path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0;
}

Fd OpenNew(const std::string& path, int flags = O_CREAT | O_EXCL | O_WRONLY) {
  return Fd(Sys(open(path.c_str(), flags | O_CLOEXEC, 0644), "open " + path));
}

void Put(const Fd& fd, std::span<const uint8_t> bytes, off_t offset = 0) {
  Check(pwrite(fd.get(), bytes.data(), bytes.size(), offset) == static_cast<ssize_t>(bytes.size()),
        "pwrite");
}

// A writer that stops between its steps until the test says go.
class Steps {
 public:
  // In the writer: what was just done is now to be looked at.
  void Pause() {
    channel_.SendToB("done");
    channel_.ReceiveAtA();
  }
  // In the test.
  void AwaitPause() { channel_.ReceiveAtB(); }
  void Go() { channel_.SendToA("go"); }

 private:
  Channel channel_;
};

class Visibility : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS shows every name at once";
    mount_ = std::make_unique<Mount>();
  }
  std::string operator/(const std::string& name) const { return mount_->path() + "/" + name; }
  std::string Path(const std::string& name) const { return mount_->path() + "/" + name; }
  std::unique_ptr<Mount> mount_;
};

TEST_F(Visibility, ProvisionalNamesAreHiddenFromOthersUntilTheWriterCloses) {
  const std::string path = Path("block");
  Steps steps;
  Child writer([&] {
    Fd fd = OpenNew(path);
    Put(fd, Pattern(kSize, 1));
    steps.Pause();
    Sys(close(fd.Release()), "close");
    steps.Pause();
  });
  steps.AwaitPause();
  EXPECT_FALSE(Exists(path));
  EXPECT_EQ(access(path.c_str(), F_OK), -1);
  EXPECT_EQ(open(path.c_str(), O_RDONLY), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(Listed(mount_->path(), "block"));
  EXPECT_EQ(open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644), -1);
  EXPECT_EQ(errno, EEXIST);
  steps.Go();
  steps.AwaitPause();
  EXPECT_EQ(VerifyFile(path, 1, kSize), "");
  EXPECT_TRUE(Listed(mount_->path(), "block"));
  steps.Go();
  EXPECT_NO_THROW(writer.Join());
}

TEST_F(Visibility, TheWriterAndItsChildrenSeeAProvisionalName) {
  const std::string path = Path("block");
  RunInProcess([&] {
    Fd fd = OpenNew(path);
    Put(fd, Pattern(kSize, 2));
    Check(Exists(path), "the writer does not see its own file");
    Check(Listed(mount_->path(), "block"), "the writer does not find its own file listed");
    Check(VerifyFile(path, 2, kSize).empty(),
          "the writer reads its file wrongly: " + VerifyFile(path, 2, kSize));
    RunInProcess([&] {
      Check(VerifyFile(path, 2, kSize).empty(),
            "the writer's child: " + VerifyFile(path, 2, kSize));
    });
  });
}

TEST_F(Visibility, ARenamePublishesWhileTheWriterStillHasItOpen) {
  const std::string path = Path("block");
  Steps steps;
  Child writer([&] {
    Fd fd = OpenNew(path + ".tmp");
    Put(fd, Pattern(kSize, 3));
    Sys(rename((path + ".tmp").c_str(), path.c_str()), "rename");
    steps.Pause();
  });
  steps.AwaitPause();
  EXPECT_EQ(VerifyFile(path, 3, kSize), "");
  EXPECT_FALSE(Exists(path + ".tmp"));
  steps.Go();
  EXPECT_NO_THROW(writer.Join());
  EXPECT_EQ(VerifyFile(path, 3, kSize), "");
}

TEST_F(Visibility, ATemporaryClosedReopenedForWritingAndRenamedIsSeenWhole) {
  const std::string path = Path("block");
  const std::string temp = path + ".tmp";
  const Buffer data = Pattern(kSize, 4);
  const std::span<const uint8_t> bytes = data;
  for (int round = 0; round < 50; ++round) {
    RunInProcess([&] {
      Fd fd = OpenNew(temp);
      Put(fd, bytes.subspan(0, 4096));
      Sys(close(fd.Release()), "close");
      fd = OpenNew(temp, O_RDWR);
      Put(fd, bytes.subspan(4096), 4096);
      Sys(close(fd.Release()), "close");
      Sys(rename(temp.c_str(), path.c_str()), "rename");
    });
    ASSERT_EQ(VerifyFile(path, 4, kSize), "") << "round " << round;
    ASSERT_EQ(unlink(path.c_str()), 0);
  }
}

TEST_F(Visibility, AShellRedirectionCanBeMovedAtOnce) {
  // `> t; mv t f` in a loop: mv is another process, started after the writer has closed.
  const std::string script =
      "i=0; while [ $i -lt 100 ]; do echo $i > t || exit 1; mv t f || exit 2; "
      "[ \"$(cat f)\" = $i ] || exit 3; i=$((i+1)); done";
  const RunResult result =
      support::Run({"/bin/sh", "-c", "cd " + mount_->path() + " && " + script});
  EXPECT_TRUE(result.ok()) << result.Describe();
}

TEST_F(Visibility, ASecondWriterOfTheNameGetsItsOwnVersionAndTheLastToCloseWins) {
  const std::string path = Path("block");
  const Buffer first = Pattern(kSize, 5);
  const std::span<const uint8_t> bytes = first;
  Steps steps;
  Child slow([&] {
    Fd fd = OpenNew(path, O_CREAT | O_WRONLY | O_TRUNC);
    Put(fd, bytes.subspan(0, 30'000));
    steps.Pause();
    Put(fd, bytes.subspan(30'000), 30'000);
    Sys(close(fd.Release()), "close");
  });
  steps.AwaitPause();
  RunInProcess([&] { WriteFile(path, Pattern(kSize, 6)); });
  EXPECT_EQ(VerifyFile(path, 6, kSize), "");
  steps.Go();
  EXPECT_NO_THROW(slow.Join());
  EXPECT_EQ(VerifyFile(path, 5, kSize), "");
}

// One of several that write one name through one temporary, 60 times. `may_be_stale`: threads of
// one process, whose opens chase each other's versions and may be refused, but never share one.
void WriteByFixedTemporary(const std::string& path, uint64_t actor, bool may_be_stale) {
  const std::string temp = path + ".tmp";
  const Buffer data = Pattern(kSize, actor);
  const std::span<const uint8_t> bytes = data;
  for (uint64_t round = 0; round < 60; ++round) {
    Fd fd(open(temp.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd.valid() && errno == ESTALE && may_be_stale) continue;
    if (!fd.valid()) throw SysFailure(errno, "open " + temp);
    for (size_t at = 0; at < kSize; at += 25'000) {
      Put(fd, bytes.subspan(at, std::min<size_t>(25'000, kSize - at)), static_cast<off_t>(at));
    }
    Sys(close(fd.Release()), "close");
    // Another may have renamed the shared name first.
    if (rename(temp.c_str(), path.c_str()) != 0 && errno != ENOENT)
      throw SysFailure(errno, "rename");
  }
}

// Reads it until `running` is 0: always one writer's bytes, whole.
void ExpectWholeWhile(const std::string& path, const std::atomic<int>& running) {
  int seen = 0;
  while (running > 0) {
    if (!Exists(path)) continue;
    const Buffer data = ReadFile(path);
    ASSERT_GE(SeedOf(data), 1u);
    ASSERT_LE(SeedOf(data), 8u);
    ASSERT_EQ(Verify(data, SeedOf(data), kSize), "");
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

struct Running {
  ~Running() { --count; }
  std::atomic<int>& count;
};

TEST_F(Visibility, EightWritersWithOneFixedTemporaryNameNeverMix) {
  Shared<std::atomic<int>> running;
  std::vector<Child> writers;
  *running = 8;
  for (uint64_t actor = 1; actor <= 8; ++actor) {
    writers.emplace_back([&, actor] {
      const Running done{*running};
      WriteByFixedTemporary(Path("key.data"), actor, false);
    });
  }
  ExpectWholeWhile(Path("key.data"), *running);
  for (Child& writer : writers) EXPECT_NO_THROW(writer.Join());
}

TEST_F(Visibility, NeitherDoEightThreadsOfOneProcess) {
  Shared<std::atomic<int>> running;
  *running = 1;
  Child writer([&] {
    const Running done{*running};
    std::vector<std::future<void>> threads;
    for (uint64_t actor = 1; actor <= 8; ++actor)
      threads.push_back(
          std::async(std::launch::async, WriteByFixedTemporary, Path("key.data"), actor, true));
    for (std::future<void>& thread : threads) thread.get();
  });
  ExpectWholeWhile(Path("key.data"), *running);
  EXPECT_NO_THROW(writer.Join());
}

TEST_F(Visibility, AWriterKilledByASignalLeavesNothing) {
  for (int round = 0; round < 20; ++round) {
    const std::string path = Path("killed_" + std::to_string(round));
    Steps steps;
    Child writer([&] {
      Fd fd = OpenNew(path);
      Put(fd, Pattern(kSize, 7));
      steps.Pause();
      pause();
    });
    steps.AwaitPause();
    writer.Kill(round % 2 == 0 ? SIGKILL : SIGSEGV);
    ASSERT_FALSE(Exists(path)) << "round " << round;
    ASSERT_FALSE(Listed(mount_->path(), "killed_" + std::to_string(round)));
    RunInProcess([&] { WriteFile(path, Pattern(kSize, 8)); });
    ASSERT_EQ(VerifyFile(path, 8, kSize), "");
  }
}

TEST_F(Visibility, AWriterThatExitsWithoutClosingStillPublishes) {
  const std::string path = Path("block");
  RunInProcess([&] {
    Fd fd = OpenNew(path);
    Put(fd, Pattern(kSize, 9));
    fd.Release();
  });
  EXPECT_EQ(VerifyFile(path, 9, kSize), "");
}

TEST_F(Visibility, AProvisionalNameThatItsWriterUnlinksNeverAppears) {
  const std::string path = Path("block");
  RunInProcess([&] {
    Fd fd = OpenNew(path);
    Put(fd, Pattern(kSize, 10));
    Sys(unlink(path.c_str()), "unlink");
    Check(!Exists(path), "unlinked but still there for the writer");
    Put(fd, Pattern(4096, 11));
  });
  EXPECT_FALSE(Exists(path));
}

// --- close(), a message to another process, open there: never a miss, under load

void Load(const std::string& root, int id, const std::atomic<bool>& stop) {
  const Buffer data = Pattern(64 << 10, static_cast<uint64_t>(id));
  for (uint64_t i = 0; !stop; ++i) {
    const std::string path = root + "/load_" + std::to_string(id) + "_" + std::to_string(i % 16);
    WriteFile(path + ".tmp", data);
    Sys(rename((path + ".tmp").c_str(), path.c_str()), "rename in the load");
    if (i % 4 == 3) Sys(unlink(path.c_str()), "unlink in the load");
  }
}

// Three ways to publish, by turns.
void PublishOne(const std::string& path, uint64_t round) {
  const Buffer data = Pattern(4096, round + 1);
  if (round % 3 == 0) return WriteFile(path, data);
  Fd fd = OpenNew(path + ".tmp");
  Put(fd, data);
  if (round % 3 == 1) Sys(close(fd.Release()), "close");
  Sys(rename((path + ".tmp").c_str(), path.c_str()), "rename");
}

TEST_F(Visibility, CloseThenMessageThenOpenNeverMissesUnderLoad) {
  const bool full = getenv("PREFIXFS_FULL") != nullptr;
  const uint64_t rounds = full ? 100'000 : 5'000;
  Shared<std::atomic<bool>> stop;
  Channel channel;
  std::vector<Child> load;
  for (int id = 0; id < 8; ++id) load.emplace_back([&, id] { Load(mount_->path(), id, *stop); });
  const auto name = [&](uint64_t round) { return Path("round_" + std::to_string(round)); };
  Child writer([&] {
    for (uint64_t round = 0; round < rounds; ++round) {
      channel.ReceiveAtA();
      PublishOne(name(round), round);
      channel.SendToB("written");
    }
  });
  Child reader([&] {
    for (uint64_t round = 0; round < rounds; ++round) {
      // The kernel now remembers that the name is absent; publishing must undo that.
      if (round % 2 == 0) Check(!Exists(name(round)), "a name before its time");
      channel.SendToA("go");
      channel.ReceiveAtB();
      const std::string problem = VerifyFile(name(round), round + 1, 4096);
      Check(problem.empty(), "round " + std::to_string(round) + ": " + problem);
      Sys(unlink(name(round).c_str()), "unlink");
    }
  });
  const auto deadline = std::chrono::seconds(full ? 1500 : 150);
  EXPECT_NO_THROW(reader.Join(deadline));
  EXPECT_NO_THROW(writer.Join(std::chrono::seconds(5)));
  *stop = true;
  for (Child& child : load) EXPECT_NO_THROW(child.Join());
}

}  // namespace
}  // namespace prefixfs
