#include "cache/index/record.h"

#include <sys/random.h>
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cache/index/record_format.h"

namespace prefixfs {
namespace {

using record_format::Head;

Status Corrupt(const char* why) { return Status(Code::kCorrupt, std::string("record: ") + why); }

uint64_t DigestOf(const char* record, size_t size) {
  return XXH3_64bits(record + record_format::kDigestedFrom, size - record_format::kDigestedFrom);
}

void FillHead(const Inode& inode, Head& head) {
  head.magic = record_format::kMagic;
  head.version = record_format::kVersion;
  head.head_bytes = sizeof(Head);
  head.ino = inode.ino;
  head.parent = inode.parent;
  head.size = inode.size;
  head.allocated = inode.allocated;
  head.atime_ns = inode.atime_ns;
  head.mtime_ns = inode.mtime_ns;
  head.ctime_ns = inode.ctime_ns;
  head.btime_ns = inode.btime_ns;
  head.epoch = inode.epoch;
  std::memcpy(head.block, inode.block.data(), sizeof(head.block));
  std::memcpy(head.checksum, inode.checksum.data(), sizeof(head.checksum));
  head.mode = inode.mode;
  head.uid = inode.uid;
  head.gid = inode.gid;
  head.flags = inode.flags;
  head.rank = inode.rank;
  head.drive = inode.drive;
  head.state = static_cast<uint8_t>(inode.state);
  head.checksum_kind = static_cast<uint8_t>(inode.checksum_kind);
  head.name_bytes = static_cast<uint16_t>(inode.name.size());
  head.target_bytes = static_cast<uint16_t>(inode.target.size());
}

void FillInode(const Head& head, Inode& inode) {
  inode.ino = head.ino;
  inode.parent = head.parent;
  inode.size = head.size;
  inode.allocated = head.allocated;
  inode.atime_ns = head.atime_ns;
  inode.mtime_ns = head.mtime_ns;
  inode.ctime_ns = head.ctime_ns;
  inode.btime_ns = head.btime_ns;
  inode.epoch = head.epoch;
  std::memcpy(inode.block.data(), head.block, sizeof(head.block));
  std::memcpy(inode.checksum.data(), head.checksum, sizeof(head.checksum));
  inode.mode = head.mode;
  inode.uid = head.uid;
  inode.gid = head.gid;
  inode.flags = head.flags;
  inode.model = head.model;
  inode.rank = head.rank;
  inode.drive = head.drive;
  inode.state = static_cast<FileState>(head.state);
  inode.checksum_kind = static_cast<ChecksumKind>(head.checksum_kind);
}

Status CheckName(const Inode& inode) {
  if (inode.ino == kRootIno) {
    return inode.name.empty() ? Ok() : Status(Code::kInvalid, "the root has a name");
  }
  if (inode.name.empty()) return {Code::kInvalid, "empty name"};
  if (inode.name.size() > kMaxName) return {Code::kTooLong, "name of more than 255 bytes"};
  if (inode.name == "." || inode.name == "..") return {Code::kInvalid, "name is a dot entry"};
  if (inode.name.find('/') != std::string::npos || inode.name.find('\0') != std::string::npos) {
    return {Code::kInvalid, "name with a slash or NUL"};
  }
  return Ok();
}

Status CheckType(const Inode& inode) {
  switch (inode.mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
      break;
    default:
      return {Code::kInvalid, "mode without a file type"};
  }
  if ((inode.mode & ~static_cast<uint32_t>(S_IFMT | 07777)) != 0) {
    return {Code::kInvalid, "mode with unknown bits"};
  }
  if (inode.state > FileState::kPosix) return {Code::kInvalid, "unknown state"};
  if (inode.IsFile() != (inode.state != FileState::kNone)) {
    return {Code::kInvalid, "state and type disagree"};
  }
  if (inode.checksum_kind > ChecksumKind::kXxh3_128) {
    return {Code::kInvalid, "unknown kind of checksum"};
  }
  if (inode.checksum_kind != ChecksumKind::kNone && !inode.IsFile()) {
    return {Code::kInvalid, "checksum on what is no file"};
  }
  return Ok();
}

}  // namespace

Status record_format::CheckInode(const Inode& inode) {
  if (inode.ino == 0) return {Code::kInvalid, "inode number 0"};
  if (inode.ino == kRootIno) {
    if (!inode.IsDirectory()) return {Code::kInvalid, "the root is no directory"};
    if (inode.parent != kRootIno) return {Code::kInvalid, "the root is not its own parent"};
  } else if (inode.parent == 0 || inode.parent == inode.ino) {
    return {Code::kInvalid, "no such parent"};
  }
  PFS_TRY(CheckName(inode));
  PFS_TRY(CheckType(inode));
  if (inode.hash.size() > kMaxHash) return {Code::kTooLong, "hash of more than 64 bytes"};
  if (inode.target.size() > kMaxTarget) return {Code::kTooLong, "target of more than 4095 bytes"};
  if (inode.IsSymlink() == inode.target.empty()) {
    return {Code::kInvalid, "target and type disagree"};
  }
  if (inode.target.find('\0') != std::string::npos) return {Code::kInvalid, "target with a NUL"};
  return Ok();
}

std::string EncodeRecord(const Inode& inode, RecordUse use) {
  assert(record_format::CheckInode(inode).ok());
  const bool everything = use == RecordUse::kIndex;
  Head head{};
  FillHead(inode, head);
  head.model = everything ? inode.model : 0;
  head.hash_bytes = everything ? static_cast<uint8_t>(inode.hash.size()) : 0;

  std::string record;
  record.reserve(sizeof(Head) + inode.name.size() + head.hash_bytes + inode.target.size());
  record.append(reinterpret_cast<const char*>(&head), sizeof(head));
  record.append(inode.name);
  if (everything) record.append(inode.hash);
  record.append(inode.target);
  const uint64_t digest = DigestOf(record.data(), record.size());
  std::memcpy(record.data() + offsetof(Head, digest), &digest, sizeof(digest));
  return record;
}

namespace {

// The head of a record whose digest holds.
Result<Head> ReadHead(std::span<const uint8_t> bytes) {
  if (bytes.size() < sizeof(Head)) return Corrupt("shorter than its head");
  Head head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic != record_format::kMagic) return Corrupt("wrong magic");
  if (head.version != record_format::kVersion) return Corrupt("unknown version");
  if (head.head_bytes != sizeof(Head)) return Corrupt("unknown head length");
  const size_t want =
      sizeof(Head) + size_t{head.name_bytes} + size_t{head.hash_bytes} + size_t{head.target_bytes};
  if (bytes.size() != want) return Corrupt("lengths do not fit");
  const char* text = reinterpret_cast<const char*>(bytes.data());
  if (DigestOf(text, bytes.size()) != head.digest) return Corrupt("digest does not hold");
  if (std::any_of(std::begin(head.reserved), std::end(head.reserved),
                  [](uint8_t b) { return b != 0; })) {
    return Corrupt("reserved bytes are set");
  }
  return head;
}

}  // namespace

Result<Inode> DecodeRecordNumbers(std::span<const uint8_t> bytes) {
  const Head head = PFS_TRY(ReadHead(bytes));
  Inode inode;
  FillInode(head, inode);
  return inode;
}

Result<Inode> DecodeRecord(std::span<const uint8_t> bytes) {
  const Head head = PFS_TRY(ReadHead(bytes));
  Inode inode;
  FillInode(head, inode);
  const char* text = reinterpret_cast<const char*>(bytes.data()) + sizeof(Head);
  inode.name.assign(text, head.name_bytes);
  text += head.name_bytes;
  inode.hash.assign(text, head.hash_bytes);
  text += head.hash_bytes;
  inode.target.assign(text, head.target_bytes);
  if (Status rules = record_format::CheckInode(inode); !rules.ok()) {
    return Corrupt(rules.message().c_str());
  }
  return inode;
}

std::string ToHex(const BlockId& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(id.size() * 2);
  for (uint8_t byte : id) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

Result<BlockId> BlockIdFromHex(std::string_view hex) {
  BlockId id{};
  if (hex.size() != id.size() * 2) return {Code::kInvalid, "a block id has 32 hex digits"};
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    uint8_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint8_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {  // lower case only: one text for one id
      digit = static_cast<uint8_t>(c - 'a' + 10);
    } else {
      return {Code::kInvalid, "a block id has 32 lower-case hex digits"};
    }
    id[i / 2] = static_cast<uint8_t>((id[i / 2] << 4) | digit);
  }
  return id;
}

BlockId RandomBlockId() {
  BlockId id{};
  size_t have = 0;
  while (have < id.size()) {
    const ssize_t got = ::getrandom(id.data() + have, id.size() - have, 0);
    if (got < 0 && errno == EINTR) continue;
    // Without randomness names could collide and blocks would overwrite each other.
    if (got <= 0) std::abort();
    have += static_cast<size_t>(got);
  }
  return id;
}

}  // namespace prefixfs
