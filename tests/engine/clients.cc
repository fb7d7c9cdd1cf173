#include "tests/engine/clients.h"

#include <fcntl.h>

#include <cstdio>

namespace prefixfs::engine {
namespace {
bool direct_at_any_size = false;
}  // namespace

void SetDirectAtAnySize(bool always) { direct_at_any_size = always; }

int DirectFlag(uint64_t size, uint64_t unit) {
  return direct_at_any_size || size % unit == 0 ? O_DIRECT : 0;
}

std::string Key::Hash() const {
  std::string text;
  uint64_t state = (static_cast<uint64_t>(actor) << 32 | index) + 0x5DEECE66Dull;
  for (int i = 0; i < 4; ++i) {
    state = (state ^ (state >> 31)) * 0x9E3779B97F4A7C15ull + 0x1234567;
    char part[17];
    snprintf(part, sizeof(part), "%016llx", static_cast<unsigned long long>(state ^ (state >> 29)));
    text += part;
  }
  return text;
}

const std::vector<Client>& Clients() {
  static const std::vector<Client> all = [] {
    std::vector<Client> clients;
    for (auto family : {VllmClients, SglangClients, LmcacheClients, LmcacheGdsClients,
                        LmcacheNixlClients, NixlClients, MooncakeClients, OtherClients}) {
      const std::vector<Client> more = family();
      clients.insert(clients.end(), more.begin(), more.end());
    }
    return clients;
  }();
  return all;
}

const Client* FindClient(const std::string& name) {
  for (const Client& client : Clients()) {
    if (name == client.name) return &client;
  }
  return nullptr;
}

}  // namespace prefixfs::engine
