// Temporaries: what is closed under a temporary name is about to be renamed, and its rename commits
// it. Until then it stays in the table of open files, so that a block costs one commit of the index
// and not two. Whoever else asks for the name has it published first, and so does a second without
// a rename; only a daemon that is killed in between loses it.
#include "cache/cache.h"

namespace prefixfs {

// Whether the file, which its only writer closes now, can wait for its rename.
bool Cache::CloseTemporary(File& file, std::string_view name) {
  if (file.published || file.base != 0 || file.posix() || !naming_->IsTemporary(name)) return false;
  MutexLock lock(open_.mutex);
  file.closed = true;
  return true;
}

// The same when the last handle has gone: nothing is settled before the rename.
bool Cache::StaysTemporary(File& file) {
  if (!file.closed) return false;
  MutexLock lock(open_.mutex);
  file.settled = true;
  file.made_ns = clock_.MonotonicNs();
  return true;
}

// Never, for a file that is something else or still open.
int64_t Cache::TemporarySince(const File& file) {
  MutexLock lock(open_.mutex);
  const bool open = file.readers + file.writers > 0;
  return file.closed && !open ? file.made_ns : INT64_MAX;
}

// Publishes a closed temporary under the name that it has, unless it is the caller's own.
void Cache::PublishTemporary(const FilePtr& file, const Caller* caller) {
  ProcessId owner;
  {
    MutexLock lock(open_.mutex);
    if (!file->closed || (caller != nullptr && file->owner_tid == caller->tid())) return;
    owner = file->owner;
  }
  if (caller != nullptr && caller->DescendsFrom(owner)) return;
  {
    MutexLock change(file->change);
    bool writers;
    Place place{};
    std::string name;
    {
      MutexLock lock(open_.mutex);
      if (!std::exchange(file->closed, false) || file->nameless) return;
      writers = file->writers > 0;
      name = file->inode.name;
      place = {file->inode.parent, name};
    }
    // Its writer's release, which is on its way, settles it.
    if (writers) {
      (void)Publish(file, place.parent, place.name, true, true).ok();
    } else {
      SettleWriter(file);
    }
  }
  Forget(file);
}

// The provisional files of a name, of which none is another's closed temporary.
std::vector<FilePtr> Cache::WrittenUnder(Ino parent, std::string_view name, const Caller& caller) {
  std::vector<FilePtr> files = open_.Provisional(parent, name);
  for (const FilePtr& file : files) PublishTemporary(file, &caller);
  return files.empty() ? files : open_.Provisional(parent, name);
}

}  // namespace prefixfs
