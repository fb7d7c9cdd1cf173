// Inode and its record: the one on-disk form of a name and what stands behind it. The same bytes are the
// value in the index (LMDB) and the header in the backing file's xattr, so that the index can be rebuilt
// from the backing files alone. Format: docs/DATA_FORMAT.md.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/status.h"

namespace prefixfs {

// One incarnation of a name: a number that is never used again, also the FUSE node id. The root is 1.
using Ino = uint64_t;
constexpr Ino kRootIno = 1;

// Names the backing file: 128 unguessable bits, 32 hex digits in the file's name.
using BlockId = std::array<uint8_t, 16>;
std::string ToHex(const BlockId& id);
Result<BlockId> BlockIdFromHex(std::string_view hex);
BlockId RandomBlockId();

enum class FileState : uint8_t {
  kNone = 0,    // not a regular file
  kOpen = 1,    // published, a writer may still hold it; settled at the next start
  kSealed = 2,  // complete and immutable
  kPosix = 3,   // an ordinary file: never sealed, never evicted
};

enum class ChecksumKind : uint8_t { kNone = 0, kXxh3_128 = 1 };

namespace inode_flag {
constexpr uint32_t kUnverified = 1u << 0;  // survived a crash: its checksum is checked at first open
constexpr uint32_t kKeep = 1u << 1;        // a directory that is never reaped
constexpr uint32_t kPosix = 1u << 2;       // a directory whose new files are kPosix
}  // namespace inode_flag

struct Inode {
  Ino ino = 0;
  Ino parent = 0;
  std::string name;  // 1 to 255 bytes, no '/', no NUL; empty for the root only

  uint32_t mode = 0;  // type and permissions, as in stat(2)
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t flags = 0;  // inode_flag
  FileState state = FileState::kNone;

  uint64_t size = 0;       // bytes as clients see them
  uint64_t allocated = 0;  // bytes of the backing filesystem, st_blocks * 512
  int64_t atime_ns = 0, mtime_ns = 0, ctime_ns = 0, btime_ns = 0;

  BlockId block{};     // regular files
  uint16_t drive = 0;  // regular files: slot in the drive table
  ChecksumKind checksum_kind = ChecksumKind::kNone;
  std::array<uint8_t, 16> checksum{};
  uint64_t epoch = 0;  // of the namespace when published

  uint32_t model = 0;  // id in the index's model table, 0 is unknown; not carried in headers
  int32_t rank = -1;
  std::string hash;    // prefix hash as raw bytes, at most 64; empty if the name is opaque
  std::string target;  // symlinks, at most 4095 bytes

  bool IsDirectory() const { return S_ISDIR(mode); }
  bool IsFile() const { return S_ISREG(mode); }
  bool IsSymlink() const { return S_ISLNK(mode); }
  bool Has(uint32_t flag) const { return (flags & flag) != 0; }
};

constexpr size_t kMaxName = 255;
constexpr size_t kMaxHash = 64;
constexpr size_t kMaxTarget = 4095;

enum class RecordUse {
  kIndex,   // everything
  kHeader,  // without hash and model, which the name gives again: small enough to stay in the inode
};

// Never fails for an Inode that keeps the limits above (asserted).
std::string EncodeRecord(const Inode& inode, RecordUse use);

// kCorrupt with the reason if the bytes are no whole record: wrong magic, unknown version, lengths that do not
// fit, a digest that does not hold, a name that cannot be one. Never reads outside `bytes`.
Result<Inode> DecodeRecord(std::span<const uint8_t> bytes);

// The same for whoever reads very many records for their numbers: name, hash and target stay empty, and the rules
// that an inode keeps are not checked; the digest is.
Result<Inode> DecodeRecordNumbers(std::span<const uint8_t> bytes);

}  // namespace prefixfs
