#include "tests/tools/fsck_seed.h"

#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cache/index/tables.h"

namespace prefixfs::seed {
namespace {

void Check(int rc, const char* what) {
  if (rc != 0) throw std::runtime_error(std::string(what) + ": " + mdb_strerror(rc));
}

MDB_val Val(std::string_view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

IndexEditor::IndexEditor(const std::string& drive) : directory_(drive) {
  Check(mdb_env_create(&env_), "env");
  Check(mdb_env_set_maxdbs(env_, 16), "maxdbs");
  Check(mdb_env_set_mapsize(env_, 64 << 20), "mapsize");
  Check(mdb_env_open(env_, (drive + "/index").c_str(), MDB_NOLOCK, 0600), "open");
  Check(mdb_txn_begin(env_, nullptr, 0, &txn_), "begin");
}

IndexEditor::~IndexEditor() {
  if (!keep_txn_) {
    const Key number = Key().Number(mdb_txn_id(txn_));
    Put(nullptr, meta_key::kTxn, Seal(meta_key::kTxn, number));
  }
  EXPECT_EQ(mdb_txn_commit(txn_), 0);
  mdb_env_close(env_);
  WriteState(directory_, CurrentBootId(), "clean");
}

MDB_dbi IndexEditor::Table(const char* name) {
  MDB_dbi table = 0;
  Check(mdb_dbi_open(txn_, name, 0, &table), "table");
  return table;
}

void IndexEditor::Put(const char* table, std::string_view key, std::string_view value) {
  MDB_val k = Val(key), v = Val(value);
  Check(mdb_put(txn_, Table(table), &k, &v, 0), "put");
}

void IndexEditor::Remove(const char* table, std::string_view key) {
  MDB_val k = Val(key);
  Check(mdb_del(txn_, Table(table), &k, nullptr), "remove");
}

std::optional<std::string> IndexEditor::Get(const char* table, std::string_view key) {
  MDB_val k = Val(key), v{};
  if (mdb_get(txn_, Table(table), &k, &v) != 0) return std::nullopt;
  return std::string(static_cast<const char*>(v.mv_data), v.mv_size);
}

std::string IndexEditor::FirstKey(const char* table) {
  MDB_cursor* cursor = nullptr;
  Check(mdb_cursor_open(txn_, Table(table), &cursor), "cursor");
  MDB_val k{}, v{};
  Check(mdb_cursor_get(cursor, &k, &v, MDB_FIRST), "first");
  std::string key(static_cast<const char*>(k.mv_data), k.mv_size);
  mdb_cursor_close(cursor);
  return key;
}

void IndexEditor::PutInode(const Inode& inode) {
  Put("inodes", InodeKey(inode.ino), EncodeRecord(inode, RecordUse::kIndex));
}

Inode IndexEditor::GetInode(Ino ino) {
  const auto record = Get("inodes", InodeKey(ino));
  return DecodeRecord(Bytes(record.value())).value();
}

Inode IndexEditor::FindInode(std::string_view name) {
  MDB_cursor* cursor = nullptr;
  Check(mdb_cursor_open(txn_, Table("inodes"), &cursor), "cursor");
  MDB_val k{}, v{};
  std::optional<Inode> found;
  for (int rc = mdb_cursor_get(cursor, &k, &v, MDB_FIRST); rc == 0 && !found;
       rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)) {
    const Inode inode = DecodeRecord({static_cast<const uint8_t*>(v.mv_data), v.mv_size}).value();
    if (inode.name == name) found = inode;
  }
  mdb_cursor_close(cursor);
  return found.value();
}

void WriteState(const std::string& drive, const std::string& boot, const std::string& use) {
  WriteText(drive + "/index/STATE", "prefixfs-index-state 1\nboot " + boot + "\n" + use + "\n");
}

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::filesystem::permissions(path, std::filesystem::perms(0600));
}

std::string GetHeader(const std::string& path) {
  std::string header(8192, '\0');
  const ssize_t n = ::getxattr(path.c_str(), "trusted.prefixfs", header.data(), header.size());
  EXPECT_GE(n, 0) << path;
  header.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return header;
}

void SetHeader(const std::string& path, const std::string& header) {
  EXPECT_EQ(::setxattr(path.c_str(), "trusted.prefixfs", header.data(), header.size(), 0), 0);
}

Inode HeaderInode(const std::string& path) { return DecodeRecord(Bytes(GetHeader(path))).value(); }

void SetHeaderInode(const std::string& path, const Inode& inode) {
  SetHeader(path, EncodeRecord(inode, RecordUse::kHeader));
}

std::string BlockPath(const BlockId& block) {
  return "/blocks/" + ToHex(block).substr(0, 2) + "/" + ToHex(block);
}

std::string RecordPath(Ino ino) {
  char name[17];
  std::snprintf(name, sizeof(name), "%016llx", static_cast<unsigned long long>(ino));
  return std::string("/records/") + (name + 14) + "/" + name;
}

}  // namespace prefixfs::seed
