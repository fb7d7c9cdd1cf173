// Direct I/O at any place of a file, on a filesystem that has it (else the tests are skipped).
#include "cache/store/direct_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace prefixfs {
namespace {

constexpr size_t kSize = 70'273;

class DirectIo : public ::testing::Test {
 protected:
  void SetUp() override {
    // Not /tmp: it may be a tmpfs, whose O_DIRECT takes everything.
    char path[] = "/var/tmp/prefixfs-direct-io-XXXXXX";
    fd_ = Fd(mkostemp(path, O_CLOEXEC));
    ASSERT_TRUE(fd_.valid()) << strerror(errno);
    unlink(path);
    direct_ = ReopenDirect(fd_.get());
    if (!direct_.valid()) GTEST_SKIP() << "no O_DIRECT on /var/tmp";
    file_ = {fd_.get(), direct_.get(), 4096};
    content_.resize(kSize);
    for (size_t i = 0; i < kSize; ++i) content_[i] = static_cast<char>(i * 7 + i / 251);
  }

  std::string Read(uint64_t offset, size_t size) {
    const TransferMemory memory(BlocksAround(file_, offset, size));
    const auto bytes = ReadDirect(file_, offset, size, memory.bytes());
    return bytes.ok() ? std::string(bytes->data(), bytes->size()) : bytes.status().ToString();
  }
  size_t Write(uint64_t offset, std::span<const char> bytes) {
    const auto written = WriteDirect(file_, offset, bytes, 0);
    return written.ok() ? *written : 0;
  }

  Fd fd_, direct_;
  DataFile file_;
  std::string content_;
};

TEST_F(DirectIo, ReadsAnyRangeAndStopsAtTheEndOfTheFile) {
  ASSERT_EQ(Write(0, content_), kSize);
  EXPECT_EQ(Read(0, kSize), content_);
  EXPECT_EQ(Read(1, 5000), content_.substr(1, 5000));
  EXPECT_EQ(Read(4095, 2), content_.substr(4095, 2));
  EXPECT_EQ(Read(kSize - 1, 100), content_.substr(kSize - 1));
  EXPECT_EQ(Read(60'000, 1 << 20), content_.substr(60'000));
  EXPECT_EQ(Read(kSize, 100), "");
  EXPECT_EQ(Read(1 << 20, 100), "");
}

TEST_F(DirectIo, WritesTouchNoByteBeyondTheirRange) {
  ASSERT_EQ(Write(0, content_), kSize);
  for (const auto& [offset, size] :
       {std::pair<size_t, size_t>{0, 1}, {4095, 2}, {4096, 8192}, {8000, 30'000}, {69'632, 641}}) {
    const std::string patch(size, static_cast<char>('a' + offset % 26));
    ASSERT_EQ(Write(offset, patch), size);
    content_.replace(offset, size, patch);
    EXPECT_EQ(Read(0, kSize), content_) << offset;
  }
  struct stat st {};
  ASSERT_EQ(fstat(fd_.get(), &st), 0);
  EXPECT_EQ(st.st_size, static_cast<off_t>(kSize)) << "padded";
}

TEST_F(DirectIo, WholeBlocksAreWrittenFromAnyAddressPastThePageCache) {
  constexpr size_t kBlocks = 16 * 4096;
  if (Write(0, std::span<const char>(content_).subspan(1, kBlocks)) != kBlocks)
    GTEST_SKIP() << "the drive takes no direct write of 4096";
  EXPECT_FALSE(IsCached(fd_.get(), 0, kBlocks));
  EXPECT_EQ(Read(0, kBlocks), content_.substr(1, kBlocks));
}

TEST_F(DirectIo, TransferMemoryIsAlignedAndLentAgain) {
  const char* first;
  {
    const TransferMemory memory(1 << 20);
    first = memory.bytes().data();
    EXPECT_EQ(memory.bytes().size(), size_t{1} << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % kDirectMemoryAlignment, 0u);
    const TransferMemory other(1 << 20);
    EXPECT_NE(other.bytes().data(), first);
  }
  const TransferMemory again(1 << 20);
  EXPECT_EQ(again.bytes().data(), first);
  EXPECT_TRUE(TransferMemory(size_t{1} << 30).bytes().empty());
}

}  // namespace
}  // namespace prefixfs
