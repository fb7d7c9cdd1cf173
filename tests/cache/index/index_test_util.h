// What the tests of the index share: a directory of their own, and inodes to put into it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "cache/index/index.h"

namespace prefixfs {

// A fresh directory that is gone afterwards.
class TempDir {
 public:
  TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
  explicit TempDir(const std::filesystem::path& base) {
    std::string pattern = base / "prefixfs-index-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// In memory if the machine has that, for tests that open an index hundreds of times and would wait
// for the disk.
inline std::filesystem::path FastBase() {
  const char* memory = "/dev/shm";
  return ::access(memory, W_OK) == 0 ? std::filesystem::path(memory)
                                     : std::filesystem::temp_directory_path();
}

// Sets the boot id for a scope.
class BootId {
 public:
  explicit BootId(const std::string& id) { ::setenv("PREFIXFS_BOOT_ID", id.c_str(), 1); }
  ~BootId() { ::unsetenv("PREFIXFS_BOOT_ID"); }
};

inline Inode MakeDirectory(Ino ino, Ino parent, const std::string& name) {
  Inode inode;
  inode.ino = ino;
  inode.parent = parent;
  inode.name = name;
  inode.mode = S_IFDIR | 0755;
  return inode;
}

// Every field of a block follows from its number and name, so that a reader can tell whether it is
// right.
inline Inode MakeBlock(Ino ino, Ino parent, const std::string& name, std::string hash = {}) {
  Inode inode;
  inode.ino = ino;
  inode.parent = parent;
  inode.name = name;
  inode.mode = S_IFREG | 0644;
  inode.uid = 1000;
  inode.gid = 100;
  inode.state = FileState::kSealed;
  inode.size = ino * 4096 + 1;
  inode.allocated = ino * 4096 + 4096;
  inode.mtime_ns = static_cast<int64_t>(ino) * 7;
  for (size_t i = 0; i < inode.block.size(); ++i) {
    inode.block[i] = static_cast<uint8_t>(ino >> (8 * (i % 8)));
  }
  inode.drive = static_cast<uint16_t>(ino % 3);
  inode.checksum_kind = ChecksumKind::kXxh3_128;
  inode.checksum.fill(static_cast<uint8_t>(ino));
  inode.hash = std::move(hash);
  return inode;
}

inline Status InsertOne(Index& index, const Inode& inode) {
  return index.Update([&](IndexTxn& txn) { return txn.Insert(inode); });
}

inline std::string AsBytes(const Inode& inode) { return EncodeRecord(inode, RecordUse::kIndex); }

inline std::unique_ptr<Index> OpenIndex(const std::string& directory,
                                        uint64_t initial_map = 1 << 20) {
  IndexOptions options;
  options.directory = directory;
  options.initial_map = initial_map;
  Result<std::unique_ptr<Index>> index = Index::Open(options);
  EXPECT_TRUE(index.ok()) << index.status().ToString();
  return index.ok() ? std::move(index).value() : nullptr;
}

#define ASSERT_OK(expression)                                          \
  do {                                                                 \
    const ::prefixfs::Status assert_ok_status = (expression);          \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status.ToString(); \
  } while (0)

#define EXPECT_CODE(expression, want)                                            \
  do {                                                                           \
    const ::prefixfs::Status expect_code_status = (expression);                  \
    EXPECT_EQ(expect_code_status.code(), want) << expect_code_status.ToString(); \
  } while (0)

}  // namespace prefixfs
