#include "tools/fsck/scan.h"

namespace prefixfs::fsck {
namespace {
constexpr int kMostLevels = 64;
}

std::string_view Scan::RecordBytes(uint64_t ino) const {
  if (snapshot == nullptr || catalog.IsDamaged(ino)) return {};
  return snapshot->Get(Table::kInodes, BigEndian(ino)).value_or(std::string_view());
}

std::string Scan::PathOf(uint64_t ino) const {
  std::string path;
  for (int level = 0; ino != kRootIno && level < kMostLevels; ++level) {
    Record record;
    if (!ReadRecord(RecordBytes(ino), &record).empty()) return "?/" + path;
    path = path.empty() ? std::string(record.name) : std::string(record.name) + "/" + path;
    ino = record.head.parent;
  }
  return path;
}

void Scan::AddToIndex(Kind kind, uint64_t ino, std::string what) {
  const std::string path = ino == 0 ? "" : PathOf(ino);
  if (!path.empty()) what = path + ": " + what;
  report.Add({.kind = kind,
              .ino = ino,
              .what = std::move(what),
              .remedy = Remedy::kRebuildIndex,
              .drops_index = true});
}

}  // namespace prefixfs::fsck
