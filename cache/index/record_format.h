// The fixed head of a record, and the rules that every inode keeps. Private to cache/index.
// Format: docs/DATA_FORMAT.md. All integers are little-endian; the code runs on little-endian
// machines only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "cache/base/status.h"
#include "cache/index/record.h"

namespace prefixfs::record_format {

static_assert(std::endian::native == std::endian::little, "records are read and written in place");

constexpr uint32_t kMagic = 0x52534650;  // "PFSR"
constexpr uint16_t kVersion = 1;

// Followed by name, hash and target, without terminators or padding.
struct [[gnu::packed]] Head {
  uint32_t magic;
  uint16_t version;
  uint16_t head_bytes;  // sizeof(Head)
  uint64_t digest;      // XXH3-64 of everything after this field, to the record's end
  uint64_t ino;
  uint64_t parent;
  uint64_t size;
  uint64_t allocated;
  int64_t atime_ns;
  int64_t mtime_ns;
  int64_t ctime_ns;
  int64_t btime_ns;
  uint64_t epoch;
  uint8_t block[16];
  uint8_t checksum[16];
  uint32_t mode;
  uint32_t uid;
  uint32_t gid;
  uint32_t flags;
  uint32_t model;
  int32_t rank;
  uint16_t drive;
  uint8_t state;
  uint8_t checksum_kind;
  uint16_t name_bytes;
  uint16_t target_bytes;
  uint8_t hash_bytes;
  uint8_t reserved[3];  // zero
};

static_assert(sizeof(Head) == 156);
static_assert(offsetof(Head, digest) == 8);
static_assert(offsetof(Head, ino) == 16);
static_assert(offsetof(Head, atime_ns) == 48);
static_assert(offsetof(Head, epoch) == 80);
static_assert(offsetof(Head, block) == 88);
static_assert(offsetof(Head, checksum) == 104);
static_assert(offsetof(Head, mode) == 120);
static_assert(offsetof(Head, rank) == 140);
static_assert(offsetof(Head, drive) == 144);
static_assert(offsetof(Head, name_bytes) == 148);
static_assert(offsetof(Head, hash_bytes) == 152);

constexpr size_t kDigestedFrom = offsetof(Head, digest) + sizeof(Head::digest);

// What must hold for any inode, decoded or to be encoded: kInvalid or kTooLong with the reason.
Status CheckInode(const Inode& inode);

}  // namespace prefixfs::record_format
