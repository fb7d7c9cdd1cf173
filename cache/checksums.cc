#include "cache/checksums.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <new>
#include <span>

#include "cache/base/memory.h"
#include "cache/store/direct_io.h"

namespace prefixfs {
namespace {
constexpr size_t kPiece = 128 << 10;  // hashed while it is still in the processor's cache
constexpr size_t kDirectPiece = 1 << 20;
}  // namespace

void Checksums::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Checksums::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    ready_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Checksums::Enqueue(Ino ino) {
  MutexLock lock(mutex_);
  queue_.push_back(ino);
  ready_.NotifyOne();
}

uint64_t Checksums::pending() {
  MutexLock lock(mutex_);
  return queue_.size() + busy_;
}

void Checksums::Run() {
  for (;;) {
    std::vector<Ino> blocks;
    {
      MutexLock lock(mutex_);
      busy_ = 0;
      while (queue_.empty() && !stopping_) ready_.Wait(mutex_);
      if (stopping_) return;  // what is left is found again at the next start
      const auto end =
          queue_.begin() + static_cast<ptrdiff_t>(std::min(queue_.size(), kMostAtOnce));
      blocks.assign(queue_.begin(), end);
      queue_.erase(queue_.begin(), end);
      busy_ = blocks.size();
    }
    (void)SurvivesNoMemory([&] { check_(blocks); });
  }
}

namespace {

// The digest of what `read(offset)` gives, piece by piece until it gives nothing.
template <typename Read>
Result<Digest> DigestOf(uint64_t size, Read read) {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                 &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  uint64_t offset = 0;
  while (offset <= size) {
    const std::span<const char> piece = PFS_TRY(read(offset));
    if (piece.empty()) break;
    XXH3_128bits_update(state.get(), piece.data(), piece.size());
    offset += piece.size();
  }
  if (offset != size)
    return Status(Code::kCorrupt, "the backing file does not have the sealed size");
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
  Digest digest;
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.begin());
  return digest;
}

}  // namespace

Result<Digest> Checksums::Compute(int fd, uint64_t size) {
  thread_local const auto piece = std::make_unique_for_overwrite<char[]>(kPiece);
  return DigestOf(size, [&](uint64_t offset) {
    return ReadAt(fd, offset, kPiece, {piece.get(), kPiece});
  });
}

Result<Digest> Checksums::ComputeFromDrive(int fd, uint64_t size, uint32_t alignment) {
  const Fd direct = alignment > 0 ? ReopenDirect(fd) : Fd();
  const TransferMemory memory(kDirectPiece);
  if (!direct.valid() || memory.bytes().empty()) return ComputeAtLeisure(fd, size);
  const DataFile file{fd, direct.get(), alignment};
  const Idle idle;
  return DigestOf(size, [&](uint64_t offset) {
    return ReadDirect(file, offset, kDirectPiece, memory.bytes());
  });
}

}  // namespace prefixfs
