#include "tools/fsck/record.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace prefixfs::fsck {
namespace {

using record_format::Head;

constexpr size_t kDigestAt = 8, kDigestedFrom = 16, kMostHash = 64;

uint64_t DigestOf(std::string_view record) {
  const std::string_view digested = record.substr(kDigestedFrom);
  return XXH3_64bits(digested.data(), digested.size());
}

std::string NameFault(const Head& head, std::string_view name) {
  if (head.ino == kRootIno) return name.empty() ? "" : "the root has a name";
  if (name.empty()) return "it has no name";
  if (name == "." || name == "..") return "its name is a dot entry";
  if (name.find('/') != name.npos || name.find('\0') != name.npos)
    return "its name has a slash or NUL";
  return name.size() > 255 ? "its name is too long" : "";
}

std::string TypeFault(const Head& head, std::string_view target) {
  const uint32_t type = head.mode & S_IFMT;
  const bool known = type == S_IFREG || type == S_IFDIR || type == S_IFLNK || type == S_IFIFO ||
                     type == S_IFSOCK || type == S_IFCHR || type == S_IFBLK;
  if (!known) return "its mode has no type";
  if ((head.mode & ~(S_IFMT | 07777u)) != 0) return "its mode has unknown bits";
  if (head.state > 3) return "its state is unknown";
  if ((type == S_IFREG) != (head.state != 0)) return "state and type disagree";
  if (head.checksum_kind > 1) return "its kind of checksum is unknown";
  if (head.checksum_kind != 0 && type != S_IFREG) return "a checksum on what is no file";
  if ((type == S_IFLNK) == target.empty()) return "target and type disagree";
  if (target.find('\0') != target.npos || target.size() > 4095) return "its target cannot be one";
  return "";
}

std::string RuleFault(const Record& record) {
  const Head& head = record.head;
  if (head.ino == 0) return "its number is 0";
  if (head.ino == kRootIno) {
    if (!S_ISDIR(head.mode)) return "the root is no directory";
    if (head.parent != kRootIno) return "the root is not its own parent";
  } else if (head.parent == 0 || head.parent == head.ino) {
    return "its parent cannot be one";
  }
  if (head.hash_bytes > kMostHash) return "its hash is too long";
  const bool zero = std::all_of(std::begin(head.block), std::end(head.block),
                                [](uint8_t byte) { return byte == 0; });
  if (zero == S_ISREG(head.mode)) return "block and type disagree";
  std::string fault = NameFault(head, record.name);
  return fault.empty() ? TypeFault(head, record.target) : fault;
}

}  // namespace

std::string ReadRecord(std::string_view bytes, Record* record) {
  Head& head = record->head;
  if (bytes.size() < sizeof(Head)) return "it is shorter than a record";
  std::memcpy(&head, bytes.data(), sizeof(Head));
  if (head.magic != record_format::kMagic) return "it does not begin as a record";
  if (head.version != record_format::kVersion) return "its version is unknown";
  if (head.head_bytes != sizeof(Head)) return "the length of its head is unknown";
  if (bytes.size() != sizeof(Head) + head.name_bytes + head.hash_bytes + head.target_bytes)
    return "its lengths do not add up";
  if (DigestOf(bytes) != head.digest) return "its digest does not hold";
  for (const uint8_t byte : head.reserved) {
    if (byte != 0) return "its reserved bytes are set";
  }
  record->name = bytes.substr(sizeof(Head), head.name_bytes);
  record->hash = bytes.substr(sizeof(Head) + head.name_bytes, head.hash_bytes);
  record->target = bytes.substr(sizeof(Head) + head.name_bytes + head.hash_bytes);
  return RuleFault(*record);
}

std::string HeaderOf(std::string_view record) {
  Head head;
  std::memcpy(&head, record.data(), sizeof(head));
  std::string header(record.substr(0, sizeof(head) + head.name_bytes));
  header += record.substr(sizeof(head) + head.name_bytes + head.hash_bytes);
  head.model = 0;
  head.hash_bytes = 0;
  std::memcpy(header.data(), &head, sizeof(head));
  const uint64_t digest = DigestOf(header);
  std::memcpy(header.data() + kDigestAt, &digest, sizeof(digest));
  return header;
}

std::string Differences(const Record& index, const Record& header) {
  const Head &a = index.head, &b = header.head;
  std::string fields;
  const auto compare = [&fields](bool same, const char* field) {
    if (!same) fields += fields.empty() ? field : std::string(", ") + field;
  };
  // Set and cleared while blocks that survived a crash are checked.
  constexpr uint32_t kLooseFlags = inode_flag::kUnverified;
  compare(a.ino == b.ino, "ino");
  compare(a.parent == b.parent, "parent");
  compare(index.name == header.name, "name");
  compare(a.size == b.size, "size");
  compare(a.mode == b.mode, "mode");
  compare(a.uid == b.uid && a.gid == b.gid, "owner");
  compare((a.flags | kLooseFlags) == (b.flags | kLooseFlags), "flags");
  compare(a.btime_ns == b.btime_ns && (!index.IsFile() || a.mtime_ns == b.mtime_ns), "times");
  compare(a.epoch == b.epoch, "epoch");
  compare(std::memcmp(a.block, b.block, sizeof(a.block)) == 0, "block");
  compare(a.state == b.state, "state");
  compare(a.checksum_kind == b.checksum_kind &&
              std::memcmp(a.checksum, b.checksum, sizeof(a.checksum)) == 0,
          "checksum");
  compare(index.target == header.target, "target");
  return fields;
}

}  // namespace prefixfs::fsck
