// NIXL's POSIX and GDS_MT plugins in path mode (io_uring), and Dynamo KVBM's disk tier.
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>

#include "tests/engine/client_io.h"

namespace prefixfs::engine {
namespace {

// --- NIXL POSIX: requests of one block, four at once through a ring

constexpr unsigned kDepth = 4;

struct Ring {
  Ring() { Check(io_uring_queue_init(kDepth, &ring, 0) == 0, "io_uring_queue_init"); }
  ~Ring() { io_uring_queue_exit(&ring); }
  io_uring ring;
};

enum class Direction { kRead, kWrite };

// One request a quarter of the block; each must be complete, because the client takes a short one
// for success.
void Transfer(const Fd& fd, Direction direction, uint8_t* data, uint64_t size,
              const std::string& what) {
  Ring ring;
  const uint64_t piece = (size / kDepth + 4095) / 4096 * 4096;
  unsigned submitted = 0;
  for (uint64_t offset = 0; offset < size; offset += piece, ++submitted) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring.ring);
    const auto length = static_cast<unsigned>(std::min(piece, size - offset));
    if (direction == Direction::kRead) {
      io_uring_prep_read(entry, fd.get(), data + offset, length, offset);
    } else {
      io_uring_prep_write(entry, fd.get(), data + offset, length, offset);
    }
    io_uring_sqe_set_data64(entry, length);
  }
  Check(io_uring_submit(&ring.ring) == static_cast<int>(submitted), "io_uring_submit");
  for (; submitted > 0; --submitted) {
    io_uring_cqe* done = nullptr;
    Check(io_uring_wait_cqe(&ring.ring, &done) == 0, "io_uring_wait_cqe");
    const int result = done->res;
    const auto wanted = static_cast<int>(io_uring_cqe_get_data64(done));
    io_uring_cqe_seen(&ring.ring, done);
    if (result < 0) throw SysFailure(-result, "io_uring transfer of " + what);
    Check(result == wanted,
          "io_uring transfer of " + what + " was short: " + std::to_string(result));
  }
}

std::string NixlPath(const Place& place, const Key& key) {
  return place.root + "/nixl_" + key.Hash().substr(0, 24);
}

void NixlWriteWith(const Place& place, const Key& key, Bytes data, int extra) {
  const std::string path = NixlPath(place, key);
  Fd fd = Open(path, O_RDWR | O_CREAT | extra);
  Transfer(fd, Direction::kWrite, const_cast<uint8_t*>(data.data()), data.size(), path);
  Close(std::move(fd), path);
}

std::optional<Buffer> NixlReadWith(const Place& place, const Key& key, uint64_t size, int extra) {
  const std::string path = NixlPath(place, key);
  auto fd = OpenIfThere(path, O_RDONLY | O_NOATIME | extra);
  if (!fd) return std::nullopt;
  Buffer buffer(size);
  Transfer(*fd, Direction::kRead, buffer.data(), size, path);
  return buffer;
}

void NixlWrite(const Place& place, const Key& key, Bytes data) {
  NixlWriteWith(place, key, data, 0);
}

std::optional<Buffer> NixlRead(const Place& place, const Key& key, uint64_t size) {
  return NixlReadWith(place, key, size, 0);
}

void NixlDirectWrite(const Place& place, const Key& key, Bytes data) {
  NixlWriteWith(place, key, data, DirectFlag(data.size()) | O_SYNC);
}

std::optional<Buffer> NixlDirectRead(const Place& place, const Key& key, uint64_t size) {
  return NixlReadWith(place, key, size, DirectFlag(size));
}

bool NixlProbe(const Place& place, const Key& key) { return StatExists(NixlPath(place, key)); }

// --- Dynamo KVBM: one unlinked file a process is the whole tier

struct Tier {
  Fd fd;
  uint64_t slot = 0;
};

std::map<std::string, Tier>& Tiers() {
  static std::map<std::string, Tier> tiers;
  return tiers;
}

std::string TierName(const Place& place, uint32_t actor) {
  return place.root + "#" + std::to_string(actor);
}

void DynamoStart(const Place& place, uint32_t actor) {
  Tier tier;
  tier.slot = (place.max_bytes + 4095) / 4096 * 4096;
  std::string path = place.root + "/dynamo-kvbm-disk-cache-XXXXXX";
  tier.fd = Fd(Sys(mkostemp(path.data(), O_CLOEXEC), "mkostemp " + path));
  Sys(fcntl(tier.fd.get(), F_SETFL, O_DIRECT), "F_SETFL O_DIRECT");
  Sys(fallocate(tier.fd.get(), 0, 0, static_cast<off_t>(tier.slot * place.blocks)),
      "fallocate of the tier");
  Sys(unlink(path.c_str()), "unlink " + path);
  Tiers()[TierName(place, actor)] = std::move(tier);
}

// Blocks land anywhere in the tier: the index is scattered over the slots.
uint64_t SlotOffset(const Place& place, const Key& key, const Tier& tier) {
  const uint64_t step = place.blocks % 7 == 0 ? 5 : 7;
  return (key.index * step % place.blocks) * tier.slot;
}

void DynamoWrite(const Place& place, const Key& key, Bytes data) {
  Tier& tier = Tiers().at(TierName(place, key.actor));
  Buffer padded((data.size() + 4095) / 4096 * 4096);
  memset(padded.data(), 0, padded.size());
  memcpy(padded.data(), data.data(), data.size());
  PwriteLoop(tier.fd, padded, SlotOffset(place, key, tier), "the Dynamo tier");
}

bool DynamoProbe(const Place& place, const Key& key) {
  return Tiers().contains(TierName(place, key.actor));
}

std::optional<Buffer> DynamoRead(const Place& place, const Key& key, uint64_t size) {
  Tier& tier = Tiers().at(TierName(place, key.actor));
  Buffer padded((size + 4095) / 4096 * 4096);
  PreadLoop(tier.fd, padded.span(), SlotOffset(place, key, tier), "the Dynamo tier");
  Buffer buffer(size);
  memcpy(buffer.data(), padded.data(), size);
  return buffer;
}

}  // namespace

std::vector<Client> NixlClients() {
  return {
      {"nixl-posix", "NIXL POSIX, io_uring", kCommonSizes, SameKey::kVersioned, true, NoStart,
       NixlWrite, NixlProbe, NixlRead},
      {"nixl-posix-direct", "NIXL POSIX, direct and sync", kCommonSizes, SameKey::kVersioned, true,
       NoStart, NixlDirectWrite, NixlProbe, NixlDirectRead},
      {"dynamo", "Dynamo KVBM disk tier", kCommonSizes, SameKey::kUndefined, false, DynamoStart,
       DynamoWrite, DynamoProbe, DynamoRead},
  };
}

}  // namespace prefixfs::engine
