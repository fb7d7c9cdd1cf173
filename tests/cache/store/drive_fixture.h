// What the tests of drives share: inodes to put in headers, and files to look at.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "cache/store/drive.h"

namespace prefixfs {

inline BlockId Block(uint8_t first) {
  BlockId block{};
  block[0] = first;
  block[15] = 0x5a;
  return block;
}

inline Inode FileInode(const BlockId& block, Ino ino = 42) {
  Inode inode;
  inode.ino = ino;
  inode.parent = kRootIno;
  inode.name = "block \xff name";
  inode.mode = S_IFREG | 0644;
  inode.uid = 1000;
  inode.state = FileState::kSealed;
  inode.size = 1'124'352;
  inode.mtime_ns = 123;
  inode.block = block;
  inode.rank = 3;
  return inode;
}

inline Inode DirectoryInode(Ino ino) {
  Inode inode;
  inode.ino = ino;
  inode.parent = kRootIno;
  inode.name = "dir" + std::to_string(ino);
  inode.mode = S_IFDIR | 0755;
  return inode;
}

inline bool Exists(const std::string& path) {
  return faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

inline mode_t ModeOf(const std::string& path) {
  struct stat st {};
  return lstat(path.c_str(), &st) == 0 ? st.st_mode & 07777 : 0;
}

inline void WriteFile(const std::string& path, const std::string& bytes) {
  const Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd.valid()) << path;
  ASSERT_EQ(write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

inline std::string ReadFd(int fd) {
  std::string bytes(65536, '\0');
  const ssize_t n = pread(fd, bytes.data(), bytes.size(), 0);
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

// Opens a drive that must open.
inline std::unique_ptr<Drive> MustOpen(const std::string& path) {
  Result<std::unique_ptr<Drive>> drive = Drive::Open(path, "");
  EXPECT_TRUE(drive.ok()) << drive.status().ToString();
  return drive.ok() ? std::move(drive).value() : nullptr;
}

// A published block with a header and some content.
inline void Store(Drive& drive, const BlockId& block, const std::string& content) {
  Result<Fd> file = drive.Create(block);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(write(file->get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  ASSERT_TRUE(drive.WriteHeader(file->get(), FileInode(block)).ok());
  ASSERT_TRUE(drive.Publish(block).ok());
}

}  // namespace prefixfs
