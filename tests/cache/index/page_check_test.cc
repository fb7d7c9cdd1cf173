// CheckPages on single damages that no digest covers, each of which LMDB would believe.
#include "cache/index/page_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "tests/cache/index/index_test_util.h"

namespace prefixfs {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kFlagsAt = 10, kUpperAt = 14;  // in struct MDB_page
constexpr uint16_t kBranch = 1, kLeaf = 2;

class PageCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    TempDir directory(FastBase());
    {
      const std::unique_ptr<Index> index = OpenIndex(directory.path());
      ASSERT_NE(index, nullptr);
      for (Ino ino = 10; ino < 60; ++ino) {
        ASSERT_OK(InsertOne(*index, MakeBlock(ino, kRootIno, "block" + std::to_string(ino), "h")));
      }
      ASSERT_OK(index->RaiseIno(100));
    }
    std::ifstream in(directory.path() + "/data.mdb", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    ASSERT_OK(Check(bytes_));
  }
  static Status Check(const std::string& bytes) {
    return CheckPages({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
  uint16_t At(size_t offset) const {
    uint16_t value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(value));
    return value;
  }

  std::string bytes_;
};

// LMDB puts the next node below the bound, where the check would refuse it from then on. Which
// pages are in use the test does not know: those whose damage is not found must be on the free
// list.
TEST_F(PageCheckTest, AnOddBoundOfNodesIsFound) {
  size_t pages = 0, found = 0;
  for (size_t page = 2 * kPage; page + kPage <= bytes_.size(); page += kPage) {
    const uint16_t flags = At(page + kFlagsAt);
    if (flags != kBranch && flags != kLeaf) continue;
    std::string bytes = bytes_;
    const auto odd = static_cast<uint16_t>(At(page + kUpperAt) - 1);
    std::memcpy(bytes.data() + page + kUpperAt, &odd, sizeof(odd));
    ++pages;
    found += Check(bytes).Is(Code::kCorrupt) ? 1 : 0;
  }
  EXPECT_GE(found, 7u) << "of " << pages << " pages";  // six tables and the main one
}

}  // namespace
}  // namespace prefixfs
