// Retry: the second look of a caller that was answered ESTALE.
//
// The kernel keeps what it was answered, and an answer may be older than it looks: a listing that
// was made before a version took its base's name, and is worked off after, leaves the base under
// that name until the answer's time is up. So whoever opens a replaced block, or renames a version,
// has the kernel look the name up again.
//
// OPEN names an inode, not the name the client used, and the kernel looks that name up again only
// once. By then it may stand for another file than the one the version was made of, when several
// clients replace one name or rename a fixed temporary. So the thread is remembered, and its next
// lookup of a file makes sure that the version is of that name.
#include "cache/cache.h"

namespace prefixfs {
namespace {
// The kernel comes back at once; these are for threads that do not.
constexpr int64_t kRetryNs = kNsPerSecond;
constexpr int64_t kSecondLookupNs = 20 * kNsPerMs;
// However long a client that lists is held up.
constexpr int64_t kUnconfirmedNs = 60 * kNsPerSecond;
}  // namespace

Status Cache::StaleFor(const Caller& caller, FilePtr version, bool truncate) {
  if (caller.tid() == 0)
    return Code::kStale;  // threads outside our PID namespace cannot be told apart
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(side_mutex_);
  std::erase_if(retries_, [now](const auto& retry) { return retry.second.until_ns < now; });
  retries_[caller.tid()] = Retry{std::move(version), truncate, now + kRetryNs, 0, {}};
  retry_count_.store(retries_.size(), std::memory_order_release);
  return Code::kStale;
}

// `on_the_way`: the lookup found a directory or link of the path, which is not yet the name itself.
std::optional<Cache::Retry> Cache::TakeRetry(const Caller& caller, Ino parent,
                                             std::string_view name, bool on_the_way) {
  if (on_the_way || retry_count_.load(std::memory_order_acquire) == 0) return std::nullopt;
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(side_mutex_);
  auto it = retries_.find(caller.tid());
  if (it == retries_.end()) return std::nullopt;
  Retry retry = std::move(it->second);
  retries_.erase(it);
  retry_count_.store(retries_.size(), std::memory_order_release);
  const bool other = retry.parent != 0 && (retry.parent != parent || retry.name != name);
  if (other || retry.until_ns < now) return std::nullopt;
  return retry;
}

bool Cache::HasRetry(const Caller& caller) {
  if (retry_count_.load(std::memory_order_acquire) == 0) return false;
  MutexLock lock(side_mutex_);
  return retries_.contains(caller.tid());
}

// The name has been looked up, and what was found is being opened or made: what this thread looks
// up later is another matter.
void Cache::EndRetry(const Caller& caller) {
  if (retry_count_.load(std::memory_order_acquire) == 0) return;
  MutexLock lock(side_mutex_);
  retries_.erase(caller.tid());
  retry_count_.store(retries_.size(), std::memory_order_release);
}

// Whether this thread was answered ESTALE in this call. The kernel looks a name up again only once,
// so what it comes with then has to do, replaced or not. Threads that cannot be told apart get what
// there is.
bool Cache::IsSecondLook(const Caller& caller) {
  if (caller.tid() == 0) return true;
  if (second_look_count_.load(std::memory_order_acquire) == 0) return false;
  MutexLock lock(side_mutex_);
  const auto it = second_looks_.find(caller.tid());
  return it != second_looks_.end() && it->second >= clock_.MonotonicNs();
}

void Cache::ExpectSecondLook(const Caller& caller) {
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(side_mutex_);
  second_looks_[caller.tid()] = now + kRetryNs;
  second_look_count_.store(second_looks_.size(), std::memory_order_release);
}

void Cache::EndSecondLook(const Caller& caller) {
  if (second_look_count_.load(std::memory_order_acquire) == 0) return;
  MutexLock lock(side_mutex_);
  second_looks_.erase(caller.tid());
  second_look_count_.store(second_looks_.size(), std::memory_order_release);
}

// What has run out, so that the calls of others need not look at it any more.
void Cache::ForgetRetries() {
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(side_mutex_);
  std::erase_if(second_looks_, [now](const auto& look) { return look.second < now; });
  second_look_count_.store(second_looks_.size(), std::memory_order_release);
  (void)unconfirmed_.TakeExpired(now);
  unconfirmed_count_.store(unconfirmed_.size(), std::memory_order_release);
}

void Cache::NoteVersion(Ino ino) {
  const int64_t now = clock_.MonotonicNs();
  MutexLock lock(side_mutex_);
  unconfirmed_.Set(ino, now + kUnconfirmedNs);
  unconfirmed_count_.store(unconfirmed_.size(), std::memory_order_release);
}

// kStale if a version has the name and is renamed for the first time: the kernel, which would move
// whatever it has under the old name, looks that up again while nobody lists the directory.
Status Cache::ConfirmName(Ino parent, std::string_view name, const Caller& caller) {
  if (unconfirmed_count_.load(std::memory_order_acquire) == 0) return Ok();
  Ino ino = 0;
  if (const FilePtr own = OwnUnder(parent, name, caller)) {
    ino = own->ino;
  } else if (Result<Inode> published = index_->Lookup(parent, name); published.ok()) {
    ino = published->ino;
  }
  {
    MutexLock lock(side_mutex_);
    if (!unconfirmed_.Drop(ino)) return Ok();
    unconfirmed_count_.store(unconfirmed_.size(), std::memory_order_release);
  }
  if (IsSecondLook(caller)) return Ok();
  ExpectSecondLook(caller);
  return Code::kStale;
}

Result<Entry> Cache::LookupAgain(const Retry& retry, Ino parent, std::string_view name,
                                 const Caller& caller, Result<Inode> found,
                                 double* negative_timeout_s) {
  FilePtr version = retry.version;
  if (version) {
    bool same, unused;
    {
      MutexLock lock(open_.mutex);
      same = version->provisional && version->inode.parent == parent && version->inode.name == name;
      unused = version->readers + version->writers == 0 && !version->published;
    }
    if (!same && unused) {
      {
        ChangeLock change(version->change);
        Drop(version);
      }
      Forget(version);
    }
    if (!same) version = nullptr;
  }
  if (!version && found.ok() && found->IsFile() && found->state != FileState::kPosix) {
    // Fails only for lack of space or a lost drive; the open that follows then says so.
    (void)MakeVersion(*found, retry.truncate, caller, false, &version).ok();
  }
  if (!version && !found.ok()) {
    // Not published, and being written by the caller: cutting it takes a file of its own too.
    if (FilePtr own = ChooseFor(caller, open_.Provisional(parent, name), false)) {
      if (!retry.truncate) return Lookup(parent, name, caller, negative_timeout_s);
      Inode base;
      {
        MutexLock lock(open_.mutex);
        base = own->inode;
      }
      (void)MakeVersion(base, true, caller, false, &version).ok();
    }
  }
  if (!version) {
    if (!found.ok()) {
      // Checking what it remembered, the kernel finds nothing; then it looks up in earnest, and by
      // then there may be one.
      MutexLock lock(side_mutex_);
      retries_[caller.tid()] =
          Retry{nullptr, retry.truncate, clock_.MonotonicNs() + kSecondLookupNs, parent,
                std::string(name)};
      retry_count_.store(retries_.size(), std::memory_order_release);
      *negative_timeout_s = 0;
      return Code::kNotFound;
    }
    return Lookup(parent, name, caller, negative_timeout_s);
  }
  {
    // Until it is opened: where another looks the same name up, the kernel may ask once more.
    MutexLock lock(side_mutex_);
    retries_[caller.tid()] =
        Retry{version, retry.truncate, clock_.MonotonicNs() + kRetryNs, parent, std::string(name)};
    retry_count_.store(retries_.size(), std::memory_order_release);
  }
  Entry entry = OpenEntry(version);
  entry.entry_timeout_s = entry.attr_timeout_s = 0;
  return entry;
}

}  // namespace prefixfs
