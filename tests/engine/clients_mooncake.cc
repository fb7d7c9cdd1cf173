// Mooncake store: a file a key, buckets with a meta file, and one preallocated file with offsets.
#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <map>

#include "tests/engine/client_io.h"

namespace prefixfs::engine {
namespace {

// Start: statvfs for the budget, a recursive scan with statx for the birth times.
void ScanBelow(const std::string& path, int depth) {
  DIR* stream = opendir(path.c_str());
  if (stream == nullptr) {
    if (errno == ENOENT) return;  // removed meanwhile
    throw SysFailure(errno, "opendir " + path);
  }
  while (const dirent* entry = readdir(stream)) {
    if (entry->d_name[0] == '.') continue;
    const std::string below = path + "/" + entry->d_name;
    struct statx stx {};
    if (statx(AT_FDCWD, below.c_str(), 0, STATX_BASIC_STATS | STATX_BTIME, &stx) != 0) {
      if (errno == ENOENT) continue;
      throw SysFailure(errno, "statx " + below);
    }
    if (S_ISDIR(stx.stx_mode) && depth > 0) ScanBelow(below, depth - 1);
  }
  closedir(stream);
}

void ScanStart(const Place& place, uint32_t) {
  struct statvfs space {};
  Sys(statvfs(place.root.c_str(), &space), "statvfs " + place.root);
  ScanBelow(place.root, 3);
}

std::optional<Buffer> PreadvWhole(const std::string& path, uint64_t size) {
  auto fd = OpenIfThere(path, O_RDONLY);
  if (!fd) return std::nullopt;
  Buffer buffer(size);
  const iovec piece{buffer.data(), size};
  const ssize_t got = Sys(preadv(fd->get(), &piece, 1, 0), "preadv " + path);
  Check(static_cast<uint64_t>(got) == size, "short preadv of " + path + ": " + std::to_string(got));
  return buffer;
}

// --- a file a key

std::string KeyPath(const Place& place, const Key& key) {
  const std::string hash = key.Hash();
  return place.root + "/" + hash.substr(0, 1) + "/" + hash.substr(1, 1) + "/org-Model-8B_" +
         hash.substr(0, 40);
}

void KeyWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = KeyPath(place, key);
  StatAndMakeParents(path);
  Fd fd = Open(path, O_WRONLY | O_CREAT | O_TRUNC);
  WriteLoop(fd, data, 1 << 20, path);
  Close(std::move(fd), path);
}

bool KeyProbe(const Place& place, const Key& key) { return StatExists(KeyPath(place, key)); }

std::optional<Buffer> KeyRead(const Place& place, const Key& key, uint64_t size) {
  return PreadvWhole(KeyPath(place, key), size);
}

// --- a bucket and its meta file, made durable

std::string BucketPath(const Place& place, const Key& key) {
  return place.root + "/" + std::to_string(1'000'000 + key.actor * 1000ull + key.index) + ".bucket";
}

void BucketWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = BucketPath(place, key);
  Fd fd = Open(path, O_WRONLY | O_CREAT | O_TRUNC);
  const uint64_t half = data.size() / 2;
  const iovec pieces[2] = {{const_cast<uint8_t*>(data.data()), half},
                           {const_cast<uint8_t*>(data.data()) + half, data.size() - half}};
  const ssize_t done = Sys(pwritev(fd.get(), pieces, 2, 0), "pwritev " + path);
  Check(static_cast<size_t>(done) == data.size(), "short pwritev of " + path);
  Sys(fdatasync(fd.get()), "fdatasync " + path);
  Close(std::move(fd), path);

  const std::string temp = path + ".meta.tmp";
  Fd meta = Open(temp, O_WRONLY | O_CREAT | O_TRUNC);
  const std::string text = "size " + std::to_string(data.size()) + "\n";
  WriteOnce(meta, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, temp);
  Sys(fsync(meta.get()), "fsync " + temp);
  Close(std::move(meta), temp);
  Rename(temp, path + ".meta");
  Fd directory = Open(place.root, O_RDONLY | O_DIRECTORY);
  Sys(fsync(directory.get()), "fsync of a directory");
}

bool BucketProbe(const Place& place, const Key& key) {
  struct statx stx {};
  const std::string path = BucketPath(place, key);
  return StatExists(path + ".meta") &&
         statx(AT_FDCWD, path.c_str(), 0, STATX_BTIME | STATX_SIZE, &stx) == 0 && stx.stx_size > 0;
}

std::optional<Buffer> BucketRead(const Place& place, const Key& key, uint64_t size) {
  return PreadvWhole(BucketPath(place, key), size);
}

// --- offsets in one preallocated file; descriptors are cached for the life of the process

std::string DataPath(const Place& place, uint32_t actor) {
  return place.root + "/store_" + std::to_string(actor) + "/kv_cache.data";
}

uint64_t Slot(const Place& place) { return (place.max_bytes + 4095) / 4096 * 4096; }

Fd& Cached(const std::string& path, int flags) {
  static std::map<std::string, Fd> cache;
  Fd& fd = cache[path];
  if (!fd.valid()) fd = Open(path, flags);
  return fd;
}

void OffsetStart(const Place& place, uint32_t actor) {
  const std::string path = DataPath(place, actor);
  StatAndMakeParents(path);
  Fd& fd = Cached(path, O_RDWR | O_CREAT);
  const off_t whole = static_cast<off_t>(Slot(place) * place.blocks);
  Sys(fallocate(fd.get(), 0, 0, whole), "fallocate " + path);
  Sys(ftruncate(fd.get(), whole), "ftruncate " + path);
}

void OffsetWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = DataPath(place, key.actor);
  PwriteLoop(Cached(path, O_RDWR), data, key.index * Slot(place), path);
}

bool OffsetProbe(const Place& place, const Key& key) {
  return StatExists(DataPath(place, key.actor));
}

std::optional<Buffer> OffsetRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = DataPath(place, key.actor);
  Buffer buffer(size);
  PreadLoop(Cached(path, O_RDONLY), buffer.span(), key.index * Slot(place), path);
  return buffer;
}

}  // namespace

std::vector<Client> MooncakeClients() {
  return {
      {"mooncake-key", "Mooncake store, file per key", kCommonSizes, SameKey::kVersioned, true,
       ScanStart, KeyWrite, KeyProbe, KeyRead},
      {"mooncake-bucket", "Mooncake store, buckets", kCommonSizes, SameKey::kUndefined, true,
       ScanStart, BucketWrite, BucketProbe, BucketRead},
      {"mooncake-offset", "Mooncake store, offset allocator", kCommonSizes, SameKey::kUndefined,
       true, OffsetStart, OffsetWrite, OffsetProbe, OffsetRead},
  };
}

}  // namespace prefixfs::engine
