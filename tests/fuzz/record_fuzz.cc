// The record, which is an index value and a backing file's header: whatever decodes must encode to
// the same bytes again.
#include <xxhash.h>

#include <cstring>
#include <span>

#include "cache/index/record.h"
#include "cache/index/record_format.h"
#include "tests/fuzz/fuzz.h"

namespace prefixfs {
namespace {

std::span<const uint8_t> AsSpan(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

void Check(std::string_view bytes) {
  const Result<Inode> inode = DecodeRecord(AsSpan(bytes));
  const Result<Inode> numbers = DecodeRecordNumbers(AsSpan(bytes));
  if (!inode.ok()) {
    FUZZ_CHECK(inode.status().Is(Code::kCorrupt) && !inode.status().message().empty());
    return;
  }
  FUZZ_CHECK(EncodeRecord(*inode, RecordUse::kIndex) == bytes);
  FUZZ_CHECK(numbers.ok() && numbers->ino == inode->ino && numbers->size == inode->size);
  FUZZ_CHECK(numbers->name.empty() && numbers->block == inode->block);
  Inode header = *inode;
  header.hash.clear();
  header.model = 0;
  const std::string text = EncodeRecord(*inode, RecordUse::kHeader);
  FUZZ_CHECK(text == EncodeRecord(header, RecordUse::kIndex));
  FUZZ_CHECK(DecodeRecord(AsSpan(text)).ok());
  FUZZ_CHECK(BlockIdFromHex(ToHex(inode->block)).value() == inode->block);
}

// With the head and the digest that bytes of this length would have.
std::string Mended(std::string_view bytes) {
  std::string mended(bytes);
  record_format::Head head{};
  if (mended.size() < sizeof(head)) return mended;
  std::memcpy(&head, mended.data(), sizeof(head));
  head.magic = record_format::kMagic;
  head.version = record_format::kVersion;
  head.head_bytes = sizeof(head);
  const size_t rest = mended.size() - sizeof(head);
  if (rest >= size_t{head.hash_bytes} + head.target_bytes)
    head.name_bytes = static_cast<uint16_t>(rest - head.hash_bytes - head.target_bytes);
  std::memcpy(mended.data(), &head, sizeof(head));
  head.digest = XXH3_64bits(mended.data() + record_format::kDigestedFrom,
                            mended.size() - record_format::kDigestedFrom);
  std::memcpy(mended.data(), &head, sizeof(head));
  return mended;
}

Inode Seed(uint32_t mode, std::string name) {
  Inode inode;
  inode.ino = 77;
  inode.parent = 5;
  inode.name = std::move(name);
  inode.mode = mode;
  inode.state = inode.IsFile() ? FileState::kSealed : FileState::kNone;
  if (inode.IsSymlink()) inode.target = "../elsewhere";
  if (!inode.IsFile()) return inode;
  inode.size = inode.allocated = 1 << 20;
  inode.checksum_kind = ChecksumKind::kXxh3_128;
  inode.checksum.fill(9);
  inode.hash = std::string(32, '\x5a');
  inode.model = 3;
  inode.rank = 2;
  return inode;
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  std::vector<std::string> seeds;
  for (const uint32_t mode : {S_IFREG | 0644u, S_IFDIR | 0755u, S_IFLNK | 0777u, S_IFIFO | 0600u}) {
    seeds.push_back(EncodeRecord(Seed(mode, "name"), RecordUse::kIndex));
    seeds.push_back(EncodeRecord(Seed(mode, std::string(255, 'n')), RecordUse::kHeader));
  }
  Inode root = Seed(S_IFDIR | 0755, "");
  root.ino = root.parent = kRootIno;
  seeds.push_back(EncodeRecord(root, RecordUse::kIndex));
  return seeds;
}

}  // namespace prefixfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = prefixfs::fuzz::Text(data, size);
  prefixfs::Check(bytes);
  prefixfs::Check(prefixfs::Mended(bytes));
  if (!prefixfs::BlockIdFromHex(bytes).ok()) return 0;
  FUZZ_CHECK(prefixfs::ToHex(*prefixfs::BlockIdFromHex(bytes)) == bytes);
  return 0;
}
