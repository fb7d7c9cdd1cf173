#include "cache/index/record.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <memory>
#include <random>
#include <set>

#include "cache/index/record_format.h"
#include "tests/cache/index/index_test_util.h"

namespace prefixfs {
namespace {

Inode FullBlock() {
  Inode inode = MakeBlock(0x1122334455667788, 42, std::string(70, 'n'), std::string(32, '\xfe'));
  inode.uid = 4'000'000'000;
  inode.gid = 3'000'000'000;
  inode.flags = inode_flag::kUnverified;
  inode.atime_ns = -1;
  inode.mtime_ns = 1'700'000'000'123'456'789;
  inode.ctime_ns = INT64_MAX;
  inode.btime_ns = INT64_MIN;
  inode.drive = 65'535;
  inode.epoch = UINT64_MAX;
  inode.model = 7;
  inode.rank = 3;
  return inode;
}

Inode Symlink() {
  Inode inode = MakeDirectory(9, 2, "link");
  inode.mode = S_IFLNK | 0777;
  inode.target = std::string(kMaxTarget, 't');
  return inode;
}

// An exact copy on the heap, so that AddressSanitizer sees any step outside.
Result<Inode> Decode(std::string_view record) {
  const size_t size = record.size();
  std::unique_ptr<uint8_t[]> exact(new uint8_t[size]);
  if (size > 0) std::memcpy(exact.get(), record.data(), size);
  // Without the texts the verdict on the bytes is the same.
  const Result<Inode> numbers = DecodeRecordNumbers({exact.get(), size});
  Result<Inode> inode = DecodeRecord({exact.get(), size});
  EXPECT_TRUE(!inode.ok() || (numbers.ok() && numbers->ino == inode->ino));
  return inode;
}

// As someone would who knows the format: the digest fits the bytes.
std::string Redigest(std::string record) {
  const uint64_t digest = XXH3_64bits(record.data() + record_format::kDigestedFrom,
                                      record.size() - record_format::kDigestedFrom);
  std::memcpy(record.data() + offsetof(record_format::Head, digest), &digest, sizeof(digest));
  return record;
}

void ExpectSame(const Inode& a, const Inode& b) {
  EXPECT_EQ(a.ino, b.ino);
  EXPECT_EQ(a.parent, b.parent);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.mode, b.mode);
  EXPECT_EQ(a.uid, b.uid);
  EXPECT_EQ(a.gid, b.gid);
  EXPECT_EQ(a.flags, b.flags);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.allocated, b.allocated);
  EXPECT_EQ(a.atime_ns, b.atime_ns);
  EXPECT_EQ(a.mtime_ns, b.mtime_ns);
  EXPECT_EQ(a.ctime_ns, b.ctime_ns);
  EXPECT_EQ(a.btime_ns, b.btime_ns);
  EXPECT_EQ(a.block, b.block);
  EXPECT_EQ(a.drive, b.drive);
  EXPECT_EQ(a.checksum_kind, b.checksum_kind);
  EXPECT_EQ(a.checksum, b.checksum);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.hash, b.hash);
  EXPECT_EQ(a.target, b.target);
}

TEST(Record, GivesBackEveryField) {
  for (const Inode& inode : {FullBlock(), Symlink(), MakeDirectory(5, 1, std::string(255, 'd'))}) {
    Result<Inode> back = Decode(EncodeRecord(inode, RecordUse::kIndex));
    ASSERT_OK(back.status());
    ExpectSame(*back, inode);
  }
}

TEST(Record, HeaderLeavesOutHashAndModelAndIsSmall) {
  const std::string header = EncodeRecord(FullBlock(), RecordUse::kHeader);
  EXPECT_LT(header.size(), 250u);
  Result<Inode> back = Decode(header);
  ASSERT_OK(back.status());
  Inode expected = FullBlock();
  expected.hash.clear();
  expected.model = 0;
  ExpectSame(*back, expected);
}

TEST(Record, LayoutOfVersionOneStaysAsItIs) {
  const std::string record = EncodeRecord(FullBlock(), RecordUse::kIndex);
  EXPECT_EQ(record.substr(0, 8), std::string("PFSR\x01\x00\x9c\x00", 8));
  EXPECT_EQ(record.substr(16, 8), "\x88\x77\x66\x55\x44\x33\x22\x11");
  EXPECT_EQ(record.size(), 156u + 70 + 32);
  EXPECT_EQ(record.substr(156, 70), std::string(70, 'n'));
  EXPECT_EQ(record.substr(226), std::string(32, '\xfe'));
}

TEST(Record, NumbersComeWithoutTexts) {
  const std::string record = EncodeRecord(FullBlock(), RecordUse::kIndex);
  const auto* bytes = reinterpret_cast<const uint8_t*>(record.data());
  const Result<Inode> numbers = DecodeRecordNumbers({bytes, record.size()});
  ASSERT_OK(numbers.status());
  Inode want = FullBlock();
  want.name.clear();
  want.hash.clear();
  ExpectSame(*numbers, want);
  std::string bad = record;
  bad.back() ^= 1;  // in a text
  EXPECT_CODE(
      DecodeRecordNumbers({reinterpret_cast<const uint8_t*>(bad.data()), bad.size()}).status(),
      Code::kCorrupt);
}

TEST(Record, AnyChangedByteIsCorrupt) {
  for (const Inode& inode : {FullBlock(), Symlink()}) {
    const std::string good = EncodeRecord(inode, RecordUse::kIndex);
    for (size_t at = 0; at < good.size(); ++at) {
      for (int flip : {0x01, 0x10, 0x80, 0xff}) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ flip);
        ASSERT_EQ(Decode(bad).status().code(), Code::kCorrupt) << "byte " << at;
      }
    }
  }
}

TEST(Record, AnyOtherLengthIsCorrupt) {
  const std::string good = EncodeRecord(Symlink(), RecordUse::kIndex);
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_EQ(Decode(good.substr(0, size)).status().code(), Code::kCorrupt) << size;
  }
  EXPECT_EQ(Decode(good + "x").status().code(), Code::kCorrupt);
  EXPECT_EQ(Decode(good + good).status().code(), Code::kCorrupt);
}

TEST(Record, RandomBytesAreCorrupt) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 600, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    ASSERT_EQ(Decode(bytes).status().code(), Code::kCorrupt);
  }
}

// Past the digest: whatever the fields say, the decoder stays inside and gives only inodes that
// keep the rules.
TEST(Record, BytesWithAFittingDigestAreDecodedByTheRules) {
  std::mt19937_64 random(2);
  const std::string good = EncodeRecord(FullBlock(), RecordUse::kIndex);
  int decoded = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes = good.substr(0, 156 + random() % (good.size() - 155));
    for (size_t n = 1 + random() % 4; n > 0; --n) {
      bytes[16 + random() % (bytes.size() - 16)] = static_cast<char>(random());
    }
    Result<Inode> inode = Decode(Redigest(bytes));
    if (!inode.ok()) {
      ASSERT_EQ(inode.status().code(), Code::kCorrupt);
      continue;
    }
    ++decoded;
    ASSERT_OK(record_format::CheckInode(*inode));
    ASSERT_EQ(AsBytes(*inode), Redigest(bytes));
  }
  EXPECT_GT(decoded, 0);
}

TEST(Record, WhatBreaksARuleIsCorrupt) {
  const auto rejects = [](size_t offset, std::string_view bytes, const Inode& inode) {
    std::string record = EncodeRecord(inode, RecordUse::kIndex);
    record.replace(offset, bytes.size(), bytes);
    EXPECT_CODE(Decode(Redigest(record)).status(), Code::kCorrupt);
  };
  using record_format::Head;
  const Inode block = FullBlock();
  rejects(offsetof(Head, ino), std::string(8, '\0'), block);
  rejects(offsetof(Head, parent), std::string(8, '\0'), block);
  rejects(offsetof(Head, mode), std::string(4, '\0'), block);
  rejects(offsetof(Head, mode), std::string("\xed\x41\0\0", 4),
          block);                                               // a directory that is sealed
  rejects(offsetof(Head, state), std::string(1, '\0'), block);  // a file without a state
  rejects(offsetof(Head, state), "\x04", block);
  rejects(offsetof(Head, checksum_kind), "\x02", block);
  rejects(offsetof(Head, reserved), "\x01", block);
  rejects(sizeof(Head) + 3, "/", block);
  rejects(sizeof(Head) + 3, std::string(1, '\0'), block);
  rejects(sizeof(Head), "..", MakeDirectory(5, 1, "ab"));
  rejects(sizeof(Head), ".", MakeDirectory(5, 1, "a"));
  rejects(offsetof(Head, checksum_kind), "\x01", MakeDirectory(5, 1, "a"));
  rejects(offsetof(Head, mode), std::string("\xff\xa1\0\0", 4), MakeDirectory(5, 1, "a"));
  rejects(sizeof(Head) + 4 + 100, std::string(1, '\0'), Symlink());
}

TEST(BlockId, HexGoesBothWays) {
  const BlockId id = RandomBlockId();
  const std::string hex = ToHex(id);
  EXPECT_EQ(hex.size(), 32u);
  Result<BlockId> back = BlockIdFromHex(hex);
  ASSERT_OK(back.status());
  EXPECT_EQ(*back, id);
}

TEST(BlockId, OnlyThirtyTwoLowerCaseDigitsAreAnId) {
  const std::string hex(32, 'a');
  EXPECT_TRUE(BlockIdFromHex(hex).ok());
  EXPECT_FALSE(BlockIdFromHex(hex.substr(1)).ok());
  EXPECT_FALSE(BlockIdFromHex(hex + "a").ok());
  EXPECT_FALSE(BlockIdFromHex("A" + hex.substr(1)).ok());
  EXPECT_FALSE(BlockIdFromHex("g" + hex.substr(1)).ok());
  EXPECT_FALSE(BlockIdFromHex("").ok());
}

TEST(BlockId, RandomOnesDiffer) {
  std::set<BlockId> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(RandomBlockId());
  EXPECT_EQ(seen.size(), 1000u);
}

}  // namespace
}  // namespace prefixfs
