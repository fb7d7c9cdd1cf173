// What the tests of fsck do to a store: entries of the index put in and taken out behind its back,
// headers, records and files changed on the drive.
#pragma once

#include <lmdb.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cache/index/record.h"

namespace prefixfs::seed {

// One write transaction over an index that nobody has open.
class IndexEditor {
 public:
  explicit IndexEditor(const std::string& drive);
  ~IndexEditor();  // commits, and makes STATE and setting txn fit, unless told not to
  IndexEditor(const IndexEditor&) = delete;

  void Put(const char* table, std::string_view key, std::string_view value);
  void Remove(const char* table, std::string_view key);
  std::optional<std::string> Get(const char* table, std::string_view key);
  // The first key of a table that is not empty.
  std::string FirstKey(const char* table);
  void PutInode(const Inode& inode);
  Inode GetInode(Ino ino);
  // By name, whatever directory it is in.
  Inode FindInode(std::string_view name);
  void KeepTxnSetting() { keep_txn_ = true; }

 private:
  MDB_dbi Table(const char* name);
  std::string directory_;
  MDB_env* env_ = nullptr;
  MDB_txn* txn_ = nullptr;
  bool keep_txn_ = false;
};

// STATE without a digest, as after a stop that had no time for one.
void WriteState(const std::string& drive, const std::string& boot, const std::string& use);

std::string ReadText(const std::string& path);
void WriteText(const std::string& path, const std::string& text);
// The record in the attribute of a file.
std::string GetHeader(const std::string& path);
void SetHeader(const std::string& path, const std::string& header);
Inode HeaderInode(const std::string& path);
void SetHeaderInode(const std::string& path, const Inode& inode);
// blocks/ab/abcd... and records/cd/...abcd below a drive
std::string BlockPath(const BlockId& block);
std::string RecordPath(Ino ino);

}  // namespace prefixfs::seed
