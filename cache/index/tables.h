// The index's tables: their keys, and reads over any transaction. Private to cache/index. Format:
// docs/DATA_FORMAT.md.
//
//   (main)    text                    -> value, digest    settings: see meta_key
//   inodes    ino                     -> record
//   dentries  parent, hash64, ino     -> empty
//   children  parent, ino             -> d_type, 1 byte
//   hashes    length, hash, ino       -> empty
//   models    id, 4 bytes             -> text, digest
//   trash     drive, 2 bytes; block   -> digest
//
// Numbers in keys are big-endian, so that LMDB's byte order is their order. No table uses LMDB's
// duplicate keys: the inode number at the key's end tells entries apart, and every page belongs to
// one plain tree, which the page check (page_check.h) can follow. What no other table repeats
// carries a digest of its own.
#pragma once

#include <lmdb.h>

#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/base/status.h"
#include "cache/index/index.h"
#include "cache/index/record.h"

namespace prefixfs {

constexpr uint64_t kIndexFormat = 1;

namespace meta_key {
constexpr std::string_view kFormat = "format";       // 8 bytes, kIndexFormat
constexpr std::string_view kNextIno = "next_ino";    // 8 bytes: no number from here on was given
constexpr std::string_view kPoolUuid = "pool_uuid";  // text
constexpr std::string_view kTxn = "txn";             // 8 bytes: the transaction that wrote it
}  // namespace meta_key

struct Tables {
  MDB_dbi main = 0, inodes = 0, dentries = 0, children = 0, hashes = 0, models = 0, trash = 0;

  static Result<Tables> OpenMain(MDB_txn* txn);
  // `create` makes what is absent, which needs a write transaction.
  static Result<Tables> Open(MDB_txn* txn, bool create);
};

// Builds a key in place.
class Key {
 public:
  Key& Number(uint64_t value, size_t bytes = 8) {  // big-endian
    for (size_t i = bytes; i-- > 0;) Push(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  Key& Bytes(std::string_view bytes) {
    assert(size_ + bytes.size() <= sizeof(data_));
    std::memcpy(data_ + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
    return *this;
  }
  operator std::string_view() const { return {data_, size_}; }

 private:
  void Push(char byte) {
    assert(size_ < sizeof(data_));
    data_[size_++] = byte;
  }
  char data_[96];
  size_t size_ = 0;
};

// Reads a big-endian number of `bytes` at `offset`; the caller knows that it is there.
uint64_t NumberAt(std::string_view bytes, size_t offset, size_t size = 8);

// How names are spread over dentry keys. A parameter only so that a test can make names collide.
using NameHash = uint64_t (*)(std::string_view name);
uint64_t DefaultNameHash(std::string_view name);

inline Key InodeKey(Ino ino) { return Key().Number(ino); }
inline Key DentryKey(Ino parent, uint64_t name_hash, Ino ino) {
  return Key().Number(parent).Number(name_hash).Number(ino);
}
inline Key ChildKey(Ino parent, Ino ino) { return Key().Number(parent).Number(ino); }
inline Key HashKey(std::string_view hash, Ino ino) {
  return Key().Number(hash.size(), 1).Bytes(hash).Number(ino);
}
inline Key ModelKey(uint32_t id) { return Key().Number(id, 4); }
Key TrashKey(const TrashEntry& entry);
inline char ChildType(uint32_t mode) { return static_cast<char>((mode & S_IFMT) >> 12); }  // DT_*

// `value` followed by a digest over key and value; Unseal is nothing if the digest does not hold.
std::string Seal(std::string_view key, std::string_view value);
std::optional<std::string_view> Unseal(std::string_view key, std::string_view sealed);
// Entries of tables whose values are sealed; kCorrupt if they are damaged.
Result<std::pair<uint32_t, std::string>> ParseModel(std::string_view key, std::string_view value);
Result<TrashEntry> ParseTrash(std::string_view key, std::string_view value);

// DecodeRecord, or what leaves out more.
using RecordDecoder = Result<Inode> (*)(std::span<const uint8_t> bytes);

// Reads over one transaction. The views given to callers end with the transaction or its next
// change.
class TableReader {
 public:
  TableReader(MDB_txn* txn, const Tables& tables, NameHash name_hash)
      : txn_(txn), tables_(tables), name_hash_(name_hash) {}

  Result<Inode> Get(Ino ino);
  Result<Inode> Lookup(Ino parent, std::string_view name);
  Result<bool> HasChildren(Ino parent);
  Result<std::vector<Inode>> List(Ino parent, Ino after, size_t max);
  Result<std::vector<Inode>> FindByHash(std::string_view hash, size_t max);
  // Up to `max` inodes with numbers from `first` on. Stops before a damaged one, with its status in
  // *end.
  std::vector<Inode> Scan(Ino first, size_t max, RecordDecoder decode, Status* end);
  Result<std::vector<TrashEntry>> Trash();
  Result<std::vector<std::pair<uint32_t, std::string>>> Models();
  Result<std::string> Meta(std::string_view key);
  Result<uint64_t> MetaNumber(std::string_view key);
  Result<bool> Has(MDB_dbi table, std::string_view key);

  // The first error of LMDB itself: after one, a write transaction must not be committed.
  int lmdb_error() const { return lmdb_error_; }

 protected:
  // Turns a code into a status and remembers it if it is LMDB's own failure.
  Status Note(int rc, std::string_view what);
  int GetRaw(MDB_dbi table, std::string_view key, std::string_view* value);
  // Calls `visit(key, value)` for the keys from `from` on that begin with `prefix`, until it
  // returns false.
  template <typename Visit>
  Status ForPrefix(MDB_dbi table, std::string_view from, std::string_view prefix,
                   const Visit& visit);
  // The inodes that the keys of an entry table end with.
  Result<std::vector<Inode>> Collect(MDB_dbi table, std::string_view from, std::string_view prefix,
                                     size_t max);

  MDB_txn* txn_;
  const Tables& tables_;
  NameHash name_hash_;
  int lmdb_error_ = 0;
};

}  // namespace prefixfs
