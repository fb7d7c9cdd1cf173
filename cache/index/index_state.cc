#include "cache/index/index_state.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cache/base/fd.h"
#include "cache/index/index.h"

namespace prefixfs {
namespace {

constexpr char kMagic[] = "prefixfs-index-state 1";
constexpr char kName[] = "STATE";
constexpr char kFresh[] = "STATE.new";
constexpr std::string_view kDigest = "digest ";
constexpr size_t kPiece = 1 << 20;

Status Failed(int error) { return Status::FromErrno(error, "index: STATE"); }

Status WriteSynced(int directory_fd, const char* name, int flags, std::string_view text) {
  const size_t size = text.size();
  Fd fd(::openat(directory_fd, name, O_WRONLY | O_CLOEXEC | flags, 0600));
  if (!fd.valid()) return Failed(errno);
  while (!text.empty()) {
    const ssize_t n = ::write(fd.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(errno);
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return Failed(errno);
  return ::fsync(fd.get()) == 0 ? Ok() : Failed(errno);
}

Status ReplaceState(int directory_fd, std::string_view text) {
  PFS_TRY(WriteSynced(directory_fd, kFresh, O_CREAT | O_TRUNC, text));
  if (::renameat(directory_fd, kFresh, directory_fd, kName) != 0) return Failed(errno);
  return ::fsync(directory_fd) == 0 ? Ok() : Failed(errno);
}

}  // namespace

Result<IndexState> ReadIndexState(int directory_fd) {
  Fd fd(::openat(directory_fd, kName, O_RDONLY | O_CLOEXEC));
  if (const Status opened = fd.valid() ? Ok() : Failed(errno); opened.Is(Code::kNoDescriptors))
    return opened;
  char buffer[512];
  const ssize_t n = fd.valid() ? ::read(fd.get(), buffer, sizeof(buffer)) : 0;
  std::istringstream text(std::string(buffer, static_cast<size_t>(n > 0 ? n : 0)));
  std::string magic, boot, clean;
  if (!std::getline(text, magic) || magic != kMagic) return IndexState();
  if (!std::getline(text, boot) || boot.rfind("boot ", 0) != 0) return IndexState();
  if (!std::getline(text, clean) || (clean != "clean" && clean != "in use")) return IndexState();
  IndexState state{boot.substr(5), clean == "clean", {}};
  if (std::string line; std::getline(text, line) && line.rfind(kDigest, 0) == 0) {
    state.digest = line.substr(kDigest.size());
  }
  return state;
}

Status WriteIndexState(int directory_fd, const IndexState& state) {
  std::string text(kMagic);
  text += "\nboot " + state.boot_id + "\n" + (state.clean ? "clean" : "in use") + "\n";
  if (!state.digest.empty()) text.append(kDigest).append(state.digest).append("\n");
  const Status replaced = ReplaceState(directory_fd, text);
  if (!replaced.Is(Code::kNoSpace)) return replaced;
  // On a full filesystem over the old one, which has its block: a start must not need space,
  // because it is what evicts. Nothing writes data.mdb meanwhile, so whatever mixture of the two a
  // crash leaves is true of it, or unreadable.
  (void)::unlinkat(directory_fd, kFresh, 0);
  const Status over = WriteSynced(directory_fd, kName, 0, text);
  return over.Is(Code::kNotFound) ? replaced : over;
}

Result<std::string> DigestOfData(int directory_fd) {
  const Fd fd(::openat(directory_fd, "data.mdb", O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::FromErrno(errno, "index: data.mdb");
  (void)::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> piece(kPiece);
  uint64_t size = 0;
  for (;;) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "index: data.mdb");
    if (n == 0) break;
    XXH3_128bits_update(state.get(), piece.data(), static_cast<size_t>(n));
    size += static_cast<uint64_t>(n);
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(state.get());
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx",
                static_cast<unsigned long long>(digest.high64),
                static_cast<unsigned long long>(digest.low64));
  return std::to_string(size) + " " + text;
}

std::string CurrentBootId() {
  if (const char* given = std::getenv("PREFIXFS_BOOT_ID"); given != nullptr && *given != '\0') {
    return given;
  }
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace prefixfs
