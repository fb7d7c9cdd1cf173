// vLLM's fs tier, llm-d's fs connector, and vLLM's example connector (older and newer).
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/engine/client_io.h"

namespace prefixfs::engine {
namespace {

constexpr char kModelDir[] = "m_0a1b2c3d4e5f_r0";

std::string HashedPath(const Place& place, const Key& key) {
  const std::string hash = key.Hash();
  return place.root + "/" + kModelDir + "/" + hash.substr(0, 3) + "/" + hash.substr(3, 2) + "_g0/" +
         hash + ".bin";
}

// --- vLLM fs tier

void VllmStart(const Place& place, uint32_t actor) {
  const std::string top = place.root + "/" + kModelDir;
  StatAndMakeParents(top + "/x");
  const std::string probe =
      top + "/.o_direct_probe_" + std::to_string(actor) + "_" + UniqueSuffix();
  Fd fd = Open(probe, O_CREAT | O_EXCL | O_WRONLY | O_DIRECT);
  WriteOnce(fd, support::Pattern(4096, 1), probe);
  Close(std::move(fd), probe);
  Sys(unlink(probe.c_str()), "unlink " + probe);

  const std::string config = top + "/config.json";
  const std::string text = "{\"block_size\": 16, \"dtype\": \"bfloat16\"}\n";
  fd = Open(config, O_CREAT | O_WRONLY | O_TRUNC);
  WriteOnce(fd, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, config);
  Close(std::move(fd), config);
}

void VllmWriteWith(const Place& place, const Key& key, Bytes data, int extra) {
  const std::string path = HashedPath(place, key);
  const std::string temp = path + "_" + UniqueSuffix() + ".tmp";
  StatAndMakeParents(path);
  Fd fd = Open(temp, O_CREAT | O_EXCL | O_WRONLY | O_TRUNC | extra);
  WriteOnce(fd, data, temp);
  Close(std::move(fd), temp);
  Rename(temp, path);
}

void VllmWrite(const Place& place, const Key& key, Bytes data) {
  VllmWriteWith(place, key, data, 0);
}

void VllmDirectWrite(const Place& place, const Key& key, Bytes data) {
  VllmWriteWith(place, key, data, DirectFlag(data.size()));
}

bool VllmProbe(const Place& place, const Key& key) {
  // A batch: the key among names that are not there.
  bool found = false;
  for (uint32_t i = 0; i < 8; ++i) {
    const Key other{key.actor + (i == 3 ? 0 : 1'000'000), key.index + (i == 3 ? 0 : i)};
    if (AccessExists(HashedPath(place, other)) && i == 3) found = true;
  }
  return found;
}

std::optional<Buffer> ReadWhole(const std::string& path, uint64_t size, int extra) {
  auto fd = OpenIfThere(path, O_RDONLY | extra);
  if (!fd) return std::nullopt;
  return ReadOnce(*fd, size, path);
}

std::optional<Buffer> VllmRead(const Place& place, const Key& key, uint64_t size) {
  return ReadWhole(HashedPath(place, key), size, 0);
}

std::optional<Buffer> VllmDirectRead(const Place& place, const Key& key, uint64_t size) {
  return ReadWhole(HashedPath(place, key), size, DirectFlag(size));
}

// --- llm-d fs connector: renames while the file is still open

void LlmdWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = HashedPath(place, key);
  if (Fd there(open(path.c_str(), O_RDONLY | O_CLOEXEC)); there.valid()) {
    const timespec touch[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    Sys(utimensat(AT_FDCWD, path.c_str(), touch, 0), "utimensat " + path);
    return;
  }
  StatAndMakeParents(path);
  const std::string temp = path + "_" + UniqueSuffix() + ".tmp";
  Fd fd = Open(temp, O_WRONLY | O_CREAT | O_TRUNC);
  const iovec piece{const_cast<uint8_t*>(data.data()), data.size()};
  const ssize_t done = Sys(writev(fd.get(), &piece, 1), "writev " + temp);
  Check(static_cast<size_t>(done) == data.size(), "short writev of " + temp);
  Rename(temp, path);
  Close(std::move(fd), path);
}

bool LlmdProbe(const Place& place, const Key& key) { return StatExists(HashedPath(place, key)); }

std::optional<Buffer> LlmdRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = HashedPath(place, key);
  auto fd = OpenIfThere(path, O_RDONLY);
  if (!fd) return std::nullopt;
  const off_t end = Sys(lseek(fd->get(), 0, SEEK_END), "lseek " + path);
  Check(static_cast<uint64_t>(end) == size, path + ": lseek(END) says " + std::to_string(end));
  // A partial read takes the tail; then the whole, as two reads in the order the connector may ask
  // for.
  Buffer buffer(size);
  const uint64_t head = size / 2;
  Sys(lseek(fd->get(), static_cast<off_t>(head), SEEK_SET), "lseek " + path);
  const ssize_t tail = Sys(read(fd->get(), buffer.data() + head, size - head), "read " + path);
  Check(static_cast<uint64_t>(tail) == size - head, "short read of the tail of " + path);
  Sys(lseek(fd->get(), 0, SEEK_SET), "lseek " + path);
  const ssize_t front = Sys(read(fd->get(), buffer.data(), head), "read " + path);
  Check(static_cast<uint64_t>(front) == head, "short read of the head of " + path);
  return buffer;
}

// --- vLLM example connector: a folder a block, a safetensors file a layer

constexpr uint64_t kLayers = 4;

std::string Folder(const Place& place, const Key& key) {
  return place.root + "/" + key.Hash().substr(0, 32);
}

std::string LayerPath(const Place& place, const Key& key, uint64_t layer) {
  return Folder(place, key) + "/model.layers." + std::to_string(layer) +
         ".self_attn.attn.safetensors";
}

Bytes Layer(Bytes data, uint64_t layer) {
  const uint64_t each = data.size() / kLayers;
  return data.subspan(layer * each, layer + 1 == kLayers ? data.size() - layer * each : each);
}

void ExampleWrite(const Place& place, const Key& key, Bytes data) {
  StatAndMakeParents(LayerPath(place, key, 0));
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::string path = LayerPath(place, key, layer);
    Fd fd = Open(path, O_WRONLY | O_CREAT | O_TRUNC);
    WriteLoop(fd, Layer(data, layer), SIZE_MAX, path);
    Close(std::move(fd), path);
  }
}

void ExampleNewWrite(const Place& place, const Key& key, Bytes data) {
  StatAndMakeParents(LayerPath(place, key, 0));
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::string path = LayerPath(place, key, layer);
    const std::string temp = Folder(place, key) + "/.tmp" + UniqueSuffix();
    const Bytes part = Layer(data, layer);
    Fd fd = Open(temp, O_RDWR | O_CREAT | O_EXCL);
    Sys(ftruncate(fd.get(), static_cast<off_t>(part.size())), "ftruncate " + temp);
    WriteLoop(fd, part, 1 << 20, temp);
    Close(std::move(fd), temp);
    Rename(temp, path);
  }
}

bool ExampleProbe(const Place& place, const Key& key) { return StatExists(Folder(place, key)); }

std::optional<Buffer> ExampleRead(const Place& place, const Key& key, uint64_t size) {
  Buffer buffer(size);
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::string path = LayerPath(place, key, layer);
    auto fd = OpenIfThere(path, O_RDONLY);
    if (!fd) return std::nullopt;
    const Bytes part = Layer(buffer, layer);
    struct stat st {};
    Sys(fstat(fd->get(), &st), "fstat " + path);
    Check(static_cast<uint64_t>(st.st_size) == part.size(),
          path + ": st_size " + std::to_string(st.st_size));
    MappedCopy(*fd,
               buffer.span().subspan(static_cast<size_t>(part.data() - buffer.data()), part.size()),
               0, MAP_PRIVATE, path);
  }
  return buffer;
}

}  // namespace

std::vector<Client> VllmClients() {
  return {
      {"vllm", "vLLM fs tier", kCommonSizes, SameKey::kWhole, true, VllmStart, VllmWrite, VllmProbe,
       VllmRead},
      {"vllm-direct", "vLLM fs tier, O_DIRECT", kCommonSizes, SameKey::kWhole, true, VllmStart,
       VllmDirectWrite, VllmProbe, VllmDirectRead},
      {"llm-d",
       "llm-d fs connector",
       {32ull << 20},
       SameKey::kWhole,
       true,
       NoStart,
       LlmdWrite,
       LlmdProbe,
       LlmdRead},
      {"vllm-example", "vLLM example connector", kCommonSizes, SameKey::kUndefined, true, NoStart,
       ExampleWrite, ExampleProbe, ExampleRead},
      {"vllm-example-new", "vLLM example connector, newer", kCommonSizes, SameKey::kUndefined, true,
       NoStart, ExampleNewWrite, ExampleProbe, ExampleRead},
  };
}

}  // namespace prefixfs::engine
