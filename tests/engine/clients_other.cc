// TensorRT-LLM, llama.cpp's slot save, VAST VUA, and the eviction crawler that some deployments run
// beside vLLM.
#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "tests/engine/client_io.h"

namespace prefixfs::engine {
namespace {

// --- TensorRT-LLM: no truncate, one write, no probe

std::string TrtPath(const Place& place, const Key& key) {
  return place.root + "/block_" + std::to_string(key.actor * 100'000 + key.index) + "_pool_0.bin";
}

void TrtWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = TrtPath(place, key);
  Fd fd = Open(path, O_CREAT | O_WRONLY);
  WriteOnce(fd, data, path);
  Close(std::move(fd), path);
}

bool TrtProbe(const Place& place, const Key& key) { return AccessExists(TrtPath(place, key)); }

std::optional<Buffer> TrtRead(const Place& place, const Key& key, uint64_t size) {
  auto fd = OpenIfThere(TrtPath(place, key), O_RDONLY);
  if (!fd) return std::nullopt;
  return ReadOnce(*fd, size, TrtPath(place, key));
}

// --- llama.cpp: stdio, final name

struct CloseFile {
  void operator()(FILE* file) const { fclose(file); }
};

std::string SlotPath(const Place& place, const Key& key) {
  return place.root + "/chat-" + std::to_string(key.actor) + "-" + std::to_string(key.index) +
         ".slot";
}

void SlotWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = SlotPath(place, key);
  std::unique_ptr<FILE, CloseFile> file(fopen(path.c_str(), "wb"));
  Check(file != nullptr, "fopen " + path);
  size_t piece = 4096;
  for (size_t done = 0; done < data.size(); done += piece) {
    piece = std::min(piece == 4096 ? size_t{60 << 10} : size_t{4096}, data.size() - done);
    Check(fwrite(data.data() + done, 1, piece, file.get()) == piece, "fwrite " + path);
  }
}

bool SlotProbe(const Place& place, const Key& key) { return AccessExists(SlotPath(place, key)); }

std::optional<Buffer> SlotRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = SlotPath(place, key);
  std::unique_ptr<FILE, CloseFile> file(fopen(path.c_str(), "rb"));
  if (file == nullptr && errno == ENOENT) return std::nullopt;
  Check(file != nullptr, "fopen " + path);
  Check(fseek(file.get(), 0, SEEK_END) == 0, "fseek " + path);
  Check(ftell(file.get()) == static_cast<long>(size), path + ": wrong size");
  rewind(file.get());
  Buffer buffer(size);
  Check(fread(buffer.data(), 1, size, file.get()) == size, "short fread of " + path);
  return buffer;
}

// --- VAST VUA: a directory a block, renamed when complete

std::string VuaDir(const Place& place, const Key& key) {
  return place.root + "/" + key.Hash().substr(0, 40);
}

void WriteAndSync(const std::string& path, Bytes data) {
  Fd fd = Open(path, O_WRONLY | O_CREAT | O_TRUNC);
  WriteLoop(fd, data, SIZE_MAX, path);
  Sys(fsync(fd.get()), "fsync " + path);
  Close(std::move(fd), path);
}

void VuaWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = VuaDir(place, key);
  const std::string temp = path + ".tmp";
  Sys(mkdir(temp.c_str(), 0755), "mkdir " + temp);
  const Key parent{key.actor, key.index + 1};
  Sys(symlink(("../" + parent.Hash().substr(0, 40)).c_str(), (temp + "/parent").c_str()),
      "symlink");
  WriteAndSync(temp + "/_data.safetensors", data);
  WriteAndSync(temp + "/_tokens.safetensors", data.subspan(0, 512));
  Rename(temp, path);
}

bool VuaProbe(const Place& place, const Key& key) { return StatExists(VuaDir(place, key)); }

std::optional<Buffer> VuaRead(const Place& place, const Key& key, uint64_t size) {
  const std::string path = VuaDir(place, key);
  char target[128] = {};
  if (readlink((path + "/parent").c_str(), target, sizeof(target) - 1) < 0) {
    if (errno == ENOENT) return std::nullopt;
    throw SysFailure(errno, "readlink " + path + "/parent");
  }
  Check(std::string(target).starts_with("../"), "the symlink of " + path + " points to " + target);
  auto fd = OpenIfThere(path + "/_data.safetensors", O_RDONLY);
  if (!fd) return std::nullopt;
  Buffer buffer(size);
  PreadLoop(*fd, buffer.span(), 0, path);
  return buffer;
}

// --- crawler: flat blocks, looked at by scandir and stat, removed by age

std::string FlatPath(const Place& place, const Key& key) {
  return place.root + "/d" + std::to_string(key.actor) + "/" + key.Hash() + ".bin";
}

void FlatWrite(const Place& place, const Key& key, Bytes data) {
  const std::string path = FlatPath(place, key);
  const std::string temp = path + "_" + UniqueSuffix() + ".tmp";
  StatAndMakeParents(path);
  Fd fd = Open(temp, O_CREAT | O_EXCL | O_WRONLY);
  WriteOnce(fd, data, temp);
  Close(std::move(fd), temp);
  Rename(temp, path);
}

struct Found {
  int64_t atime_ns;
  std::string path;
};

std::vector<Found> Crawl(const std::string& root) {
  std::vector<Found> found;
  DIR* stream = opendir(root.c_str());
  if (stream == nullptr) return found;
  while (const dirent* entry = readdir(stream)) {
    if (entry->d_name[0] == '.') continue;
    const std::string path = root + "/" + entry->d_name;
    struct stat st {};
    if (lstat(path.c_str(), &st) != 0) continue;
    if (S_ISDIR(st.st_mode)) {
      for (Found& below : Crawl(path)) found.push_back(std::move(below));
    } else {
      found.push_back({st.st_atim.tv_sec * 1'000'000'000 + st.st_atim.tv_nsec, path});
    }
  }
  closedir(stream);
  return found;
}

bool FlatProbe(const Place& place, const Key& key) {
  const std::string path = FlatPath(place, key);
  const std::vector<Found> found = Crawl(Parent(path));
  return std::any_of(found.begin(), found.end(),
                     [&](const Found& file) { return file.path == path; });
}

std::optional<Buffer> FlatRead(const Place& place, const Key& key, uint64_t size) {
  auto fd = OpenIfThere(FlatPath(place, key), O_RDONLY);
  if (!fd) return std::nullopt;
  return ReadOnce(*fd, size, FlatPath(place, key));
}

}  // namespace

uint32_t CrawlAndEvict(const std::string& root, uint32_t keep) {
  struct statvfs space {};
  Sys(statvfs(root.c_str(), &space), "statvfs " + root);
  std::vector<Found> found = Crawl(root);
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.atime_ns < b.atime_ns; });
  uint32_t removed = 0;
  for (const Found& file : found) {
    if (found.size() - removed <= keep) break;
    if (unlink(file.path.c_str()) != 0 && errno != ENOENT)
      throw SysFailure(errno, "unlink " + file.path);
    ++removed;
  }
  for (const Found& file : found) {
    if (rmdir(Parent(file.path).c_str()) != 0 && errno != ENOENT && errno != ENOTEMPTY &&
        errno != EBUSY) {
      throw SysFailure(errno, "rmdir " + Parent(file.path));
    }
  }
  return removed;
}

std::vector<Client> OtherClients() {
  return {
      {"tensorrt-llm", "TensorRT-LLM", kCommonSizes, SameKey::kUndefined, true, NoStart, TrtWrite,
       TrtProbe, TrtRead},
      {"llama.cpp", "llama.cpp slot save", kCommonSizes, SameKey::kVersioned, true, NoStart,
       SlotWrite, SlotProbe, SlotRead},
      {"vua", "VAST VUA", kCommonSizes, SameKey::kUndefined, true, NoStart, VuaWrite, VuaProbe,
       VuaRead},
      {"crawler", "eviction crawler's view", kCommonSizes, SameKey::kWhole, true, NoStart,
       FlatWrite, FlatProbe, FlatRead},
  };
}

}  // namespace prefixfs::engine
