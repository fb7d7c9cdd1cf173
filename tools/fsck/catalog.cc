#include "tools/fsck/catalog.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace prefixfs::fsck {

uint64_t DigestOfName(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

Entry EntryOf(const Record& record) {
  Entry entry;
  entry.ino = record.head.ino;
  entry.parent = record.head.parent;
  entry.name_hash = DigestOfName(record.name);
  entry.prefix_hash = record.hash.empty() ? 0 : DigestOfName(record.hash);
  entry.size = record.head.size;
  std::memcpy(entry.block.data(), record.head.block, entry.block.size());
  entry.drive = record.head.drive;
  entry.type = static_cast<uint8_t>((record.head.mode & S_IFMT) >> 12);
  entry.state = record.head.state;
  entry.checksum_kind = record.head.checksum_kind;
  return entry;
}

void Catalog::SortBlocks() {
  by_block_.clear();
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].IsFile()) by_block_.push_back(i);
  }
  std::sort(by_block_.begin(), by_block_.end(),
            [this](uint32_t a, uint32_t b) { return entries_[a].block < entries_[b].block; });
}

Entry* Catalog::Find(uint64_t ino) {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), ino,
                       [](const Entry& entry, uint64_t number) { return entry.ino < number; });
  return at != entries_.end() && at->ino == ino ? &*at : nullptr;
}

Entry* Catalog::FindBlock(const Block& block) {
  const auto at = std::lower_bound(
      by_block_.begin(), by_block_.end(), block,
      [this](uint32_t i, const Block& wanted) { return entries_[i].block < wanted; });
  if (at == by_block_.end() || entries_[*at].block != block) return nullptr;
  return &entries_[*at];
}

std::vector<uint64_t> Catalog::MarkBlocksTwice() {
  std::vector<uint64_t> twice;
  for (size_t i = 1; i < by_block_.size(); ++i) {
    Entry& entry = entries_[by_block_[i]];
    Entry& before = entries_[by_block_[i - 1]];
    if (entry.block != before.block) continue;
    entry.Set(Entry::kTwice);
    before.Set(Entry::kTwice);
    twice.push_back(entry.ino);
  }
  return twice;
}

}  // namespace prefixfs::fsck
