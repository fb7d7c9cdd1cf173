#include "cache/index/tables.h"

#include <xxhash.h>

#include <cassert>

#include "cache/index/lmdb_env.h"

namespace prefixfs {
namespace {

constexpr size_t kDigestBytes = 8;

Status Damaged(std::string_view table, std::string_view what) {
  return {Code::kCorrupt, std::string(table) + ": " + std::string(what)};
}

uint64_t SealDigest(std::string_view key, std::string_view value) {
  return XXH3_64bits_withSeed(value.data(), value.size(), XXH3_64bits(key.data(), key.size()));
}

std::span<const uint8_t> AsSpan(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<Tables> Tables::OpenMain(MDB_txn* txn) {
  Tables tables;
  const int rc = mdb_dbi_open(txn, nullptr, 0, &tables.main);
  if (rc != 0) return FromLmdb(rc, "index: open the main table");
  return tables;
}

Result<Tables> Tables::Open(MDB_txn* txn, bool create) {
  Tables tables = PFS_TRY(OpenMain(txn));
  const unsigned flags = create ? MDB_CREATE : 0;
  const std::pair<const char*, MDB_dbi*> all[] = {
      {"inodes", &tables.inodes}, {"dentries", &tables.dentries}, {"children", &tables.children},
      {"hashes", &tables.hashes}, {"models", &tables.models},     {"trash", &tables.trash}};
  for (const auto& [name, handle] : all) {
    const int rc = mdb_dbi_open(txn, name, flags, handle);
    if (rc == MDB_NOTFOUND) return Damaged("index", std::string("no table ") + name);
    if (rc != 0) return FromLmdb(rc, std::string("index: open table ") + name);
  }
  return tables;
}

uint64_t NumberAt(std::string_view bytes, size_t offset, size_t size) {
  assert(offset + size <= bytes.size());
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value = (value << 8) | static_cast<uint8_t>(bytes[offset + i]);
  return value;
}

uint64_t DefaultNameHash(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

Key TrashKey(const TrashEntry& entry) {
  return Key()
      .Number(entry.drive, 2)
      .Bytes({reinterpret_cast<const char*>(entry.block.data()), entry.block.size()});
}

std::string Seal(std::string_view key, std::string_view value) {
  std::string sealed(value);
  sealed.append(std::string_view(Key().Number(SealDigest(key, value))));
  return sealed;
}

std::optional<std::string_view> Unseal(std::string_view key, std::string_view sealed) {
  if (sealed.size() < kDigestBytes) return std::nullopt;
  const std::string_view value = sealed.substr(0, sealed.size() - kDigestBytes);
  if (NumberAt(sealed, value.size()) != SealDigest(key, value)) return std::nullopt;
  return value;
}

Result<std::pair<uint32_t, std::string>> ParseModel(std::string_view key, std::string_view value) {
  const auto text = Unseal(key, value);
  if (key.size() != 4 || !text) return Damaged("models", "an entry is damaged");
  return std::pair(static_cast<uint32_t>(NumberAt(key, 0, 4)), std::string(*text));
}

Result<TrashEntry> ParseTrash(std::string_view key, std::string_view value) {
  TrashEntry entry;
  const auto rest = Unseal(key, value);
  if (key.size() != 2 + entry.block.size() || !rest || !rest->empty()) {
    return Damaged("trash", "an entry is damaged");
  }
  entry.drive = static_cast<uint16_t>(NumberAt(key, 0, 2));
  std::memcpy(entry.block.data(), key.data() + 2, entry.block.size());
  return entry;
}

Status TableReader::Note(int rc, std::string_view what) {
  if (rc != 0 && rc != MDB_NOTFOUND && lmdb_error_ == 0) lmdb_error_ = rc;
  return FromLmdb(rc, what);
}

int TableReader::GetRaw(MDB_dbi table, std::string_view key, std::string_view* value) {
  MDB_val k = ToVal(key), v = {};
  const int rc = mdb_get(txn_, table, &k, &v);
  if (rc == 0) *value = FromVal(v);
  return rc;
}

template <typename Visit>
Status TableReader::ForPrefix(MDB_dbi table, std::string_view from, std::string_view prefix,
                              const Visit& visit) {
  Cursor cursor(txn_, table);
  std::string_view key = from, value;
  // LMDB takes no empty key.
  int rc = cursor.Get(&key, &value, from.empty() ? MDB_FIRST : MDB_SET_RANGE);
  while (rc == 0 && key.substr(0, prefix.size()) == prefix) {
    if (!visit(key, value)) return Ok();
    rc = cursor.Get(&key, &value, MDB_NEXT);
  }
  return rc == 0 || rc == MDB_NOTFOUND ? Ok() : Note(rc, "index: read");
}

Result<Inode> TableReader::Get(Ino ino) {
  std::string_view value;
  const int rc = GetRaw(tables_.inodes, InodeKey(ino), &value);
  if (rc == MDB_NOTFOUND) return {Code::kNotFound, "no such inode"};
  if (rc != 0) return Note(rc, "index: read an inode");
  Result<Inode> inode = DecodeRecord(AsSpan(value));
  if (inode.ok() && inode->ino != ino) return Damaged("inodes", "a record is not its key's");
  return inode;
}

Result<Inode> TableReader::Lookup(Ino parent, std::string_view name) {
  const Key prefix = Key().Number(parent).Number(name_hash_(name));
  Result<Inode> found(Code::kNotFound, "no such name");
  PFS_TRY(ForPrefix(tables_.dentries, prefix, prefix, [&](std::string_view key, std::string_view) {
    if (key.size() != 24) {
      found = Damaged("dentries", "a key of wrong length");
      return false;
    }
    Result<Inode> inode = Get(NumberAt(key, 16));
    if (inode.status().Is(Code::kNotFound)) {
      found = Damaged("dentries", "a name without inode");
      return false;
    }
    // Another name with the same hash: look on.
    if (inode.ok() && inode->name != name) return true;
    found = std::move(inode);
    return false;
  }));
  if (found.ok() && found->parent != parent) return Damaged("dentries", "a name elsewhere");
  return found;
}

Result<bool> TableReader::HasChildren(Ino parent) {
  const Key prefix = Key().Number(parent);
  bool any = false;
  PFS_TRY(ForPrefix(tables_.children, prefix, prefix, [&](std::string_view, std::string_view) {
    any = true;
    return false;
  }));
  return any;
}

Result<std::vector<Inode>> TableReader::Collect(MDB_dbi table, std::string_view from,
                                                std::string_view prefix, size_t max) {
  std::vector<Inode> inodes;
  if (max == 0) return inodes;
  Status bad;
  PFS_TRY(ForPrefix(table, from, prefix, [&](std::string_view key, std::string_view) {
    if (key.size() != prefix.size() + 8) {
      bad = Damaged("index", "a key of wrong length");
      return false;
    }
    Result<Inode> inode = Get(NumberAt(key, prefix.size()));
    if (!inode.ok()) {
      bad = inode.status().Is(Code::kNotFound) ? Damaged("index", "an entry without inode")
                                               : inode.status();
      return false;
    }
    inodes.push_back(std::move(*inode));
    return inodes.size() < max;
  }));
  PFS_TRY(bad);
  return inodes;
}

Result<std::vector<Inode>> TableReader::List(Ino parent, Ino after, size_t max) {
  if (after == UINT64_MAX) return std::vector<Inode>();
  return Collect(tables_.children, ChildKey(parent, after + 1), Key().Number(parent), max);
}

Result<std::vector<Inode>> TableReader::FindByHash(std::string_view hash, size_t max) {
  if (hash.empty() || hash.size() > kMaxHash) return std::vector<Inode>();
  const Key prefix = Key().Number(hash.size(), 1).Bytes(hash);
  return Collect(tables_.hashes, prefix, prefix, max);
}

std::vector<Inode> TableReader::Scan(Ino first, size_t max, RecordDecoder decode, Status* end) {
  std::vector<Inode> inodes;
  inodes.reserve(max);
  Status bad;
  *end = ForPrefix(tables_.inodes, InodeKey(first), {},
                   [&](std::string_view key, std::string_view value) {
                     Result<Inode> inode = decode(AsSpan(value));
                     if (!inode.ok()) {
                       bad = inode.status();
                     } else if (key.size() != 8 || inode->ino != NumberAt(key, 0)) {
                       bad = Damaged("inodes", "a record is not its key's");
                     }
                     if (!bad.ok()) return false;
                     inodes.push_back(std::move(*inode));
                     return inodes.size() < max;
                   });
  if (end->ok()) *end = bad;
  return inodes;
}

Result<std::vector<TrashEntry>> TableReader::Trash() {
  std::vector<TrashEntry> entries;
  Status bad;
  PFS_TRY(ForPrefix(tables_.trash, {}, {}, [&](std::string_view key, std::string_view value) {
    Result<TrashEntry> entry = ParseTrash(key, value);
    if (entry.ok()) entries.push_back(*entry);
    bad = entry.status();
    return entry.ok();
  }));
  PFS_TRY(bad);
  return entries;
}

Result<std::vector<std::pair<uint32_t, std::string>>> TableReader::Models() {
  std::vector<std::pair<uint32_t, std::string>> models;
  Status bad;
  PFS_TRY(ForPrefix(tables_.models, {}, {}, [&](std::string_view key, std::string_view value) {
    auto model = ParseModel(key, value);
    if (model.ok()) models.push_back(std::move(*model));
    bad = model.status();
    return model.ok();
  }));
  PFS_TRY(bad);
  return models;
}

Result<std::string> TableReader::Meta(std::string_view key) {
  std::string_view sealed;
  const int rc = GetRaw(tables_.main, key, &sealed);
  if (rc == MDB_NOTFOUND) return {Code::kNotFound, "no such setting"};
  if (rc != 0) return Note(rc, "index: read a setting");
  const auto value = Unseal(key, sealed);
  if (!value) return Damaged("settings", key);
  return std::string(*value);
}

Result<uint64_t> TableReader::MetaNumber(std::string_view key) {
  const std::string value = PFS_TRY(Meta(key));
  if (value.size() != 8) return Damaged("settings", key);
  return NumberAt(value, 0);
}

Result<bool> TableReader::Has(MDB_dbi table, std::string_view key) {
  std::string_view value;
  const int rc = GetRaw(table, key, &value);
  if (rc != 0 && rc != MDB_NOTFOUND) return Note(rc, "index: read");
  return rc == 0;
}

}  // namespace prefixfs
