// SGLang HiCache: the file backend and the NIXL backend.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/engine/client_io.h"

namespace prefixfs::engine {
namespace {

// --- file backend: one flat directory, a dup'ed descriptor closed twice

std::string FilePath(const Place& place, const Key& key) {
  return place.root + "/" + key.Hash() + "_org-Model-8B_0_8.bin";
}

void FileWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = FilePath(place, key);
  char temp_suffix[96];
  snprintf(temp_suffix, sizeof(temp_suffix), ".tmp.%d.%d.%s", getpid(), gettid(),
           Key{key.actor + 77, static_cast<uint32_t>(std::stoull(UniqueSuffix()) & 0xFFFFFFFF)}
               .Hash()
               .substr(0, 32)
               .c_str());
  const std::string temp = path + temp_suffix;
  Fd fd = Open(temp, O_WRONLY | O_CREAT | O_TRUNC);
  // numpy's tofile writes through a duplicate.
  Fd copy(Sys(dup(fd.get()), "dup " + temp));
  WriteOnce(copy, data, temp);
  Close(std::move(copy), temp);
  Close(std::move(fd), temp);
  Rename(temp, path);
}

bool FileProbe(const Place& place, const Key& key) { return StatExists(FilePath(place, key)); }

std::optional<Buffer> FileRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = FilePath(place, key);
  auto fd = OpenIfThere(path, O_RDONLY);
  if (!fd) return std::nullopt;
  struct stat st {};
  Sys(fstat(fd->get(), &st), "fstat " + path);
  Check(static_cast<uint64_t>(st.st_size) == size,
        path + ": st_size " + std::to_string(st.st_size));
  return ReadOnce(*fd, size, path);
}

// --- NIXL backend: 256 bucket directories, final names, opened O_RDWR even to read

std::string HalfPath(const Place& place, const Key& key, const char* half) {
  const std::string hash = key.Hash();
  return place.root + "/" + hash.substr(0, 2) + "/" + hash + "_model_0_8_" + half;
}

void NixlStart(const Place& place, uint32_t) {
  for (int bucket = 0; bucket < 256; ++bucket) {
    char name[8];
    snprintf(name, sizeof(name), "/%02x", static_cast<unsigned>(bucket));
    if (mkdir((place.root + name).c_str(), 0755) != 0 && errno != EEXIST) {
      throw SysFailure(errno, "mkdir of a bucket");
    }
  }
}

uint64_t FirstHalf(uint64_t size) { return size / 8192 * 4096; }

void WriteHalf(const std::string& path, Bytes data) {
  Fd fd = Open(path, O_RDWR | O_CREAT | DirectFlag(data.size()));
  PwriteLoop(fd, data, 0, path);
  Close(std::move(fd), path);
}

void NixlWrite(const Place& place, const Key& key, Bytes data) {
  const uint64_t first = FirstHalf(data.size());
  WriteHalf(HalfPath(place, key, "k"), data.subspan(0, first));
  WriteHalf(HalfPath(place, key, "v"), data.subspan(first));
}

bool NixlProbe(const Place& place, const Key& key) {
  return StatExists(HalfPath(place, key, "k")) && StatExists(HalfPath(place, key, "v"));
}

std::optional<Buffer> NixlRead(const Place& place, const Key& key, uint64_t size) {
  Buffer buffer(size);
  const uint64_t first = FirstHalf(size);
  for (const char* half : {"k", "v"}) {
    const std::string path = HalfPath(place, key, half);
    const auto part = *half == 'k' ? buffer.span().subspan(0, first) : buffer.span().subspan(first);
    auto fd = OpenIfThere(path, O_RDWR | DirectFlag(part.size()));
    if (!fd) return std::nullopt;
    PreadLoop(*fd, part, 0, path);
  }
  return buffer;
}

}  // namespace

std::vector<Client> SglangClients() {
  return {
      {"sglang", "SGLang HiCache file", kCommonSizes, SameKey::kWhole, true, NoStart, FileWrite,
       FileProbe, FileRead},
      {"sglang-nixl", "SGLang HiCache NIXL", kCommonSizes, SameKey::kUndefined, true, NixlStart,
       NixlWrite, NixlProbe, NixlRead},
  };
}

}  // namespace prefixfs::engine
