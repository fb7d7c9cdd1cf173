// OpenFiles: the files that somebody holds open or is writing, and the names only their writers
// see.
//
// A name is *provisional* while its file is written: the process that opened it for writing (and
// its children) sees it, nobody else does. Publishing makes it visible to all; a file reopened for
// writing before it is sealed is provisional again. Several writers of one name each have a file of
// their own.
//
// Threads: one lock, `mutex`, over the table and over every File field marked [table]; never held
// over I/O. Fields marked [change] are written only with both File::change and `mutex` held, so
// holding either is enough to read.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/waiting.h"
#include "cache/index/record.h"
#include "cache/inode_count.h"
#include "cache/process.h"
#include "cache/store/drive.h"

namespace prefixfs {

// File::change, for a thread that may wait.
class PFS_SCOPED_CAPABILITY ChangeLock {
 public:
  explicit ChangeLock(Mutex& mutex) PFS_ACQUIRE(mutex) PFS_NO_ANALYSIS : mutex_(mutex) {
    if (mutex_.try_lock()) return;
    const Waiting waiting(Wait::kFile);
    mutex_.lock();
  }
  ~ChangeLock() PFS_RELEASE() PFS_NO_ANALYSIS { mutex_.unlock(); }
  ChangeLock(const ChangeLock&) = delete;
  ChangeLock& operator=(const ChangeLock&) = delete;

 private:
  Mutex& mutex_;
};

struct File {
  explicit File(Ino number) : ino(number) {}
  ~File();

  const Ino ino;

  // Serialises what changes this file as a whole: publish, rename, unlink, seal, truncate. May be
  // held over I/O; only operations on the same file wait. Taken before any other lock, and never
  // two at once.
  Mutex change;

  Inode inode;  // [change] the truth while the file is open; its size and mtime only once sealed
  Drive* drive = nullptr;  // constant once in the table
  Fd fd;                   // [change] data: O_RDWR for a writer, O_RDONLY for a sealed block
  Fd direct_fd;            // [change] the same file with O_DIRECT, once it was asked for
  Fd copy_source;          // constant once in the table: the base of a version made without reflink
  bool copy_pending =
      false;               // [change] reads come from copy_source still; the first write copies it
  bool published = false;  // [change] the index has its name
  bool provisional = false;  // [change] only the owner sees it
  bool recorded = false;  // [change] the index calls it sealed already, with the size it then had
  bool flushed = false;   // [change] its writer closed or synced it in good order at least once
  bool closed = false;    // [change] complete under a temporary name, which the index does not have
  bool modified = false;  // [change] differs from `base` whatever its mtime says
  Ino base = 0;           // [change] the block this is a new version of, 0 if none
  pid_t owner_tid = 0;    // [change] the thread that opened it for writing
  ProcessId owner;        // [change] and its process
  InodeClaim claim;       // [change] of a file that the index does not have yet
  bool remeasure =
      true;  // constant once in the table: the filesystem may take back space after the last close
  bool served = false;  // constant once in the table: the daemon serves it, so that a write can
                        // wait for space
  int64_t made_ns = 0;  // monotonic; a version nobody opened is dropped after a while

  bool direct = false;                // [table] a block written with O_DIRECT
  bool native_direct = false;         // [table] and by the kernel alone, so it may have met EINVAL
  bool renamed = false;               // [table] has got its final name, as far as one can know
  bool nameless = false;              // [table] unlinked or replaced: goes with its last handle
  bool unnamed = false;               // [table] nameless from the start, and may yet get a name
  bool replaced = false;              // [table] nameless because another file took the name
  uint32_t readers = 0, writers = 0;  // [table] open handles
  bool settled = true;                // [table] no writer's last close waits to be worked off
  bool resident = false;              // [table] counted by Residents as open
  uint64_t reserved = 0;              // [table] bytes of the budget still promised
  uint64_t promised = 0;              // [table] bytes of the budget ever promised to it
  uint64_t written = 0;               // [table] bytes that came by the daemon, if it is `served`
  uint64_t accounted = 0;             // [table] bytes the budget counts for it

  bool posix() const { return inode.state == FileState::kPosix; }
  bool sealed() const { return inode.state == FileState::kSealed; }
};

using FilePtr = std::shared_ptr<File>;

class OpenFiles {
 public:
  Mutex mutex;

  FilePtr Find(Ino ino) PFS_EXCLUDES(mutex);
  FilePtr FindLocked(Ino ino) PFS_REQUIRES(mutex);
  void AddLocked(const FilePtr& file) PFS_REQUIRES(mutex) { files_[file->ino] = file; }
  void RemoveLocked(Ino ino) PFS_REQUIRES(mutex) { files_.erase(ino); }

  // The provisional files of a name, newest last.
  std::vector<FilePtr> Provisional(Ino parent, std::string_view name) PFS_EXCLUDES(mutex);
  void AddProvisionalLocked(const FilePtr& file) PFS_REQUIRES(mutex);
  void RemoveProvisionalLocked(const FilePtr& file) PFS_REQUIRES(mutex);
  bool HasProvisional(Ino parent) PFS_EXCLUDES(mutex);
  // Those with numbers above `after` up to `last`, in order.
  std::vector<FilePtr> ProvisionalIn(Ino parent, Ino after, Ino last) PFS_EXCLUDES(mutex);
  // Files with write handles, for the account; and versions that nobody opened.
  std::vector<FilePtr> Writing() PFS_EXCLUDES(mutex);
  std::vector<FilePtr> AllProvisional() PFS_EXCLUDES(mutex);
  std::vector<FilePtr> All() PFS_EXCLUDES(mutex);

 private:
  struct Name {
    Ino parent;
    std::string name;
    bool operator==(const Name&) const = default;
  };
  struct NameHash {
    size_t operator()(const Name& name) const {
      return std::hash<std::string>()(name.name) ^ (name.parent * 0x9E3779B97F4A7C15ull);
    }
  };

  std::unordered_map<Ino, FilePtr> files_ PFS_GUARDED_BY(mutex);
  std::unordered_map<Name, std::vector<FilePtr>, NameHash> provisional_ PFS_GUARDED_BY(mutex);
  // The same files by directory and number.
  std::unordered_map<Ino, std::map<Ino, FilePtr>> provisional_in_ PFS_GUARDED_BY(mutex);
  // So that the common lookup, of a name nobody is writing, takes no lock.
  std::atomic<size_t> provisional_count_{0};
};

// Which of `candidates` (provisional files of one name) this caller means: its own thread's newest,
// else, when the name is not published, the newest of its process or an ancestor. Null if none.
// Reads /proc, so hold no lock.
FilePtr ChooseFor(const Caller& caller, const std::vector<FilePtr>& candidates, bool published);

}  // namespace prefixfs
