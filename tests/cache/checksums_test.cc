#include "cache/checksums.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cache/base/fd.h"

namespace prefixfs {
namespace {

Fd FileWith(const std::string& content) {
  Fd fd(::memfd_create("block", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  return fd;
}

TEST(ChecksumsTest, IsXxh3OfTheWholeFile) {
  const std::string content(3'000'001, 'k');
  Fd fd = FileWith(content);
  const Result<Digest> digest = Checksums::Compute(fd.get(), content.size());
  ASSERT_TRUE(digest.ok());
  XXH128_canonical_t expected;
  XXH128_canonicalFromHash(&expected, XXH3_128bits(content.data(), content.size()));
  EXPECT_EQ(0, memcmp(digest->data(), expected.digest, sizeof expected.digest));
}

TEST(ChecksumsTest, ShorterOrLongerThanSealedIsCorrupt) {
  Fd fd = FileWith("twelve bytes");
  EXPECT_TRUE(Checksums::Compute(fd.get(), 13).status().Is(Code::kCorrupt));
  EXPECT_TRUE(Checksums::Compute(fd.get(), 11).status().Is(Code::kCorrupt));
  EXPECT_TRUE(Checksums::Compute(fd.get(), 12).ok());
}

TEST(ChecksumsTest, WorkerTakesBlocksInOrderAndSeveralAtOnce) {
  std::vector<Ino> seen;
  size_t most = 0;
  Checksums checksums([&](const std::vector<Ino>& blocks) {
    most = std::max(most, blocks.size());
    seen.insert(seen.end(), blocks.begin(), blocks.end());
  });
  for (Ino ino = 1; ino <= 100; ++ino) checksums.Enqueue(ino);
  checksums.Start();
  while (checksums.pending() > 0) ::usleep(1000);
  checksums.Stop();
  ASSERT_EQ(seen.size(), 100u);
  EXPECT_EQ(seen.front(), 1u);
  EXPECT_EQ(seen.back(), 100u);
  EXPECT_EQ(most, Checksums::kMostAtOnce);
}

}  // namespace
}  // namespace prefixfs
