// Opening a sealed block for writing: its readers keep what they opened, and the new bytes come
// whole at close.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>

#include "cache/base/fd.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {
namespace {

using namespace support;

constexpr size_t kSize = 2 << 20;

class Mapping {
 public:
  Mapping(const Fd& fd, int flags) {
    memory_ = mmap(nullptr, kSize, PROT_READ, flags, fd.get(), 0);
    Check(memory_ != MAP_FAILED, std::string("mmap: ") + strerror(errno));
  }
  ~Mapping() { munmap(memory_, kSize); }
  std::span<const uint8_t> bytes() const { return {static_cast<const uint8_t*>(memory_), kSize}; }

 private:
  void* memory_;
};

// A sealed block `path_` with the pattern of seed 1, its writer a process that is gone.
class Version : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS has no versions";
    mount_ = std::make_unique<Mount>();
    path_ = mount_->path() + "/block";
    RunInProcess([&] { WriteFile(path_, Pattern(kSize, 1)); });
  }

  Fd Open(int flags) const {
    return Fd(Sys(open(path_.c_str(), flags | O_CLOEXEC), "open " + path_));
  }

  static void Put(const Fd& fd, const Buffer& bytes, off_t offset) {
    Check(
        pwrite(fd.get(), bytes.data(), bytes.size(), offset) == static_cast<ssize_t>(bytes.size()),
        "pwrite");
  }

  // Seed 1 with `bytes` laid over it.
  static Buffer Patched(const Buffer& bytes, size_t offset) {
    Buffer expected = Pattern(kSize, 1);
    memcpy(expected.data() + offset, bytes.data(), bytes.size());
    return expected;
  }

  void ExpectContent(const Buffer& expected) const {
    const Buffer got = ReadFile(path_);
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(memcmp(got.data(), expected.data(), got.size()), 0);
  }

  // Runs `body` in a writer that holds the file open meanwhile, between two steps.
  void WhileOpen(int flags, const std::function<void(const Fd&)>& write,
                 const std::function<void()>& look) {
    Channel channel;
    Child writer([&] {
      Fd fd = Open(flags);
      write(fd);
      channel.SendToB("written");
      channel.ReceiveAtA();
      Sys(close(fd.Release()), "close");
    });
    channel.ReceiveAtB();
    look();
    channel.SendToA("close");
    EXPECT_NO_THROW(writer.Join());
  }

  std::unique_ptr<Mount> mount_;
  std::string path_;
};

TEST_F(Version, AReplacedBlockStaysWholeForThoseWhoHoldIt) {
  const Fd held = Open(O_RDONLY);
  const Mapping shared(held, MAP_SHARED);
  const Mapping private_map(held, MAP_PRIVATE);
  RunInProcess([&] {
    WriteFile(path_ + ".tmp", Pattern(kSize, 2));
    Sys(rename((path_ + ".tmp").c_str(), path_.c_str()), "rename");
  });
  EXPECT_EQ(VerifyFile(path_, 2, kSize), "");
  RunInProcess([&] { WriteFile(path_, Pattern(kSize, 3)); });
  EXPECT_EQ(VerifyFile(path_, 3, kSize), "");
  ASSERT_EQ(unlink(path_.c_str()), 0);

  Buffer data(kSize);
  ASSERT_EQ(pread(held.get(), data.data(), kSize, 0), static_cast<ssize_t>(kSize));
  EXPECT_EQ(Verify(data, 1, kSize), "");
  EXPECT_EQ(Verify(shared.bytes(), 1, kSize), "");
  EXPECT_EQ(Verify(private_map.bytes(), 1, kSize), "");
}

TEST_F(Version, ReadersSeeTheOldBytesUntilTheWriterClosesAndTheNewOnesAfter) {
  const Buffer patch = Pattern(4096, 9);
  const Fd held = Open(O_RDONLY);
  WhileOpen(
      O_RDWR, [&](const Fd& fd) { Put(fd, patch, 8192); },
      [&] { EXPECT_EQ(VerifyFile(path_, 1, kSize), ""); });
  ExpectContent(Patched(patch, 8192));
  Buffer data(kSize);
  ASSERT_EQ(pread(held.get(), data.data(), kSize, 0), static_cast<ssize_t>(kSize));
  EXPECT_EQ(Verify(data, 1, kSize), "") << "a reader's handle changed under it";
}

// Somebody lists a directory all the time. The longer the answer, the longer the kernel works it
// off, and until then it can be older than what was looked up since.
class VersionWhileListed : public Version {
 protected:
  void SetUp() override {
    Version::SetUp();
    if (IsSkipped()) return;
    directory_ = mount_->path() + "/d";
    ASSERT_EQ(mkdir(directory_.c_str(), 0755), 0);
    RunInProcess([&] {
      for (int i = 0; i < 100; ++i)
        WriteFile(directory_ + "/other" + std::to_string(i), Pattern(1, 1));
    });
    lister_.emplace([this] {
      while (!stop_->load()) List();
    });
  }
  void TearDown() override {
    stop_->store(true);
    if (!lister_) return;
    EXPECT_NO_THROW(lister_->Join());
  }

  void List() const {
    DIR* stream = opendir(directory_.c_str());
    if (stream == nullptr) Fail("opendir " + directory_);
    while (readdir(stream) != nullptr) {
    }
    closedir(stream);
  }

  void WriteHead(const std::string& name) const { WriteFile(name, Pattern(kHead, 1)); }
  void Append(const std::string& name) const {
    Fd fd(Sys(open(name.c_str(), O_RDWR | O_CLOEXEC), "open " + name));
    Put(fd, Pattern(kHead, 2), kHead);
    Sys(close(fd.Release()), "close");
  }
  static void CheckBoth(const std::string& name) {
    struct stat status {};
    Sys(stat(name.c_str(), &status), "stat " + name);
    Check(status.st_size == 2 * kHead,
          name + ": stat gives " + std::to_string(status.st_size) + " bytes");
    const size_t read = ReadFile(name).size();
    Check(read == 2 * kHead, name + ": " + std::to_string(read) + " bytes can be read");
  }

  static constexpr int kHead = 4096;
  static constexpr int kRounds = 1500;
  std::string directory_;
  Shared<std::atomic<bool>> stop_;
  std::optional<Child> lister_;
};

TEST_F(VersionWhileListed, ARenameTakesAlongWhatWasWrittenLast) {
  RunInProcess([&] {
    for (int round = 0; round < kRounds; ++round) {
      const std::string name = directory_ + "/" + std::to_string(round % 8);
      const std::string temp = name + ".new" + std::to_string(round);
      WriteHead(temp);
      Append(temp);
      Sys(rename(temp.c_str(), name.c_str()), "rename " + temp);
      CheckBoth(name);
    }
  });
}

TEST_F(VersionWhileListed, ANameIsOfWhatWasWrittenLast) {
  RunInProcess([&] {
    for (int round = 0; round < kRounds; ++round) {
      const std::string name = directory_ + "/" + std::to_string(round);
      WriteHead(name);
      Append(name);
      CheckBoth(name);
    }
  });
}

TEST_F(Version, TheWriterItselfReadsWhatItWrote) {
  const Buffer patch = Pattern(4096, 9);
  RunInProcess([&] {
    const Fd fd = Open(O_RDWR);
    Put(fd, patch, 8192);
    Buffer back(4096);
    Check(pread(fd.get(), back.data(), 4096, 8192) == 4096, "pread");
    Check(memcmp(back.data(), patch.data(), 4096) == 0, "the handle does not read its own write");
    const Buffer whole = ReadFile(path_);
    Check(memcmp(whole.data() + 8192, patch.data(), 4096) == 0,
          "a second open of the writer shows old bytes");
  });
  ExpectContent(Patched(patch, 8192));
}

TEST_F(Version, OpenedForWritingAndClosedUnmodifiedNothingChanges) {
  struct stat before {
  }, after{};
  ASSERT_EQ(stat(path_.c_str(), &before), 0);
  RunInProcess([&] { Open(O_RDWR); });
  RunInProcess([&] { Open(O_WRONLY); });
  ASSERT_EQ(stat(path_.c_str(), &after), 0);
  EXPECT_EQ(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
  EXPECT_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
  EXPECT_EQ(before.st_size, after.st_size);
  EXPECT_EQ(VerifyFile(path_, 1, kSize), "");
}

TEST_F(Version, TruncatingAtOpenHidesNothingUntilTheNewBlockIsClosed) {
  WhileOpen(
      O_WRONLY | O_TRUNC, [&](const Fd& fd) { Put(fd, Pattern(70'273, 2), 0); },
      [&] { EXPECT_EQ(VerifyFile(path_, 1, kSize), ""); });
  EXPECT_EQ(VerifyFile(path_, 2, 70'273), "");
}

TEST_F(Version, TruncateByPathShortensTheNameButNoReader) {
  const Fd held = Open(O_RDONLY);
  RunInProcess([&] { Sys(truncate(path_.c_str(), 5000), "truncate"); });
  struct stat st {};
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 5000);
  const Buffer got = ReadFile(path_);
  EXPECT_EQ(memcmp(got.data(), Pattern(kSize, 1).data(), 5000), 0);
  Buffer data(kSize);
  ASSERT_EQ(pread(held.get(), data.data(), kSize, 0), static_cast<ssize_t>(kSize));
  EXPECT_EQ(Verify(data, 1, kSize), "");

  RunInProcess([&] { Sys(truncate(path_.c_str(), 9000), "truncate"); });
  const Buffer longer = ReadFile(path_);
  ASSERT_EQ(longer.size(), 9000u);
  EXPECT_EQ(memcmp(longer.data(), got.data(), 5000), 0);
  EXPECT_EQ(longer.data()[5000], 0);
  EXPECT_EQ(longer.data()[8999], 0);
}

TEST_F(Version, FtruncateOfAnOpenedSealedBlockStaysTheWritersOwnUntilClose) {
  WhileOpen(
      O_RDWR, [&](const Fd& fd) { Sys(ftruncate(fd.get(), 4096), "ftruncate"); },
      [&] { EXPECT_EQ(VerifyFile(path_, 1, kSize), ""); });
  struct stat st {};
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 4096);
}

TEST_F(Version, AHolePunchedAndAMappedWriteAreTheWritersOwn) {
  const Fd held = Open(O_RDONLY);
  const Mapping shared(held, MAP_SHARED);
  const auto expect_old = [&] {
    Buffer data(kSize);
    ASSERT_EQ(pread(held.get(), data.data(), kSize, 0), static_cast<ssize_t>(kSize));
    EXPECT_EQ(Verify(data, 1, kSize), "");
    EXPECT_EQ(Verify(shared.bytes(), 1, kSize), "");
  };
  RunInProcess([&] {
    const Fd fd = Open(O_RDWR);
    Sys(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), "fallocate");
    Sys(fallocate(fd.get(), FALLOC_FL_ZERO_RANGE, 8192, 4096), "fallocate");
  });
  expect_old();
  Buffer expected = Pattern(kSize, 1);
  memset(expected.data(), 0, 4096);
  memset(expected.data() + 8192, 0, 4096);
  ExpectContent(expected);
  RunInProcess([&] {
    const Fd fd = Open(O_RDWR);
    void* map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    Check(map != MAP_FAILED, "mmap");
    memset(map, 'm', 4096);
    Sys(munmap(map, 4096), "munmap");
  });
  expect_old();
  memset(expected.data(), 'm', 4096);
  ExpectContent(expected);
}

TEST_F(Version, TwoVersionsAtOnceEachWinWholeInTheOrderOfTheirCloses) {
  const Buffer a = Pattern(4096, 11);
  const Buffer b = Pattern(4096, 12);
  WhileOpen(
      O_RDWR, [&](const Fd& fd) { Put(fd, b, 8192); },
      [&] {
        RunInProcess([&] {
          const Fd fd = Open(O_RDWR);
          Put(fd, a, 0);
        });
        ExpectContent(Patched(a, 0));
      });
  ExpectContent(Patched(b, 8192));
}

TEST_F(Version, AppendingToASealedBlockAddsAtItsEnd) {
  const Buffer tail = Pattern(10'000, 5);
  WhileOpen(
      O_WRONLY | O_APPEND,
      [&](const Fd& fd) {
        Check(write(fd.get(), tail.data(), 5000) == 5000, "append");
        Check(write(fd.get(), tail.data() + 5000, 5000) == 5000, "append");
        struct stat st {};
        Sys(fstat(fd.get(), &st), "fstat");
        Check(st.st_size == static_cast<off_t>(kSize + 10'000),
              "fstat of the writer says " + std::to_string(st.st_size));
        Check(lseek(fd.get(), 0, SEEK_END) == st.st_size, "lseek(END) of the writer");
      },
      [&] { EXPECT_EQ(VerifyFile(path_, 1, kSize), ""); });
  const Buffer got = ReadFile(path_);
  ASSERT_EQ(got.size(), kSize + 10'000);
  EXPECT_EQ(memcmp(got.data() + kSize, tail.data(), 10'000), 0);
  EXPECT_FALSE(FirstWrong(std::span<const uint8_t>(got).subspan(0, kSize), 1).has_value());
}

TEST_F(Version, TheLatestVersionSurvivesANewMount) {
  const Buffer patch = Pattern(4096, 9);
  RunInProcess([&] {
    const Fd fd = Open(O_RDWR);
    Put(fd, patch, 8192);
  });
  mount_->Remount();
  ExpectContent(Patched(patch, 8192));
}

}  // namespace
}  // namespace prefixfs
