// The few steps that many clients have in common. Each says which system calls it makes, because
// the sequence is what the replays are about. All throw SysFailure.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include <optional>
#include <string>

#include "cache/base/fd.h"
#include "tests/engine/clients.h"
#include "tests/support/fail.h"

namespace prefixfs::engine {

using support::Check;
using support::Fail;
using support::Sys;
using support::SysFailure;

// The sizes that most replays use: 16 tokens of an 8B model, of DeepSeek-V3's MLA, and one odd
// token.
inline const std::vector<uint64_t> kCommonSizes = {2ull << 20, 1'124'352, 70'273};

std::string Parent(const std::string& path);

// Python's makedirs(exist_ok): stat, then mkdir from the top; another's EEXIST is fine.
void StatAndMakeParents(const std::string& path);

Fd Open(const std::string& path, int flags, mode_t mode = 0644);
// Nothing on ENOENT.
std::optional<Fd> OpenIfThere(const std::string& path, int flags);

// ONE write call, which must take everything.
void WriteOnce(const Fd& fd, Bytes data, const std::string& what);
// write calls of at most `piece` bytes.
void WriteLoop(const Fd& fd, Bytes data, size_t piece, const std::string& what);
void PwriteLoop(const Fd& fd, Bytes data, uint64_t offset, const std::string& what);

// ONE read call for `size` bytes; less is a failure of the file system.
Buffer ReadOnce(const Fd& fd, uint64_t size, const std::string& what);
void PreadLoop(const Fd& fd, std::span<uint8_t> into, uint64_t offset, const std::string& what);

// mmap (`flags`: MAP_PRIVATE or MAP_SHARED and more), copy out, munmap. `offset` is a multiple of
// 4096.
void MappedCopy(const Fd& fd, std::span<uint8_t> into, uint64_t offset, int flags,
                const std::string& what);

void Rename(const std::string& from, const std::string& to);
void Close(Fd fd, const std::string& what);

bool StatExists(const std::string& path);    // stat
bool AccessExists(const std::string& path);  // access(F_OK)

// A number that no other call in any process gives: pid and a counter.
std::string UniqueSuffix();

void NoStart(const Place& place, uint32_t actor);

}  // namespace prefixfs::engine
