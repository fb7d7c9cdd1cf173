// O_DIRECT at every address, length and offset, on drives with sectors of 512 and of 4096 bytes: by
// the daemon (`any`), by the kernel (`native`), and who serves whom (`auto`).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "cache/base/fd.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {
namespace {

using namespace support;

constexpr size_t kOddSizes[] = {1'124'352, 3'098'112, 70'273};
constexpr size_t kAddresses[] = {0, 1, 64, 511};  // of buffers, mod 4096

// `size` bytes that begin at `address` mod 4096.
class Placed {
 public:
  Placed(size_t size, size_t address) : memory_(size + 4096), address_(address), size_(size) {}
  uint8_t* data() { return memory_.data() + address_; }
  std::span<uint8_t> span() { return {data(), size_}; }

 private:
  Buffer memory_;
  size_t address_, size_;
};

class Mapped {
 public:
  Mapped(const Fd& fd, size_t size, int flags, int protection = PROT_READ) : size_(size) {
    memory_ = mmap(nullptr, size, protection, flags, fd.get(), 0);
    if (memory_ == MAP_FAILED) throw SysFailure(errno, "mmap");
  }
  ~Mapped() { munmap(memory_, size_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  uint8_t* data() const { return static_cast<uint8_t*>(memory_); }
  std::span<const uint8_t> bytes() const { return {data(), size_}; }

 private:
  void* memory_;
  size_t size_;
};

Fd Open(const std::string& path, int flags) {
  return Fd(Sys(open(path.c_str(), flags | O_CLOEXEC, 0644), "open " + path));
}

// As the engines write: a temporary of its own, `piece` bytes a call, close, rename.
void WriteDirectly(const std::string& path, size_t size, uint64_t seed, size_t address,
                   size_t piece = SIZE_MAX) {
  Placed bytes(size, address);
  Fill(bytes.span(), seed);
  const std::string temp = path + ".tmp";
  Fd fd = Open(temp, O_CREAT | O_EXCL | O_WRONLY | O_DIRECT);
  for (size_t at = 0; at < size;) {
    const size_t want = std::min(piece, size - at);
    const ssize_t done = Sys(write(fd.get(), bytes.data() + at, want), "write " + temp);
    Check(static_cast<size_t>(done) == want, "short write of " + temp);
    at += want;
  }
  Sys(close(fd.Release()), "close " + temp);
  Sys(rename(temp.c_str(), path.c_str()), "rename " + temp);
}

// "" if `path` has the pattern of `seed` when read with O_DIRECT, `piece` bytes a call.
std::string VerifyDirectly(const std::string& path, size_t size, uint64_t seed, size_t address,
                           size_t piece = SIZE_MAX) {
  Placed bytes(size + 1, address);
  const Fd fd = Open(path, O_RDONLY | O_DIRECT);
  size_t got = 0;
  // The last call asks for more than there is.
  while (got <= size) {
    const size_t want = std::min(piece, size + 1 - got);
    const ssize_t n = Sys(read(fd.get(), bytes.data() + got, want), "read " + path);
    if (n == 0) break;
    if (static_cast<size_t>(n) != std::min(want, size - got))
      return "a read gave " + std::to_string(n) + " of " + std::to_string(want);
    got += static_cast<size_t>(n);
  }
  if (got != size) return "it has " + std::to_string(got) + " bytes";
  return Verify(bytes.span().subspan(0, size), seed, size);
}

struct Drive {
  const char* filesystem;
  uint32_t sector;
};

// One mount for each kind of drive. The namespaces any and native say so, everything else is
// auto. With PREFIXFS_TEST_NATIVE=1 all of them are XFS, which is what `native` is compared with.
class Direct : public ::testing::TestWithParam<Drive> {
 protected:
  static void TearDownTestSuite() { Mounts().clear(); }
  static std::map<std::string, std::unique_ptr<Mount>>& Mounts() {
    static std::map<std::string, std::unique_ptr<Mount>> mounts;
    return mounts;
  }

  void SetUp() override {
    std::unique_ptr<Mount>& mount =
        Mounts()[GetParam().filesystem + std::to_string(GetParam().sector)];
    if (!mount) {
      mount = std::make_unique<Mount>(
          MountOptions{.filesystem = NativeMode() ? "xfs" : GetParam().filesystem,
                       .sector_bytes = sector(),
                       .set = {"namespace.any.o_direct=any", "namespace.native.o_direct=native"}});
    }
    mount_ = mount.get();
    for (const char* space : {"any", "native", "auto"}) {
      const std::string top = *mount_ / space;
      if (mkdir(top.c_str(), 0755) != 0) {
        ASSERT_EQ(errno, EEXIST);
      }
      ASSERT_EQ(mkdir((top + "/" + TestName()).c_str(), 0755), 0) << strerror(errno);
    }
  }

  static std::string TestName() {
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    return name;
  }
  uint32_t sector() const { return GetParam().sector; }
  std::string P(const std::string& space, const std::string& name) const {
    return *mount_ / space + "/" + TestName() + "/" + name;
  }

  Mount* mount_ = nullptr;
};

// What XFS itself refuses.
class DirectAny : public Direct {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS refuses what is not aligned";
    Direct::SetUp();
  }
};

// What is only so where the kernel can be given the file.
class DirectPassthrough : public Direct {
 protected:
  void SetUp() override {
    if (ServedMode()) GTEST_SKIP() << "the daemon takes every alignment";
    Direct::SetUp();
  }
};

TEST_P(DirectAny, OddSizesAtOddAddressesKeepEveryByte) {
  uint64_t seed = 1;
  for (const char* space : {"any", "auto"}) {
    for (const size_t size : kOddSizes) {
      for (const size_t address : kAddresses) {
        SCOPED_TRACE(std::string(space) + " " + std::to_string(size) + " at " +
                     std::to_string(address));
        const std::string path = P(space, std::to_string(++seed));
        WriteDirectly(path, size, seed, address);
        EXPECT_EQ(VerifyDirectly(path, size, seed, address), "");
        EXPECT_EQ(VerifyFile(path, seed, size), "");
        EXPECT_EQ(VerifyDirectly(path, size, seed, 4095 - address), "");
        ASSERT_EQ(unlink(path.c_str()), 0);
      }
    }
  }
}

TEST_P(DirectAny, PiecesOfAnyLengthAddUp) {
  uint64_t seed = 100;
  for (const size_t piece : {70'273, 4097, 262'144, 1'000'003}) {
    for (const size_t address : {0, 511}) {
      SCOPED_TRACE(std::to_string(piece) + " at " + std::to_string(address));
      const std::string path = P("any", std::to_string(++seed));
      WriteDirectly(path, 1'124'352, seed, address, piece);
      EXPECT_EQ(VerifyFile(path, seed, 1'124'352), "");
      EXPECT_EQ(VerifyDirectly(path, 1'124'352, seed, address, piece), "");
    }
  }
}

TEST_P(DirectAny, ReadersOfEveryKindSeeTheSameBytesAtTheSameTime) {
  constexpr size_t kSize = 1'124'352;
  const std::string path = P("any", "block");
  WriteDirectly(path, kSize, 7, 64);
  std::vector<Child> readers;
  for (int reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&, reader] {
      for (int round = 0; round < 20; ++round) {
        const std::string who =
            "reader " + std::to_string(reader) + " round " + std::to_string(round) + ": ";
        if (reader < 2) {
          const std::string wrong =
              VerifyDirectly(path, kSize, 7, kAddresses[static_cast<size_t>(round % 4)],
                             reader == 0 ? SIZE_MAX : 333'333);
          Check(wrong.empty(), who + wrong);
          continue;
        }
        const Fd fd = Open(path, O_RDONLY | (reader == 2 ? 0 : O_DIRECT));
        const Mapped whole(fd, kSize, round % 2 == 0 ? MAP_SHARED : MAP_PRIVATE);
        const std::string wrong = Verify(whole.bytes(), 7, kSize);
        Check(wrong.empty(), who + wrong);
        if (reader == 2) Check(VerifyFile(path, 7, kSize).empty(), who + "wrong by passthrough");
      }
    });
  }
  for (Child& reader : readers) EXPECT_NO_THROW(reader.Join());
}

// Writes of any length at any place through a direct and a buffered handle and a shared mapping of
// one file, each seen at once by the others.
TEST_P(DirectAny, WritesOfEveryKindToOneFileAreSeenByAllOthers) {
  constexpr size_t kSize = 600'001;
  const std::string path = P("any", "file");
  const Fd direct = Open(path, O_CREAT | O_EXCL | O_RDWR | O_DIRECT);
  Buffer model = Pattern(kSize, 1);
  Sys(pwrite(direct.get(), model.data(), kSize, 0), "pwrite");
  const Fd buffered = Open(path, O_RDWR);
  const Mapped mapped(buffered, kSize, MAP_SHARED, PROT_READ | PROT_WRITE);
  std::mt19937_64 random(sector());
  Buffer back(kSize);
  for (int round = 0; round < 150; ++round) {
    const size_t at = random() % kSize;
    const size_t length = std::min<size_t>(kSize - at, 1 + random() % 60'000);
    Fill({model.data() + at / 8 * 8, length}, random());
    const size_t from = at / 8 * 8;
    const int way = static_cast<int>(random() % 3);
    if (way == 2) {
      memcpy(mapped.data() + from, model.data() + from, length);
    } else {
      const Fd& fd = way == 0 ? direct : buffered;
      ASSERT_EQ(pwrite(fd.get(), model.data() + from, length, static_cast<off_t>(from)),
                static_cast<ssize_t>(length))
          << strerror(errno);
    }
    const Fd& fd = round % 2 == 0 ? direct : buffered;
    ASSERT_EQ(pread(fd.get(), back.data(), kSize, 0), static_cast<ssize_t>(kSize));
    ASSERT_EQ(memcmp(back.data(), model.data(), kSize), 0)
        << "round " << round << " written by " << way << ", read by " << round % 2;
    ASSERT_EQ(memcmp(mapped.data(), model.data(), kSize), 0)
        << "round " << round << " written by " << way << ", in the mapping";
  }
  struct stat st {};
  ASSERT_EQ(fstat(direct.get(), &st), 0);
  EXPECT_EQ(st.st_size, static_cast<off_t>(kSize)) << "padded";
}

TEST_P(DirectAny, AppendingAndSyncedWritesWork) {
  const Buffer data = Pattern(70'273, 3);
  for (const int extra : {O_APPEND, O_APPEND | O_SYNC, O_APPEND | O_DSYNC}) {
    const std::string path = P("any", std::to_string(extra));
    Fd fd = Open(path, O_CREAT | O_EXCL | O_WRONLY | O_DIRECT | extra);
    for (size_t at = 0; at < data.size(); at += 10'039)
      ASSERT_EQ(write(fd.get(), data.data() + at, 10'039), 10'039) << strerror(errno);
    struct stat st {};
    ASSERT_EQ(fstat(fd.get(), &st), 0);
    EXPECT_EQ(st.st_size, 70'273);
    EXPECT_EQ(lseek(fd.get(), 0, SEEK_END), 70'273);
    fd.Reset();
    EXPECT_EQ(VerifyFile(path, 3, data.size()), "");
  }
}

TEST_P(DirectAny, ADirectHandleWithoutItsFlagGoesOnWorking) {
  constexpr size_t kSize = 200'003;
  const std::string path = P("any", "block");
  WriteDirectly(path, kSize, 5, 1);
  const Fd fd = Open(path, O_RDONLY | O_DIRECT);
  Buffer back(kSize);
  for (const int flags : {0, O_DIRECT, 0}) {
    ASSERT_EQ(fcntl(fd.get(), F_SETFL, flags), 0) << strerror(errno);
    ASSERT_EQ(pread(fd.get(), back.data(), kSize, 0), static_cast<ssize_t>(kSize));
    EXPECT_EQ(Verify(back, 5, kSize), "");
  }
  const std::string copy = P("any", "copy");
  const Fd to = Open(copy, O_CREAT | O_WRONLY);
  off_t from = 0;
  while (from < static_cast<off_t>(kSize))
    ASSERT_GT(sendfile(to.get(), fd.get(), &from, kSize), 0) << strerror(errno);
  Sys(close(Open(copy, O_RDONLY).Release()), "close");
  EXPECT_EQ(VerifyFile(copy, 5, kSize), "");
}

TEST_P(DirectAny, ANewVersionOfABlockTakesUnalignedDirectWrites) {
  constexpr size_t kSize = 1'124'352;
  const std::string path = P("any", "block");
  RunInProcess([&] { WriteDirectly(path, kSize, 1, 0); });
  const Fd held = Open(path, O_RDONLY | O_DIRECT);
  Buffer expected = Pattern(kSize, 1);
  const Buffer patch = Pattern(70'273, 9);
  memcpy(expected.data() + 12'345, patch.data(), patch.size());
  RunInProcess([&] {
    const Fd fd = Open(path, O_RDWR | O_DIRECT);
    Check(pwrite(fd.get(), patch.data(), patch.size(), 12'345) == 70'273, "pwrite");
  });
  const Buffer now = ReadFile(path);
  ASSERT_EQ(now.size(), kSize);
  EXPECT_EQ(memcmp(now.data(), expected.data(), kSize), 0);
  Buffer back(kSize);
  ASSERT_EQ(pread(held.get(), back.data(), kSize, 0), static_cast<ssize_t>(kSize));
  EXPECT_EQ(Verify(back, 1, kSize), "") << "a reader's handle changed under it";
}

TEST_P(Direct, AlignedReadsAndWritesWorkEverywhere) {
  const size_t size = 32 * 4096 + sector();
  for (const char* space : {"any", "native", "auto"}) {
    const std::string path = P(space, "block");
    WriteDirectly(path, size, 11, 0, 4 * 4096);
    const Fd fd = Open(path, O_RDONLY | O_DIRECT);
    Buffer back(size);
    ASSERT_EQ(pread(fd.get(), back.data(), size, 0), static_cast<ssize_t>(size)) << space;
    EXPECT_EQ(Verify(back, 11, size), "") << space;
    EXPECT_EQ(VerifyFile(path, 11, size), "") << space;
  }
}

TEST_P(Direct, AHandleThatBecomesDirectAfterOpenStaysRightAtAnyAlignment) {
  constexpr size_t kSize = 70'273;
  const std::string path = P("auto", "block");
  const bool refuses = NativeMode();  // XFS takes the flag at its word
  const Buffer data = Pattern(kSize, 2);
  {
    const Fd fd = Open(path, O_CREAT | O_EXCL | O_RDWR);
    ASSERT_EQ(fcntl(fd.get(), F_SETFL, O_DIRECT), 0) << strerror(errno);
    const ssize_t done = pwrite(fd.get(), data.data(), kSize, 0);
    if (refuses) {
      ASSERT_EQ(done, -1);
      ASSERT_EQ(errno, EINVAL);
      ASSERT_EQ(fcntl(fd.get(), F_SETFL, 0), 0);
      ASSERT_EQ(pwrite(fd.get(), data.data(), kSize, 0), static_cast<ssize_t>(kSize));
    } else {
      ASSERT_EQ(done, static_cast<ssize_t>(kSize)) << strerror(errno);
      Placed back(10'000, 1);
      ASSERT_EQ(pread(fd.get(), back.data(), 10'000, 333), 10'000) << strerror(errno);
      EXPECT_EQ(memcmp(back.data(), data.data() + 333, 10'000), 0);
      ASSERT_EQ(fcntl(fd.get(), F_SETFL, 0), 0);
      ASSERT_EQ(pread(fd.get(), back.data(), 10'000, 777), 10'000) << strerror(errno);
      EXPECT_EQ(memcmp(back.data(), data.data() + 777, 10'000), 0);
    }
  }
  EXPECT_EQ(VerifyFile(path, 2, kSize), "");
}

TEST_P(DirectPassthrough, NativeRefusesWhatTheDriveDoes) {
  const std::string path = P("native", "block");
  const Buffer data = Pattern(16 * 4096, 4);
  Buffer back(16 * 4096);
  {
    const Fd fd = Open(path, O_CREAT | O_EXCL | O_RDWR | O_DIRECT);
    ASSERT_EQ(pwrite(fd.get(), data.data(), data.size(), 0), 16 * 4096) << strerror(errno);
    EXPECT_EQ(pwrite(fd.get(), data.data(), sector() + 1, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(pwrite(fd.get(), data.data(), sector(), sector() / 2), -1);
    EXPECT_EQ(errno, EINVAL);
  }
  const Fd fd = Open(path, O_RDONLY | O_DIRECT);
  EXPECT_EQ(pread(fd.get(), back.data(), sector(), sector() / 2), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(pread(fd.get(), back.data(), back.size(), 0), 16 * 4096) << strerror(errno);
  EXPECT_EQ(Verify(back, 4, back.size()), "");
}

// Whether an unaligned write is taken; the file is left empty if not.
bool TakesAnyWrite(const std::string& path) {
  const Buffer data = Pattern(5'000, 1);
  const Fd fd = Open(path, O_CREAT | O_EXCL | O_WRONLY | O_DIRECT);
  const ssize_t done = write(fd.get(), data.data(), data.size());
  Check(done == 5'000 || (done == -1 && errno == EINVAL), "an unaligned write");
  return done > 0;
}

class DirectAuto : public DirectPassthrough {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS learns nothing";
    DirectPassthrough::SetUp();
  }
  void WriteAligned(int blocks) {
    for (int i = 0; i < blocks; ++i)
      WriteDirectly(P("auto", "aligned" + std::to_string(++written_)), 2 * 4096, 1, 0);
  }
  bool Exists(const std::string& name) const { return access(P("auto", name).c_str(), F_OK) == 0; }

 private:
  int written_ = 0;
};

TEST_P(DirectAuto, AWriterIsServedNativelyAfterSixteenAlignedBlocksInARow) {
  RunInProcess([&] {
    WriteAligned(15);
    Check(TakesAnyWrite(P("auto", "odd1")), "native after 15 blocks");  // and starts again from 0
    WriteAligned(15);
    Check(TakesAnyWrite(P("auto", "odd2")), "an odd block did not count");
    WriteAligned(16);
    Check(!TakesAnyWrite(P("auto", "odd3")), "not native after 16 blocks");
    Check(!Exists("odd3"), "a write that was refused left an empty block");
    Check(TakesAnyWrite(P("auto", "odd4")), "still native after a refused write");
    Check(Exists("odd4"), "an odd block is not published");
    WriteAligned(16);
    RunInProcess(
        [&] { Check(TakesAnyWrite(P("auto", "odd5")), "one process learned for another"); });
    Check(TakesAnyWrite(P("any", "odd")), "one namespace learned for another");
  });
}

TEST_P(DirectAuto, ARefusedWriteLeavesTheBlockThatWasThere) {
  const std::string path = P("auto", "block");
  RunInProcess([&] {
    WriteDirectly(path, 2 * 4096, 3, 0);
    WriteAligned(16);
    const Buffer data = Pattern(5'000, 1);
    const Fd fd = Open(path, O_WRONLY | O_TRUNC | O_DIRECT);
    CheckErrno(write(fd.get(), data.data(), data.size()), EINVAL, "an unaligned write");
  });
  EXPECT_EQ(VerifyFile(path, 3, 2 * 4096), "");
}

TEST_P(DirectAuto, AReaderIsServedNativelyWhereTheSizeIsAMultiple) {
  Buffer back(8192);
  WriteDirectly(P("auto", "even"), 2 * 4096, 1, 0);
  WriteDirectly(P("auto", "odd"), 2 * 4096 + 100, 1, 0);
  const Fd even = Open(P("auto", "even"), O_RDONLY | O_DIRECT);
  EXPECT_EQ(pread(even.get(), back.data(), 100, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(pread(even.get(), back.data(), 8192, 0), 8192);
  const Fd odd = Open(P("auto", "odd"), O_RDONLY | O_DIRECT);
  EXPECT_EQ(pread(odd.get(), back.data() + 1, 100, 8192), 100);
}

// vLLM asks at start whether the directory takes O_DIRECT, and goes by the answer from then on.
TEST_P(Direct, TheProbeOfVllmFindsThatDirectWritesWork) {
  for (const char* space : {"any", "native", "auto"}) {
    const std::string probe = P(space, ".o_direct_probe_1234");
    const Buffer data = Pattern(4096, 1);
    Fd fd = Open(probe, O_CREAT | O_EXCL | O_WRONLY | O_DIRECT);
    ASSERT_EQ(write(fd.get(), data.data(), 4096), 4096) << space << strerror(errno);
    fd.Reset();
    ASSERT_EQ(unlink(probe.c_str()), 0) << space;
    WriteText(P(space, "config.json"), "{}");
    EXPECT_EQ(ReadText(P(space, "config.json")), "{}");
  }
}

TEST_P(DirectAny, TheMountSaysWhoServesTheData) {
  if (ServedMode()) {
    EXPECT_FALSE(mount_->ReadStats().at("passthrough").get<bool>());
  }
}

std::string DriveName(const ::testing::TestParamInfo<Drive>& info) {
  return info.param.filesystem + std::to_string(info.param.sector);
}

constexpr Drive kDrives[] = {{"xfs", 512}, {"xfs", 4096}, {"ext4", 4096}};

INSTANTIATE_TEST_SUITE_P(Drives, Direct, ::testing::ValuesIn(kDrives), DriveName);
INSTANTIATE_TEST_SUITE_P(Drives, DirectAny, ::testing::ValuesIn(kDrives), DriveName);
INSTANTIATE_TEST_SUITE_P(Drives, DirectPassthrough, ::testing::ValuesIn(kDrives), DriveName);
INSTANTIATE_TEST_SUITE_P(Drives, DirectAuto, ::testing::ValuesIn(kDrives), DriveName);

}  // namespace
}  // namespace prefixfs
