// Cache: the product behind the mount. Names, blocks, versions, visibility, budget and eviction
// over local drives; it knows neither FUSE nor a fabric. What each rule is for is in
// docs/ARCHITECTURE.md and docs/GUARANTEES.md.
//
// Threads: every call from any thread. A call that could wait (for space, or for a checksum)
// answers kRejected when `may_wait` is false; the caller then repeats it from a thread that may.
#pragma once

#include <sys/statvfs.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/config.h"
#include "cache/base/mutex.h"
#include "cache/base/status.h"
#include "cache/base/ticker.h"
#include "cache/base/waiting.h"
#include "cache/budget.h"
#include "cache/checksums.h"
#include "cache/counters.h"
#include "cache/entry.h"
#include "cache/evictor.h"
#include "cache/expiry.h"
#include "cache/index/index.h"
#include "cache/inode_count.h"
#include "cache/naming/naming.h"
#include "cache/open_files.h"
#include "cache/process.h"
#include "cache/report.h"
#include "cache/residents.h"
#include "cache/scrubber.h"
#include "cache/store/direct_io.h"
#include "cache/store/drive_set.h"
#include "cache/store/quarantine.h"

namespace prefixfs {

class Cache {
 public:
  // Opens drives and index, rebuilds the index if it can't be trusted, loads the eviction order,
  // starts the background threads. Call before other threads exist in the process (the index check
  // forks).
  static Result<std::unique_ptr<Cache>> Open(const Config& config);
  ~Cache();
  // Stops the background threads, settles open files and closes the index clean. No call may
  // follow.
  Status Close();
  // Null ends it: no call is under way or comes later when this returns.
  void SetListener(CacheListener* listener) PFS_EXCLUDES(listener_mutex_) {
    MutexLock lock(listener_mutex_);
    listener_ = listener;
  }

  Caller MakeCaller(pid_t tid, uid_t uid, gid_t gid) { return Caller(processes_, tid, uid, gid); }
  const Config& config() const { return config_; }
  Counters& counters() { return counters_; }
  std::string DrivePath(uint16_t slot) const;  // empty if there is none

  // --- names (names.cc) ---
  // kNotFound's kernel timeout is NegativeTimeoutS.
  Result<Entry> Lookup(Ino parent, std::string_view name, const Caller& caller,
                       double* negative_timeout_s, bool may_wait = true);
  // How long a lookup by this caller may wait: longer for one that has the kernel look again,
  // because what it comes with then has to do.
  int64_t LookupWaitMs(const Caller& caller);
  Result<Entry> MakeNode(Ino parent, std::string_view name, uint32_t mode, std::string_view target,
                         const Caller& caller, bool may_wait = true);
  Status Unlink(Ino parent, std::string_view name, const Caller& caller);
  Status RemoveDirectory(Ino parent, std::string_view name);
  Status Rename(Ino parent, std::string_view name, Ino new_parent, std::string_view new_name,
                unsigned flags, const Caller& caller);
  // Names a file that CreateUnnamed made. kDenied for any other: a file has one name.
  Result<Entry> Link(Ino ino, Ino parent, std::string_view name);
  // The kernel has dropped the inode. A hint, which may be missing.
  void Forgotten(Ino ino);
  // Children after `cookie` as `caller` sees them, at most `max`.
  Result<std::vector<DirectoryEntry>> List(Ino parent, uint64_t cookie, size_t max,
                                           const Caller& caller, bool may_wait = true);

  // --- files (files.cc) ---
  Result<Created> Create(Ino parent, std::string_view name, uint32_t mode, int flags,
                         const Caller& caller, bool may_wait);
  // A file without a name; goes with its last handle unless Link names it.
  Result<Created> CreateUnnamed(Ino parent, uint32_t mode, const Caller& caller, bool may_wait);
  // kStale: a new version has been made for this caller; the retried lookup finds it.
  Result<HandlePtr> Open(Ino ino, int flags, const Caller& caller, bool may_wait);
  Status Flush(const Handle& handle, const Caller& caller, bool may_wait = true);
  void Release(HandlePtr handle);
  // The same from a thread that may not wait; false, with the handle as it was, if it would.
  bool TryRelease(HandlePtr& handle);

  // --- data (data.cc) ---
  // The descriptor to read from, valid while the handle is; opened at need.
  Result<int> DataFd(const Handle& handle);
  // Whether DataFd has one already, or one that could be had without waiting.
  bool HasDataFd(const Handle& handle);
  // Before each write of `bytes` through the daemon: finds room where the file's namespace has been
  // writing more than it was promised, and copies the base of a version made without reflink.
  Status PrepareWrite(const Handle& handle, uint64_t bytes, bool may_wait);
  // Whether the kernel may be given this file's descriptor: not for a version made without reflink,
  // nor where writes must be able to wait.
  bool PassthroughAllowed(const Handle& handle);
  // What to read and write through on behalf of a handle that asks for O_DIRECT; as DataFd.
  Result<DataFile> DirectFile(const Handle& handle);
  Status Allocate(const Handle& handle, int mode, int64_t offset, int64_t length, bool may_wait);
  Status SyncData(const Handle& handle, bool data_only);

  // --- direct.cc ---
  // How a handle opened with O_DIRECT is served. Once a handle, at its open; `passthrough`: the
  // kernel may be given the file.
  struct DirectWay {
    bool native = false;      // by the kernel alone, at the alignment the drive asks for
    bool page_cache = false;  // by the daemon, with all its writes through the page cache
  };
  DirectWay ChooseDirect(const Handle& handle, int flags, const Caller& caller, bool passthrough);

  // --- attributes (attributes.cc) ---
  Result<Entry> GetAttributes(Ino ino, const Handle* handle, bool may_wait = true);
  Result<Entry> SetAttributes(Ino ino, const Handle* handle, const AttributeChange& change,
                              const Caller& caller, bool may_wait);
  Result<std::string> ReadLink(Ino ino);
  // Client xattrs live on the backing file; `use` gets its descriptor and makes the system call.
  Status WithXattrFd(Ino ino, const std::function<Status(int)>& use);
  struct statvfs FileSystemStatus();

  // --- reports (report.cc) ---
  Result<Inode> Look(Ino ino) { return index_->Get(ino); }  // no probe: nothing is leased
  std::string PathOf(Ino ino);
  using Location = BlockLocation;
  Result<Location> Locate(Ino ino);
  Result<std::vector<Location>> LocateHash(std::string_view hash_text);
  using Report = CacheReport;
  Report MakeReport();
  const Counters& counters() const { return counters_; }
  // Counts a call refused for want of descriptors or memory, and says in the log what to do.
  void NoteShortage(const Status& status);

 private:
  Cache(const Config& config, const Clock& clock);

  // start and stop (cache.cc, load.cc)
  Status Start();
  Status OpenIndex();
  Status Load();
  Status SettleLeftOpen(Inode* inode);
  int64_t CatchUp(const std::vector<Ino>& changed);
  std::string AbsentSlots() const;
  std::string ReturnedSlot(const std::string& described) const;
  Status EmptyIncoming(const std::set<BlockId>& named);
  Status EmptyTrash();
  void Tick();
  void MeasureWriters();

  // names.cc
  Status CheckName(Ino parent, std::string_view name) const;
  Entry MakeEntry(const Inode& inode) const;
  Entry OpenEntry(const FilePtr& file);
  Result<Entry> PublishedEntry(const Inode& inode, const Caller& caller);
  Inode NewInode(const Inode& directory, std::string_view name, uint32_t mode,
                 const Caller& caller) const;
  void WriteRecord(const Inode& inode);
  void RefreshHeader(Ino ino);
  Mutex& HeaderTurn(Ino ino, const Drive& drive);
  bool WriteHeader(const Inode& inode, Drive& drive);
  // `path`: what would be in `parent`.
  PathPolicy PolicyAt(const Inode& parent, const std::string& path, bool directory);
  Status RenamePublished(Ino parent, std::string_view name, Ino new_parent,
                         std::string_view new_name, unsigned flags);
  bool IsSettled(const Inode& inode) const;
  struct Place {
    Ino parent;
    std::string_view name;
  };
  std::optional<Status> PublishOwn(const FilePtr& own, const Place& from, const Place& to,
                                   bool replace);
  FilePtr OwnUnder(Ino parent, std::string_view name, const Caller& caller);
  Status PublishInPlace(Ino parent, std::string_view name, const Caller& caller);
  Status Exchange(Ino parent, std::string_view name, Ino new_parent, std::string_view new_name);
  void Moved(const Inode& moved);
  void ApplyPolicy(PathPolicy policy, Inode* inode);
  void PolicyChanged(const Inode& after);

  // temporaries.cc
  bool CloseTemporary(File& file, std::string_view name) PFS_REQUIRES(file.change);
  bool StaysTemporary(File& file) PFS_REQUIRES(file.change);
  int64_t TemporarySince(const File& file);
  void PublishTemporary(const FilePtr& file);
  bool IsAnothersTemporary(const File& file, const Caller& caller);
  std::vector<FilePtr> WrittenUnder(Ino parent, std::string_view name, const Caller& caller);
  Result<std::vector<FilePtr>> WrittenUnder(Ino parent, std::string_view name, const Caller& caller,
                                            bool may_wait);

  // unnamed.cc
  void RememberGone(const Inode& inode);
  Result<Entry> GoneEntry(Ino ino);

  // files.cc and versions.cc
  Result<SpareFile> PlaceFile(File& file, uint64_t bytes, bool may_wait);
  Result<FilePtr> NewFile(Inode inode, const Caller& caller, bool may_wait);
  Result<Created> CreateOver(const Inode& existing, int flags, const Caller& caller, bool may_wait);
  Status ReserveFor(File& file, uint64_t bytes, bool may_wait);
  Result<Fd> OpenBase(const Inode& base, Drive& drive);
  Status MakeVersion(const Inode& base, bool truncate, const Caller& caller, bool may_wait,
                     FilePtr* made = nullptr);
  Result<HandlePtr> OpenToWrite(Ino ino, int flags, const Caller& caller, bool may_wait);
  Result<HandlePtr> OpenToRead(Ino ino, const Caller& caller, bool may_wait);
  Result<HandlePtr> OpenSealed(Ino ino, const Caller& caller, bool may_wait);
  // A caller that was answered ESTALE, and will look its name up once more.
  struct Retry {
    FilePtr version;  // made for it at open; null if the name to make it for was not known
    bool truncate = false;
    int64_t until_ns = 0;
    Ino parent = 0;  // the name, once it is known; 0 before
    std::string name;
  };
  Status StaleFor(const Caller& caller, FilePtr version, bool truncate);
  std::optional<Retry> TakeRetry(const Caller& caller, Ino parent, std::string_view name,
                                 bool on_the_way);
  void EndRetry(const Caller& caller);
  Result<Entry> LookupAgain(const Retry& retry, Ino parent, std::string_view name,
                            const Caller& caller, Result<Inode> found, double* negative_timeout_s);
  bool HasRetry(const Caller& caller);
  bool IsSecondLook(const Caller& caller);
  void ExpectSecondLook(const Caller& caller);
  void EndSecondLook(const Caller& caller);
  void ForgetRetries();
  void NoteVersion(Ino ino);
  Status ConfirmName(Ino parent, std::string_view name, const Caller& caller);
  Result<HandlePtr> OpenReplaced(Ino ino, const Caller& caller);
  Status FlushLocked(const FilePtr& file, const Caller& caller, bool may_wait)
      PFS_REQUIRES(file->change);
  bool SettlesAtOnce(File& file) PFS_REQUIRES(file.change);
  Result<HandlePtr> OpenPosix(const Inode& inode, int flags, const Caller& caller,
                              bool remeasure = true);
  HandlePtr Attach(const FilePtr& file, bool writer, const Caller& caller)
      PFS_REQUIRES(open_.mutex);
  HandlePtr AttachReader(const FilePtr& file, const Caller& caller) PFS_REQUIRES(open_.mutex);
  bool Unmodified(const File& file, const struct stat& now) const;
  // Gives `file` the name, replacing what has it. `complete`: its last writer is closing it.
  Status Publish(const FilePtr& file, Ino parent, std::string_view name, bool replace,
                 bool complete) PFS_REQUIRES(file->change);
  Status Seal(const FilePtr& file) PFS_REQUIRES(file->change);
  void Drop(const FilePtr& file);
  void Forget(const FilePtr& file);
  Status Truncate(const FilePtr& file, uint64_t size) PFS_REQUIRES(file->change);
  Status EnsureDataFd(const FilePtr& file);
  Status OpenDataFd(const FilePtr& file, bool cached) PFS_REQUIRES(file->change);
  Status EnsureCopied(const FilePtr& file) PFS_REQUIRES(file->change);
  std::string PathTo(Ino parent, std::string_view name);
  // Reads hash and rank out of the inode's path; returns the model's text, to be interned.
  std::string Classify(const std::string& path, Inode* inode);
  void NoteModelHome(uint32_t model, Ino directory) PFS_REQUIRES(side_mutex_);
  Status InternModel(IndexTxn& txn, const std::string& model, Inode* inode);
  void SettleWriter(const FilePtr& file) PFS_REQUIRES(file->change);
  Ino NamespaceOf(Ino directory);
  uint64_t TypicalBytes(Ino parent);
  // throttle.cc
  static bool IsFarBeyond(const File& file, uint64_t allocated);
  void Throttle(Ino parent);
  bool IsThrottled(Ino parent);
  Status MakeRoom(File& file, uint64_t bytes, bool may_wait);
  void LearnSize(const Inode& inode);
  // inode_limit.cc
  Result<InodeClaim> ClaimInode(bool may_wait);
  void LogInodeLimit();

  // direct.cc
  std::string_view DirectMode(Ino parent);
  uint32_t DirectHabit(const Caller& caller, Ino parent);
  bool LeftEmpty(const File& file, const struct stat& now);
  void LearnDirect(const File& file, uint64_t size);

  // removal.cc: what has lost its name
  struct Removal {
    std::vector<Inode> inodes;
  };
  Status RemoveName(IndexTxn& txn, const Inode& inode, Removal* removal);
  // A block that lost its name to another and may still be opened until then.
  struct Lingering {
    Inode inode;
    uint64_t allocated = 0;
    int64_t until_ns = 0;
  };
  void Removed(const Removal& removal, bool replaced = false);
  // From the commit that replaces a block until the block lingers nobody knows it; who misses one
  // waits that out.
  class Replacing {
   public:
    explicit Replacing(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }
    ~Replacing() { count_.fetch_sub(1); }
    Replacing(const Replacing&) = delete;
    Replacing& operator=(const Replacing&) = delete;

   private:
    std::atomic<int>& count_;
  };
  template <typename Find>
  auto FindReplaced(Find find, bool may_wait = true);
  // Attributes or a name are being changed: first in the index, then in the table. Whoever puts a
  // file into the table meanwhile may have read it too early.
  class Changing {
   public:
    explicit Changing(Cache& cache) : cache_(cache) { cache_.changing_.fetch_add(1); }
    ~Changing() {
      cache_.changes_.fetch_add(1);
      cache_.changing_.fetch_sub(1);
    }
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;

   private:
    Cache& cache_;
  };
  static constexpr uint64_t kAlwaysStale = UINT64_MAX;
  uint64_t ChangesSeen() const { return changing_.load() == 0 ? changes_.load() : kAlwaysStale; }
  // Adds `file`, whose inode was read when ChangesSeen() gave `seen`.
  void AddRead(const FilePtr& file, uint64_t seen) PFS_REQUIRES(open_.mutex);
  void Linger(const Inode& inode, uint64_t allocated);
  void RemoveBacking(const Lingering& gone);
  // Work on a drive's metadata for a thread that may wait. For the first drive, which has the index
  // and without which nothing changes anyway, it is done here; otherwise by the drive's own thread,
  // and waited for `lookup_wait` at most: the caller may hold a directory.
  void OnDrive(Drive& drive, std::function<void()> work);
  void WriteHeaderNow(Ino ino, Drive& drive);
  void ExpireLingering(int64_t now_ns);
  FilePtr TakeLingering(Ino ino);
  Result<Inode> SuccessorOf(Ino ino);
  uint64_t EvictOne(const Inode& inode);
  struct Going {
    std::vector<Ino> blocks;
    std::vector<Inode> rest;  // folders and links that go if nothing else is left in them
  };
  uint64_t EvictAll(const Going& going);
  uint64_t RemoveEvicted(const std::vector<Inode>& inodes);
  Evictor::Outcome EvictBatch(const std::vector<Residents::Victim>& victims);
  // groups.cc
  struct Group {
    std::vector<Inode> blocks;  // without the block itself
    std::vector<Inode> rest;    // the links in the folder, and last the folder
    Ino folder = 0;             // that is the group; 0 if none is
  };
  Group GroupOf(const Inode& inode);
  bool TakeFolder(Ino folder);
  void FoldersDecided();
  bool IsUnfinished(const Group& group);
  Going WholeGroups(const std::vector<Residents::Victim>& victims, Evictor::Outcome* outcome);
  Status RemoveRest(IndexTxn& txn, const std::vector<Inode>& rest, Removal* removal);
  void DropCorrupt(Ino ino);
  // verify.cc
  struct Computed {
    Inode inode;  // as the bytes were read
    Digest digest;
    uint64_t allocated = 0;
  };
  std::optional<Computed> ComputeChecksum(Ino ino);
  bool WriteFirstHeader(Ino ino, const Digest& digest);
  void ChecksumBlocks(const std::vector<Ino>& blocks);
  void Remeasure(const Inode& inode);
  enum class Verdict {
    kWhole,
    kDamaged,  // to be dropped
    kGone,     // removed meanwhile, or out of reach
  };
  Verdict CheckBytes(const Inode& inode, bool from_drive, Fd* opened);
  Status VerifyResident(Ino ino);
  Status MarkVerified(const Inode& inode);
  uint64_t ScrubBlock(Ino ino);
  std::vector<Ino> ScrubNext(Ino after) const;
  void Suspect(const Inode& inode);
  bool JudgeSuspect(Ino ino);
  void BlockUnreadable(Ino ino, Drive& drive, const Status& why);
  Result<bool> Cut(const FilePtr& file, const Handle* handle, uint64_t size, const Caller& caller)
      PFS_REQUIRES(file->change);
  void SetBackingTimes(Ino ino, const FilePtr& file, const AttributeChange& change);
  Result<Entry> SetSize(Ino ino, const Handle* handle, uint64_t size, const Caller& caller,
                        bool may_wait);
  static void TouchDirectory(IndexTxn& txn, Ino directory, int64_t now_ns);

  // housekeeping.cc
  void NoteAccess(Ino ino, const Caller& caller);
  bool WasJustRead(Ino ino, const Caller& caller);
  void NoteTemporary(const Inode& sealed);
  void FindOrphans();
  void ReapOrphans();
  void RemoveOrphan(Ino ino);
  void FlushAccessTimes();
  void FlushTrash();
  void DropAbandonedVersions();
  bool LeaseDirectory(Ino ino);
  void NoteEmptied(Ino directory);
  void ReapDirectories();

  const Config config_;
  const Clock& clock_;
  template <typename What>
  void Tell(What what) PFS_EXCLUDES(listener_mutex_) {
    MutexLock lock(listener_mutex_);
    if (listener_ != nullptr) what(*listener_);
  }
  Mutex listener_mutex_;
  CacheListener* listener_ PFS_GUARDED_BY(listener_mutex_) = nullptr;
  Counters counters_;
  Processes processes_;
  std::unique_ptr<Naming> naming_;
  std::unique_ptr<DriveSet> drives_;
  std::unique_ptr<Quarantine> quarantine_;
  std::unique_ptr<Index> index_;
  std::unique_ptr<Budget> budget_;
  std::unique_ptr<Residents> residents_;
  InodeCount inodes_;
  std::atomic<int64_t> inode_limit_logged_ns_{0};
  OpenFiles open_;
  bool index_rebuilt_ = false;
  std::atomic<bool> any_throttled_{false};
  std::atomic<int> replacements_{0};  // under way
  std::atomic<int> changing_{0};      // under way
  std::atomic<uint64_t> changes_{0};  // done
  // So that the common lookup, open and rename take no lock.
  std::atomic<size_t> retry_count_{0};
  std::atomic<size_t> second_look_count_{0};
  std::atomic<size_t> unconfirmed_count_{0};

  static constexpr size_t kDrivesWithTurns = 16;
  // By drive and inode: headers are read from the index and written under it.
  Mutex header_turns_[kDrivesWithTurns * 16];
  Mutex side_mutex_;  // the small tables below; innermost, never held over a call
  std::unordered_map<pid_t, Retry> retries_ PFS_GUARDED_BY(side_mutex_);
  std::unordered_map<pid_t, int64_t> second_looks_ PFS_GUARDED_BY(side_mutex_);
  Expiry unconfirmed_ PFS_GUARDED_BY(side_mutex_);  // versions whose name the kernel may have wrong
  struct Access {
    int64_t at_ns = 0;
    pid_t tid = 0;
  };
  std::unordered_map<Ino, Access> accesses_ PFS_GUARDED_BY(side_mutex_);  // not in the index yet
  std::unordered_map<Ino, Access> accesses_before_ PFS_GUARDED_BY(side_mutex_);
  std::unordered_map<Ino, Inode> suspects_
      PFS_GUARDED_BY(side_mutex_);              // unlinked, to be looked at
  Expiry orphans_ PFS_GUARDED_BY(side_mutex_);  // blocks under temporary names
  std::vector<TrashEntry> trash_done_ PFS_GUARDED_BY(side_mutex_);
  std::unordered_map<Ino, Lingering> lingering_ PFS_GUARDED_BY(side_mutex_);
  Expiry directory_leases_ PFS_GUARDED_BY(side_mutex_);
  std::unordered_map<Ino, int64_t> wanted_folders_ PFS_GUARDED_BY(side_mutex_);
  std::unordered_set<Ino> going_folders_ PFS_GUARDED_BY(side_mutex_);
  Expiry emptied_ PFS_GUARDED_BY(side_mutex_);
  std::unordered_map<Ino, uint64_t> typical_bytes_ PFS_GUARDED_BY(side_mutex_);
  std::unordered_map<Ino, int64_t> throttled_ PFS_GUARDED_BY(side_mutex_);
  // Blocks in a row that a process wrote with O_DIRECT in a namespace and that native O_DIRECT
  // would have taken.
  std::map<std::tuple<pid_t, uint64_t, Ino>, uint32_t> direct_habits_ PFS_GUARDED_BY(side_mutex_);
  std::unordered_map<uint32_t, std::string> models_ PFS_GUARDED_BY(side_mutex_);
  // Directories where blocks of a model were, the last few: who can list one may know its name.
  std::unordered_map<uint32_t, std::vector<Ino>> model_homes_ PFS_GUARDED_BY(side_mutex_);
  // Nodes that are no files and were removed while the kernel may have them open.
  std::unordered_map<Ino, Inode> gone_ PFS_GUARDED_BY(side_mutex_);
  std::atomic<size_t> gone_count_{0};  // so that the common call takes no lock
  uint64_t index_accounted_ = 0;       // Tick only
  std::optional<Ino> orphans_seen_ =
      0;  // Tick only: as far as names were looked at since the start

  std::unique_ptr<Evictor> evictor_;
  std::unique_ptr<Checksums> checksums_;
  std::unique_ptr<Scrubber> scrubber_;
  Ticker ticker_;
  Ticker meter_;
  bool closed_ = false;
};

template <typename Find>
auto Cache::FindReplaced(Find find, bool may_wait) {
  constexpr int kTries = 40;
  auto found = find();
  if (!may_wait && !found.ok() && replacements_.load() > 0) return decltype(found)(Code::kRejected);
  const Waiting waiting(Wait::kReplacement);
  for (int i = 0; i < kTries && !found.ok() && replacements_.load() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(250));
    found = find();
  }
  return found;
}

}  // namespace prefixfs
