// Regular files as POSIX has them: opening, reading, writing, mapping, sizes, unlink while open.
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <termios.h>

#include <cstring>

#include "tests/mount/posix_fixture.h"

namespace prefixfs {
namespace {

using namespace support;

TEST_F(Posix, ExclusiveCreateRefusesANameThatIsTaken) {
  EXPECT_EQ(Name(open(P("absent").c_str(), O_RDONLY)), "ENOENT");
  Create("f");
  EXPECT_EQ(Name(open(P("f").c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644)), "EEXIST");
  EXPECT_EQ(Name(open(P("f").c_str(), O_RDONLY | O_DIRECTORY)), "ENOTDIR");
  EXPECT_EQ(Name(open(P("f/x").c_str(), O_RDONLY)), "ENOTDIR");
  EXPECT_EQ(Name(open(directory_.c_str(), O_WRONLY)), "EISDIR");
}

TEST_F(Posix, TruncateAtOpenStartsFromNothing) {
  WriteFile(P("f"), Pattern(10'000, 1));
  WriteFile(P("f"), Pattern(100, 2));
  EXPECT_EQ(VerifyFile(P("f"), 2, 100), "");
}

TEST_F(Posix, AppendAlwaysWritesAtTheEnd) {
  WriteText(P("f"), "one ");
  Fd fd = Create("f", O_WRONLY | O_APPEND);
  ASSERT_EQ(lseek(fd.get(), 0, SEEK_SET), 0);
  ASSERT_EQ(write(fd.get(), "two ", 4), 4);
  ASSERT_EQ(write(fd.get(), "three", 5), 5);
  fd.Reset();
  EXPECT_EQ(ReadText(P("f")), "one two three");
}

TEST_F(Posix, ReadsEndAtTheEndAndHolesReadAsZero) {
  Fd fd = Create("f");
  ASSERT_EQ(pwrite(fd.get(), "end", 3, 100'000), 3);
  char bytes[8];
  EXPECT_EQ(pread(fd.get(), bytes, 8, 99'999), 4);
  EXPECT_EQ(std::string(bytes, 4), std::string("\0end", 4));
  EXPECT_EQ(pread(fd.get(), bytes, 8, 100'003), 0);
  EXPECT_EQ(pread(fd.get(), bytes, 8, 5'000'000), 0);
  EXPECT_EQ(lseek(fd.get(), 0, SEEK_END), 100'003);
}

TEST_F(Posix, AttributesOfAnOpenWriterFollowItsWrites) {
  Fd fd = Create("f");
  const Buffer data = Pattern(300'000, 1);
  for (int piece = 1; piece <= 3; ++piece) {
    ASSERT_EQ(write(fd.get(), data.data() + (piece - 1) * 100'000, 100'000), 100'000);
    struct stat st {};
    ASSERT_EQ(fstat(fd.get(), &st), 0);
    EXPECT_EQ(st.st_size, piece * 100'000);
    EXPECT_EQ(Stat(P("f")).st_size, piece * 100'000);
    EXPECT_EQ(lseek(fd.get(), 0, SEEK_END), piece * 100'000);
  }
  fd.Reset();
  EXPECT_EQ(VerifyFile(P("f"), 1, 300'000), "");
  EXPECT_GE(Stat(P("f")).st_blocks * 512, 300'000);
}

TEST_F(Posix, AFileMayBeWrittenThroughTwoHandlesOfOneProcess) {
  Fd first = Create("f");
  Fd second = Create("f", O_RDWR);
  ASSERT_EQ(pwrite(first.get(), "AAAA", 4, 0), 4);
  ASSERT_EQ(pwrite(second.get(), "BB", 2, 2), 2);
  char bytes[4];
  ASSERT_EQ(pread(first.get(), bytes, 4, 0), 4);
  EXPECT_EQ(std::string(bytes, 4), "AABB");
}

TEST_F(Posix, SharedMappingsWriteTheFile) {
  constexpr size_t kSize = 1 << 20;
  const Buffer data = Pattern(kSize, 3);
  Fd fd = Create("f");
  ASSERT_EQ(ftruncate(fd.get(), kSize), 0);
  void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(memory, MAP_FAILED) << strerror(errno);
  memcpy(memory, data.data(), kSize);
  ASSERT_EQ(msync(memory, kSize, MS_SYNC), 0);
  Buffer back(kSize);
  ASSERT_EQ(pread(fd.get(), back.data(), kSize, 0), static_cast<ssize_t>(kSize));
  EXPECT_EQ(Verify(back, 3, kSize), "");
  fd.Reset();
  EXPECT_EQ(Verify({static_cast<uint8_t*>(memory), kSize}, 3, kSize), "");
  munmap(memory, kSize);
  EXPECT_EQ(VerifyFile(P("f"), 3, kSize), "");
}

TEST_F(Posix, BytesWrittenThroughAMappingAfterCloseAreInTheFile) {
  constexpr size_t kSize = 256 << 10;
  const Buffer data = Pattern(kSize, 4);
  RunInProcess([&] {
    Fd fd = Create("f.tmp");
    Sys(ftruncate(fd.get(), kSize), "ftruncate");
    void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    Check(memory != MAP_FAILED, "mmap");
    fd.Reset();
    memcpy(memory, data.data(), kSize);
    munmap(memory, kSize);
    Sys(rename(P("f.tmp").c_str(), P("f").c_str()), "rename");
  });
  EXPECT_EQ(VerifyFile(P("f"), 4, kSize), "");
}

TEST_F(Posix, PrivateMappingsReadTheFileAndChangeOnlyThemselves) {
  constexpr size_t kSize = 256 << 10;
  WriteFile(P("f"), Pattern(kSize, 5));
  Fd fd = Create("f", O_RDONLY);
  void* memory =
      mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(Verify({static_cast<uint8_t*>(memory), kSize}, 5, kSize), "");
  memset(memory, 0, kSize);
  munmap(memory, kSize);
  EXPECT_EQ(VerifyFile(P("f"), 5, kSize), "");
}

TEST_F(Posix, FtruncateShortensAndExtendsWithZeros) {
  Fd fd = Create("f");
  ASSERT_EQ(write(fd.get(), "0123456789", 10), 10);
  ASSERT_EQ(ftruncate(fd.get(), 4), 0);
  ASSERT_EQ(ftruncate(fd.get(), 8), 0);
  char bytes[10];
  ASSERT_EQ(pread(fd.get(), bytes, 10, 0), 8);
  EXPECT_EQ(std::string(bytes, 8), std::string("0123\0\0\0\0", 8));
  fd.Reset();
  ASSERT_EQ(truncate(P("f").c_str(), 2), 0);
  EXPECT_EQ(ReadText(P("f")), "01");
}

TEST_F(Posix, RewritingCuttingAndAppendingAddUpHoweverQuicklyTheyFollow) {
  const Buffer data = Pattern(40'000, 1);
  for (int round = 0; round < 400; ++round) {
    WriteFile(P("f"), data);
    ASSERT_EQ(Name(truncate(P("f").c_str(), 20'000)), "") << "round " << round;
    ASSERT_EQ(Stat(P("f")).st_size, 20'000) << "round " << round;
    Fd fd = Create("f", O_WRONLY | O_APPEND);
    ASSERT_EQ(write(fd.get(), data.data() + 20'000, 20'000), 20'000);
    fd.Reset();
    ASSERT_EQ(VerifyFile(P("f"), 1, 40'000), "") << "round " << round;
    if (round % 2 == 0) {
      ASSERT_EQ(Name(unlink(P("f").c_str())), "") << "round " << round;
    }
  }
}

TEST_F(Posix, FallocateReservesAndExtends) {
  Fd fd = Create("f");
  ASSERT_EQ(fallocate(fd.get(), 0, 0, 8 << 20), 0) << strerror(errno);
  struct stat st {};
  ASSERT_EQ(fstat(fd.get(), &st), 0);
  EXPECT_EQ(st.st_size, 8 << 20);
  EXPECT_GE(st.st_blocks * 512, 8 << 20);
  ASSERT_EQ(pwrite(fd.get(), "x", 1, (8 << 20) - 1), 1);
  fd.Reset();
  EXPECT_EQ(Stat(P("f")).st_size, 8 << 20);
}

TEST_F(Posix, ASparseFileOfATebibyteTakesNoSpace) {
  constexpr off_t kTebibyte = 1ll << 40;
  Fd fd = Create("f");
  ASSERT_EQ(ftruncate(fd.get(), kTebibyte), 0) << strerror(errno);
  ASSERT_EQ(pwrite(fd.get(), "end", 3, kTebibyte - 3), 3);
  struct stat st {};
  ASSERT_EQ(fstat(fd.get(), &st), 0);
  EXPECT_EQ(st.st_size, kTebibyte);
  EXPECT_LT(st.st_blocks * 512, 8 << 20);
  fd.Reset();
  EXPECT_EQ(Stat(P("f")).st_size, kTebibyte);
  fd = Create("f", O_RDONLY);
  char bytes[8];
  ASSERT_EQ(pread(fd.get(), bytes, 8, kTebibyte - 3), 3);
  EXPECT_EQ(std::string(bytes, 3), "end");
  ASSERT_EQ(pread(fd.get(), bytes, 8, 1ll << 39), 8);
  EXPECT_EQ(std::string(bytes, 8), std::string(8, '\0'));
  EXPECT_EQ(unlink(P("f").c_str()), 0);
}

TEST_F(Posix, AlignedDirectIoReadsAndWrites) {
  constexpr size_t kSize = 1 << 20;
  Fd fd = Create("f", O_RDWR | O_CREAT | O_EXCL | O_DIRECT);
  const Buffer data = Pattern(kSize, 6);
  ASSERT_EQ(pwrite(fd.get(), data.data(), kSize, 0), static_cast<ssize_t>(kSize))
      << strerror(errno);
  fd.Reset();
  fd = Create("f", O_RDONLY | O_DIRECT);
  Buffer back(kSize);
  ASSERT_EQ(pread(fd.get(), back.data(), kSize, 0), static_cast<ssize_t>(kSize)) << strerror(errno);
  EXPECT_EQ(Verify(back, 6, kSize), "");
}

TEST_F(Posix, AnUnlinkedFileLivesAsLongAsItsHandles) {
  Fd fd = Create("f");
  ASSERT_EQ(write(fd.get(), "before", 6), 6);
  ASSERT_EQ(unlink(P("f").c_str()), 0);
  EXPECT_FALSE(Exists(P("f")));
  ASSERT_EQ(pwrite(fd.get(), " after", 6, 6), 6);
  ASSERT_EQ(ftruncate(fd.get(), 12), 0) << strerror(errno);
  char bytes[16];
  ASSERT_EQ(pread(fd.get(), bytes, 16, 0), 12);
  EXPECT_EQ(std::string(bytes, 12), "before after");
  struct stat st {};
  ASSERT_EQ(fstat(fd.get(), &st), 0);
  EXPECT_EQ(st.st_size, 12);
  EXPECT_EQ(st.st_nlink, 0u);
  WriteText(P("f"), "another");
  ASSERT_EQ(pread(fd.get(), bytes, 16, 0), 12);
  EXPECT_EQ(ReadText(P("f")), "another");
}

TEST_F(Posix, AnUnlinkedSealedFileCanStillBeReadThroughItsHandle) {
  WriteFile(P("f"), Pattern(100'000, 7));
  Fd fd = Create("f", O_RDONLY);
  ASSERT_EQ(unlink(P("f").c_str()), 0);
  Buffer back(100'000);
  ASSERT_EQ(pread(fd.get(), back.data(), 100'000, 0), 100'000);
  EXPECT_EQ(Verify(back, 7, 100'000), "");
}

TEST_F(Posix, FsyncAndFdatasyncSucceedOnFilesAndDirectories) {
  Fd fd = Create("f");
  ASSERT_EQ(write(fd.get(), "x", 1), 1);
  EXPECT_EQ(Name(fsync(fd.get())), "");
  EXPECT_EQ(Name(fdatasync(fd.get())), "");
  const Fd directory(open(directory_.c_str(), O_RDONLY | O_DIRECTORY));
  EXPECT_EQ(Name(fsync(directory.get())), "");
  EXPECT_EQ(ReadText(P("f")), "x");
}

TEST_F(Posix, CopyFileRangeCopiesEveryByte) {
  WriteFile(P("from"), Pattern(500'000, 8));
  const Fd from = Create("from", O_RDONLY);
  Fd to = Create("to");
  for (size_t done = 0; done < 500'000;) {
    const ssize_t copied =
        copy_file_range(from.get(), nullptr, to.get(), nullptr, 500'000 - done, 0);
    ASSERT_GT(copied, 0) << strerror(errno);
    done += static_cast<size_t>(copied);
  }
  to.Reset();
  EXPECT_EQ(VerifyFile(P("to"), 8, 500'000), "");
}

TEST_F(Posix, UnknownIoctlsAnswerEnotty) {
  const Fd fd = Create("f");
  termios terminal{};
  EXPECT_EQ(Name(ioctl(fd.get(), TCGETS, &terminal)), "ENOTTY");
  int value = 0;
  EXPECT_EQ(Name(ioctl(fd.get(), _IOR('~', 77, int), &value)), "ENOTTY");
}

TEST_F(Posix, StatfsDescribesBlocksOf4KiBAndLeavesRoom) {
  struct statvfs space {};
  ASSERT_EQ(statvfs(directory_.c_str(), &space), 0);
  EXPECT_EQ(space.f_bsize, 4096u);
  ASSERT_GT(space.f_blocks, 0u);
  EXPECT_LT(static_cast<double>(space.f_blocks - space.f_bavail),
            0.8 * static_cast<double>(space.f_blocks));
  EXPECT_EQ(space.f_namemax, 255u);
  EXPECT_GE(space.f_blocks * space.f_frsize, 1ull << 30) << "less than the budget";
}

}  // namespace
}  // namespace prefixfs
