// LMCache: the local disk backend (buffered and O_DIRECT) and the `fs://` family with its fixed
// temporary name.
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/engine/client_io.h"

namespace prefixfs::engine {
namespace {

uint64_t FilesystemBlock(const std::string& root) {
  struct statvfs space {};
  Sys(statvfs(root.c_str(), &space), "statvfs " + root);
  Check(space.f_bsize > 0, "statvfs: f_bsize is 0");
  return space.f_bsize;
}

// --- local disk: final names; its own dict says what is there, so a probe is no call at all for
// the writer

std::string LocalPath(const Place& place, const Key& key) {
  return place.root + "/org-Model-8B@8@0@" + key.Hash() + "@bfloat16.pt";
}

void LocalStart(const Place& place, uint32_t) { FilesystemBlock(place.root); }

void LocalWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = LocalPath(place, key);
  Fd fd = Open(path, O_WRONLY | O_CREAT | O_TRUNC);
  WriteLoop(fd, data, SIZE_MAX, path);
  Close(std::move(fd), path);
}

void LocalDirectWrite(const Place& place, const Key& key, Bytes data) {
  if (DirectFlag(data.size(), FilesystemBlock(place.root)) == 0)
    return LocalWrite(place, key, data);
  const std::string path = LocalPath(place, key);
  Fd fd = Open(path, O_CREAT | O_WRONLY | O_DIRECT);
  WriteOnce(fd, data, path);
  Close(std::move(fd), path);
}

bool LocalProbe(const Place& place, const Key& key) { return StatExists(LocalPath(place, key)); }

std::optional<Buffer> ReadInto(const std::string& path, uint64_t size, int extra) {
  auto fd = OpenIfThere(path, O_RDONLY | extra);
  if (!fd) return std::nullopt;
  return ReadOnce(*fd, size, path);
}

std::optional<Buffer> LocalRead(const Place& place, const Key& key, uint64_t size) {
  return ReadInto(LocalPath(place, key), size, 0);
}

std::optional<Buffer> LocalDirectRead(const Place& place, const Key& key, uint64_t size) {
  return ReadInto(LocalPath(place, key), size, DirectFlag(size, FilesystemBlock(place.root)));
}

// --- fs://, fs L2, native fs: `<key>.tmp` is the same name for every writer of the key

std::string RemotePath(const Place& place, const Key& key) {
  return place.root + "/org-SEP-Model@0x01000100@" + key.Hash() + ".data";
}

void RemoteWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = RemotePath(place, key);
  const std::string temp = path + ".tmp";
  const int direct = DirectFlag(data.size(), FilesystemBlock(place.root));
  Fd fd = Open(temp, O_WRONLY | O_CREAT | O_TRUNC | direct);
  if (direct != 0) {
    WriteOnce(fd, data, temp);
  } else {
    WriteLoop(fd, data, 256 << 10, temp);
  }
  Close(std::move(fd), temp);
  // Another writer of the key may have renamed the name they share: then the key is there already.
  if (rename(temp.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  if (error != ENOENT || !StatExists(path)) throw SysFailure(error, "rename " + temp);
}

bool RemoteProbe(const Place& place, const Key& key) { return StatExists(RemotePath(place, key)); }

std::optional<Buffer> RemoteRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = RemotePath(place, key);
  const int direct = DirectFlag(size, FilesystemBlock(place.root));
  auto fd = OpenIfThere(path, O_RDONLY | direct);
  if (!fd) return std::nullopt;
  if (direct != 0) return ReadOnce(*fd, size, path);
  Buffer buffer(size);
  PreadLoop(*fd, buffer.span(), 0, path);
  return buffer;
}

}  // namespace

std::vector<Client> LmcacheClients() {
  return {
      {"lmcache-local", "LMCache local disk", kCommonSizes, SameKey::kVersioned, true, LocalStart,
       LocalWrite, LocalProbe, LocalRead},
      {"lmcache-local-direct", "LMCache local disk, O_DIRECT", kCommonSizes, SameKey::kVersioned,
       true, LocalStart, LocalDirectWrite, LocalProbe, LocalDirectRead},
      {"lmcache-fs", "LMCache fs://, fs L2, native fs", kCommonSizes, SameKey::kVersioned, true,
       LocalStart, RemoteWrite, RemoteProbe, RemoteRead},
  };
}

}  // namespace prefixfs::engine
