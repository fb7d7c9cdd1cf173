// Files: the system calls of fsck, relative to a directory's descriptor and never through a
// symbolic link, and the names of blocks and records.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cache/base/fd.h"
#include "cache/base/status.h"

namespace prefixfs::fsck {

constexpr char kHeaderName[] = "trusted.prefixfs";
constexpr size_t kMostRecordBytes = 8192;
constexpr mode_t kPrivateDirectory = 0711;
constexpr mode_t kPrivateFile = 0600;

using Block = std::array<uint8_t, 16>;
std::string HexOf(const Block& block);
std::optional<Block> BlockOf(std::string_view name);  // 32 lower-case hex digits
bool IsLowerHex(std::string_view text, size_t digits);
// blocks/ab/abcd...
std::string BlockPath(const Block& block);
// records/cd/000000000000abcd
std::string RecordPath(uint64_t ino);

// `name` may have several parts. With O_CLOEXEC; kIo if it, or a part of it, is a symbolic link.
Result<Fd> OpenBelow(int directory, const std::string& name, int flags, mode_t mode = 0);
// A file for reading: does not wait for a FIFO, leaves its access time alone.
Result<Fd> OpenToRead(int directory, const std::string& name);
Result<Fd> OpenDirectory(int directory, const std::string& name);
// Of the name itself.
Result<struct stat> StatBelow(int directory, const std::string& name);
// kTooLong if it has more than `most` bytes.
Result<std::string> ReadWhole(int fd, size_t most);
Status WriteWhole(int fd, std::string_view bytes);
// kNotFound if there is none, kTooLong if it is longer than any record.
Result<std::string> ReadHeader(int fd);
// Calls `visit` for every name but . and .., until it returns an error.
Status ForEachName(int directory, const std::function<Status(const std::string&)>& visit);
// kRejected if another process holds it; one that was killed a moment ago is given a second.
Status TakeLock(int fd);

}  // namespace prefixfs::fsck
