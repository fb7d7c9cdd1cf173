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

// Publishes a closed temporary under the name that it has.
void Cache::PublishTemporary(const FilePtr& file) {
  {
    ChangeLock change(file->change);
    bool writers;
    Ino parent;
    std::string name;
    {
      MutexLock lock(open_.mutex);
      if (!std::exchange(file->closed, false) || file->nameless) return;
      writers = file->writers > 0;
      parent = file->inode.parent;
      name = file->inode.name;
    }
    // Its writer's release, which is on its way, settles it.
    if (writers) {
      (void)Publish(file, parent, name, true, true).ok();
    } else {
      SettleWriter(file);
    }
  }
  Forget(file);
}

// Whether a closed temporary is another thread's. Threads of one process that write the same name
// must not meet in one file.
bool Cache::IsAnothersTemporary(const File& file, const Caller& caller) {
  MutexLock lock(open_.mutex);
  return file.closed && file.owner_tid != caller.tid();
}

// The provisional files of a name, of which none is a closed temporary that the caller cannot mean:
// by the rule of ChooseFor.
std::vector<FilePtr> Cache::WrittenUnder(Ino parent, std::string_view name, const Caller& caller) {
  return WrittenUnder(parent, name, caller, true).value();
}

// kRejected if one would have to be published, and this thread may not wait for that.
Result<std::vector<FilePtr>> Cache::WrittenUnder(Ino parent, std::string_view name,
                                                 const Caller& caller, bool may_wait) {
  std::vector<FilePtr> files = open_.Provisional(parent, name);
  bool published = false;
  for (const FilePtr& file : files) {
    if (!IsAnothersTemporary(*file, caller)) continue;
    const bool own = caller.DescendsFrom(file->owner) && !index_->Lookup(parent, name).ok();
    if (own) continue;
    if (!may_wait) return Code::kRejected;
    PublishTemporary(file);
    published = true;
  }
  return published ? open_.Provisional(parent, name) : files;
}

}  // namespace prefixfs
