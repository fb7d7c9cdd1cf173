// LMCache's GDS / Weka backend. Without a GPU cuFile's write is stood in for by an O_DIRECT pwrite,
// which is what the file system sees of it; the fallback through MAP_SHARED is the client's own.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/engine/client_io.h"

namespace prefixfs::engine {
namespace {

constexpr uint64_t kHeader = 4096;

std::string DataPath(const Place& place, const Key& key) {
  const std::string hash = key.Hash();
  return place.root + "/" + hash.substr(0, 2) + "/" + hash.substr(2, 2) +
         "/org%2FModel-8B%408%400%40" + hash + ".kvcache.safetensors";
}

std::string MetadataPath(const Place& place, const Key& key) {
  return DataPath(place, key) + ".metadata";
}

std::string HeaderThenClose(const std::string& path, Bytes data) {
  StatAndMakeParents(path);
  char suffix[16];
  snprintf(suffix, sizeof(suffix), ".tmp%08x",
           static_cast<unsigned>(std::stoull(UniqueSuffix()) & 0xFFFFFFFF));
  const std::string temp = path + suffix;
  Fd fd = Open(temp, O_WRONLY | O_CREAT | O_TRUNC);
  WriteOnce(fd, data.subspan(0, kHeader), temp);
  Close(std::move(fd), temp);
  return temp;
}

void WriteMetadata(const Place& place, const Key& key, uint64_t size) {
  const std::string path = MetadataPath(place, key);
  const std::string temp = path + ".tmp" + UniqueSuffix();
  const std::string text = "{\"size\": " + std::to_string(size) + "}";
  Fd fd = Open(temp, O_WRONLY | O_CREAT | O_TRUNC);
  WriteOnce(fd, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, temp);
  Close(std::move(fd), temp);
  Rename(temp, path);
}

// cuFileWrite: whole 4 KiB pieces go straight to the file, a ragged end by the compatibility path.
void CuFileWrite(const std::string& temp, Bytes body) {
  const uint64_t whole = body.size() / 4096 * 4096;
  Fd direct = Open(temp, O_RDWR | O_DIRECT);
  Buffer aligned(body.size());
  memcpy(aligned.data(), body.data(), body.size());
  const Bytes bytes = aligned;
  PwriteLoop(direct, bytes.subspan(0, whole), kHeader, temp);
  Close(std::move(direct), temp);
  if (whole == body.size()) return;
  Fd buffered = Open(temp, O_RDWR);
  PwriteLoop(buffered, bytes.subspan(whole), kHeader + whole, temp);
  Close(std::move(buffered), temp);
}

void MappedWrite(const std::string& temp, Bytes body) {
  Fd fd = Open(temp, O_RDWR);
  Sys(ftruncate(fd.get(), static_cast<off_t>(kHeader + body.size())), "ftruncate " + temp);
  void* memory = mmap(nullptr, body.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(),
                      static_cast<off_t>(kHeader));
  if (memory == MAP_FAILED) throw SysFailure(errno, "mmap " + temp);
  memcpy(memory, body.data(), body.size());
  munmap(memory, body.size());
  Close(std::move(fd), temp);
}

void GdsWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = DataPath(place, key);
  const std::string temp = HeaderThenClose(path, data);
  CuFileWrite(temp, data.subspan(kHeader));
  Rename(temp, path);
  WriteMetadata(place, key, data.size());
}

void GdsMappedWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = DataPath(place, key);
  const std::string temp = HeaderThenClose(path, data);
  MappedWrite(temp, data.subspan(kHeader));
  Rename(temp, path);
  WriteMetadata(place, key, data.size());
}

// The start scan: two levels of directories, every .metadata opened with O_NOATIME.
template <typename Visit>
void ForEachEntry(const std::string& path, bool directories, Visit visit) {
  DIR* stream = opendir(path.c_str());
  if (stream == nullptr) throw SysFailure(errno, "opendir " + path);
  while (const dirent* entry = readdir(stream)) {
    if (entry->d_name[0] == '.') continue;
    Check(entry->d_type != DT_UNKNOWN, "readdir gives no d_type for " + path + "/" + entry->d_name);
    if ((entry->d_type == DT_DIR) == directories) visit(path + "/" + entry->d_name);
  }
  closedir(stream);
}

bool IsMetadata(const std::string& path) { return path.ends_with(".metadata"); }

void ReadMetadata(const std::string& path) {
  auto fd = OpenIfThere(path, O_RDONLY | O_NOATIME);
  if (!fd) return;
  char text[64] = {};
  const ssize_t got = Sys(read(fd->get(), text, sizeof(text) - 1), "read " + path);
  Check(got > 0 && text[0] == '{', "no JSON in " + path);
}

void ScanStart(const Place& place, uint32_t) {
  ForEachEntry(place.root, true, [](const std::string& first) {
    ForEachEntry(first, true, [](const std::string& second) {
      ForEachEntry(second, false, [](const std::string& file) {
        if (IsMetadata(file)) ReadMetadata(file);
      });
    });
  });
}

bool GdsProbe(const Place& place, const Key& key) {
  if (!StatExists(MetadataPath(place, key))) return false;
  ReadMetadata(MetadataPath(place, key));
  return StatExists(DataPath(place, key));
}

std::optional<Buffer> GdsRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = DataPath(place, key);
  auto direct = OpenIfThere(path, O_RDONLY | O_DIRECT);
  if (!direct) return std::nullopt;
  Buffer buffer(size);
  const uint64_t whole = size / 4096 * 4096;
  PreadLoop(*direct, buffer.span().subspan(0, whole), 0, path);
  if (whole == size) return buffer;
  // Of the same file, whatever has the name by now.
  const Fd buffered = Open("/proc/self/fd/" + std::to_string(direct->get()), O_RDONLY);
  PreadLoop(buffered, buffer.span().subspan(whole), whole, path);
  return buffer;
}

std::optional<Buffer> GdsMappedRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = DataPath(place, key);
  auto fd = OpenIfThere(path, O_RDONLY);
  if (!fd) return std::nullopt;
  Buffer buffer(size);
  MappedCopy(*fd, buffer.span(), 0, MAP_PRIVATE | MAP_POPULATE, path);
  return buffer;
}

}  // namespace

std::vector<Client> LmcacheGdsClients() {
  return {
      {"lmcache-gds", "LMCache GDS / Weka, cuFile", kCommonSizes, SameKey::kWhole, true, ScanStart,
       GdsWrite, GdsProbe, GdsRead},
      {"lmcache-gds-mmap", "LMCache GDS / Weka, mmap fallback", kCommonSizes, SameKey::kWhole, true,
       ScanStart, GdsMappedWrite, GdsProbe, GdsMappedRead},
  };
}

}  // namespace prefixfs::engine
