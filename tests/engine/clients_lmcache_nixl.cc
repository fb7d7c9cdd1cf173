// LMCache over NIXL: a static pool of files held open and overwritten in place, and one file an
// object.
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "tests/engine/client_io.h"

namespace prefixfs::engine {
namespace {

// --- static pool

std::string PoolPath(const Place& place, const Key& key) {
  return place.root + "/pool_" + std::to_string(key.actor) + "/obj_" + std::to_string(key.index) +
         "_9c1e.bin";
}

// The descriptors that this process holds from its start on.
std::map<std::string, Fd>& Held() {
  static std::map<std::string, Fd> held;
  return held;
}

void PoolStart(const Place& place, uint32_t actor) {
  for (uint32_t index = 0; index < place.blocks; ++index) {
    const std::string path = PoolPath(place, {actor, index});
    StatAndMakeParents(path);
    Held()[path] = Open(path, O_CREAT | O_RDWR);
  }
}

void PoolWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = PoolPath(place, key);
  if (!Held().contains(path)) Held()[path] = Open(path, O_CREAT | O_RDWR);
  PwriteLoop(Held()[path], data, 0, path);
}

bool PoolProbe(const Place& place, const Key& key) { return StatExists(PoolPath(place, key)); }

std::optional<Buffer> PoolRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = PoolPath(place, key);
  if (!Held().contains(path)) {
    auto fd = OpenIfThere(path, O_RDWR);
    if (!fd) return std::nullopt;
    Held()[path] = std::move(*fd);
  }
  Buffer buffer(size);
  PreadLoop(Held()[path], buffer.span(), 0, path);
  return buffer;
}

// --- dynamic: final name, descriptors for one batch only

std::string ObjectPath(const Place& place, const Key& key) {
  return place.root + "/obj_" + std::to_string(key.actor * 100'000 + key.index) + "_" +
         key.Hash().substr(0, 8) + ".bin";
}

void DynamicWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = ObjectPath(place, key);
  Fd fd = Open(path, O_CREAT | O_RDWR);
  PwriteLoop(fd, data, 0, path);
  Close(std::move(fd), path);
}

bool DynamicProbe(const Place& place, const Key& key) { return StatExists(ObjectPath(place, key)); }

std::optional<Buffer> DynamicRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = ObjectPath(place, key);
  auto fd = OpenIfThere(path, O_RDONLY);
  if (!fd) return std::nullopt;
  Buffer buffer(size);
  PreadLoop(*fd, buffer.span(), 0, path);
  return buffer;
}

}  // namespace

std::vector<Client> LmcacheNixlClients() {
  return {
      {"lmcache-nixl-pool", "LMCache NIXL, static pool", kCommonSizes, SameKey::kUndefined, true,
       PoolStart, PoolWrite, PoolProbe, PoolRead},
      {"lmcache-nixl", "LMCache NIXL, dynamic", kCommonSizes, SameKey::kUndefined, true, NoStart,
       DynamicWrite, DynamicProbe, DynamicRead},
  };
}

}  // namespace prefixfs::engine
