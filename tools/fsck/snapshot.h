// Snapshot: the index as LMDB shows it to a reader that neither locks nor writes. The index's own
// lock, which the caller holds, keeps writers away.
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cache/base/status.h"

namespace prefixfs::fsck {

enum class Table { kMain, kInodes, kDentries, kChildren, kHashes, kModels, kTrash };
constexpr int kTables = 7;

class Snapshot {
 public:
  // `index` is a descriptor of DIR/index. Reads everything once in a child process first, because a
  // damaged file can take its reader down. kCorrupt with the reason if it cannot be read.
  static Result<std::unique_ptr<Snapshot>> Open(int index);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // The views stay good as long as the snapshot.
  std::optional<std::string_view> Get(Table table, std::string_view key) const;
  // Every entry in the order of keys.
  using Visit = std::function<void(std::string_view key, std::string_view value)>;
  Status ForEach(Table table, const Visit& visit) const;

  uint64_t transaction() const;  // the number of the last commit
  // Whether the pages in use and those on the free list are as many as the file has, and every
  // table has as many entries as it says. A text that says what is wrong, or an empty one.
  std::string PageFault() const;

 private:
  Snapshot() = default;
  Status OpenHere(int index);
  Status ReadAll() const;
  Result<uint64_t> CountFreePages() const;

  MDB_env* env_ = nullptr;
  MDB_txn* txn_ = nullptr;
  MDB_dbi tables_[kTables] = {};
};

// A big-endian number as keys and settings have it.
uint64_t BigEndian(std::string_view bytes);
std::string BigEndian(uint64_t value, size_t bytes = 8);
// The value before the digest that ends it; nothing if the digest does not hold.
std::optional<std::string_view> Unsealed(std::string_view key, std::string_view sealed);

}  // namespace prefixfs::fsck
