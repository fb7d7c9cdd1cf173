// Clients: what each KV-offload client does to a directory, one entry a way of writing and reading
// a block, with the system calls of shared/engine-contract.md section 1. The replays run them
// against a mount and against XFS.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/pattern.h"

namespace prefixfs::engine {

using Bytes = std::span<const uint8_t>;
using support::Buffer;

// Names one block. Every client makes its own file name of it.
struct Key {
  uint32_t actor = 0;
  uint32_t index = 0;

  std::string Hash() const;  // 64 hex digits, the same for the same key everywhere
};

// Where a client works, and the limits that pools and preallocated files are made for.
struct Place {
  std::string root;
  uint32_t blocks = 16;             // key.index stays below
  uint64_t max_bytes = 2ull << 20;  // and block sizes at or below
};

// What two writers of one key at once may leave for a reader.
enum class SameKey {
  kWhole,      // one writer's block, whole, on any filesystem: unique temporary and rename
  kVersioned,  // the same, but only where each writer gets its own version: PrefixFS
  kUndefined,  // the client's files are shared storage, or several files make one block
};

// What the replays open a block of `size` bytes with: O_DIRECT if it is a multiple of `unit`, as
// the clients do on filesystems that ask for it, or always, as they could where none does.
int DirectFlag(uint64_t size, uint64_t unit = 4096);
void SetDirectAtAnySize(bool always);

struct Client {
  const char* name;   // for --client
  const char* title;  // the row of the contract
  std::vector<uint64_t> sizes;
  SameKey same_key;
  bool shared;  // another process can read the block, and it outlives its writer
  void (*start)(const Place& place, uint32_t actor);
  void (*write)(const Place& place, const Key& key, Bytes data);
  // Whether the client would believe that the block is there.
  bool (*probe)(const Place& place, const Key& key);
  // The whole block, or nothing if it is a miss. Throws if the file system broke its word: short
  // reads, errors.
  std::optional<Buffer> (*read)(const Place& place, const Key& key, uint64_t size);
};

// All of them, in the order of the contract.
const std::vector<Client>& Clients();
const Client* FindClient(const std::string& name);

// One table a family; each in its own file.
std::vector<Client> VllmClients();
std::vector<Client> SglangClients();
std::vector<Client> LmcacheClients();
std::vector<Client> LmcacheGdsClients();
std::vector<Client> LmcacheNixlClients();
std::vector<Client> NixlClients();
std::vector<Client> MooncakeClients();
std::vector<Client> OtherClients();

// What a crawler does to a full directory: oldest atime first, `rm -f` in batches until at most
// `keep` files are left, then rmdir of what is empty. Returns how many files it removed.
uint32_t CrawlAndEvict(const std::string& root, uint32_t keep);

}  // namespace prefixfs::engine
