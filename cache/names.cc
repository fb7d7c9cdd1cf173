// Names: lookup, mknod, mkdir, symlink, and what a name's answer tells the kernel.
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>

#include "cache/cache.h"

namespace prefixfs {
namespace {
constexpr std::string_view kControlDirectory = ".prefixfs";
constexpr double kUnsealedTimeoutS = 0;

// Of the attributes of a file that may be written: the kernel itself keeps the size, because every
// write passes it. Without any, each open and each path would ask for them first.
double WriterAttrTimeoutS(int64_t lease_ms) { return std::min(1.0, KernelTimeoutS(lease_ms)); }

// A block that was just closed may be opened by its writer once more and become another file, while
// the kernel still works off the list that it is in.
constexpr int64_t kSettlingNs = 2 * kNsPerSecond;
}  // namespace

Status Cache::CheckName(Ino parent, std::string_view name) const {
  if (name.size() > kMaxName) return Code::kTooLong;
  if (name.empty() || name == "." || name == "..") return Code::kInvalid;
  if (parent == kRootIno && name == kControlDirectory) return Code::kDenied;
  return Ok();
}

// For an inode that nobody is writing.
Entry Cache::MakeEntry(const Inode& inode) const {
  Entry entry;
  entry.inode = inode;
  const bool open = inode.state == FileState::kOpen;
  const bool sealed = inode.state == FileState::kSealed || !inode.IsFile();
  entry.entry_timeout_s = open ? kUnsealedTimeoutS : KernelTimeoutS(config_.lease_ms);
  entry.attr_timeout_s =
      sealed ? KernelTimeoutS(config_.lease_ms) : WriterAttrTimeoutS(config_.lease_ms);
  return entry;
}

// For a file in the table: what a writer has written so far is known only to the backing file.
Entry Cache::OpenEntry(const FilePtr& file) {
  Entry entry;
  bool live = false;
  int fd = -1;
  {
    MutexLock lock(open_.mutex);
    entry.inode = file->inode;
    entry.links = file->nameless ? 0 : 1;
    live = !file->sealed() && !file->copy_pending;
    fd = file->fd.get();
  }
  struct stat now;
  if (live && fd >= 0 && ::fstat(fd, &now) == 0) {
    entry.inode.size = static_cast<uint64_t>(now.st_size);
    entry.inode.allocated = static_cast<uint64_t>(now.st_blocks) * 512;
    entry.inode.mtime_ns = now.st_mtim.tv_sec * kNsPerSecond + now.st_mtim.tv_nsec;
    entry.inode.ctime_ns =
        std::max(entry.inode.ctime_ns, now.st_ctim.tv_sec * kNsPerSecond + now.st_ctim.tv_nsec);
  }
  entry.attr_timeout_s = WriterAttrTimeoutS(config_.lease_ms);
  if (!live) {
    const Entry timed = MakeEntry(entry.inode);
    entry.entry_timeout_s = timed.entry_timeout_s;
    entry.attr_timeout_s = timed.attr_timeout_s;
  }
  return entry;
}

// The answer for a name that the index has: absent while its writer has it back, or its block is
// going or lost.
Result<Entry> Cache::PublishedEntry(const Inode& found, const Caller& caller) {
  Inode inode = found;
  if (!inode.IsFile()) {
    if (inode.IsDirectory() && !LeaseDirectory(inode.ino)) return Code::kNotFound;
    return MakeEntry(inode);
  }
  if (FilePtr file = open_.Find(inode.ino)) {
    bool hidden;
    ProcessId owner;
    {
      MutexLock lock(open_.mutex);
      // Not published says the table a moment longer than the index, from which the name came.
      hidden = file->provisional && file->published;
      owner = file->owner;
    }
    if (hidden && !caller.DescendsFrom(owner)) return Code::kNotFound;
    if (residents_->Touch(inode.ino) == Residents::Probe::kGone) return Code::kNotFound;
    Entry entry = OpenEntry(file);
    if (hidden) entry.entry_timeout_s = kUnsealedTimeoutS;
    return entry;
  }
  // Sealed and closed since `found` was read: only the index knows how it ended.
  if (inode.state == FileState::kOpen) {
    Result<Inode> sealed = index_->Get(inode.ino);
    if (!sealed.ok()) return Code::kStale;  // replaced since: the name stands for another file now
    inode = std::move(sealed).value();
  }
  if (residents_->Touch(inode.ino) == Residents::Probe::kGone) return Code::kNotFound;
  if (drives_->Find(inode.drive) == nullptr)
    return Code::kNotFound;  // a lost drive is a burst of misses
  Entry entry = MakeEntry(inode);
  MutexLock lock(side_mutex_);
  if (auto it = accesses_.find(inode.ino); it != accesses_.end())
    entry.inode.atime_ns = it->second.at_ns;
  return entry;
}

int64_t Cache::LookupWaitMs(const Caller& caller) {
  constexpr int64_t kAgainMs = 1000;
  return HasRetry(caller) ? std::max(kAgainMs, config_.lookup_wait_ms) : config_.lookup_wait_ms;
}

Result<Entry> Cache::Lookup(Ino parent, std::string_view name, const Caller& caller,
                            double* negative_timeout_s, bool may_wait) {
  *negative_timeout_s = static_cast<double>(config_.negative_timeout_ms) / 1000.0;
  if (name.size() > kMaxName) return Code::kTooLong;
  const std::vector<FilePtr> provisional = PFS_TRY(WrittenUnder(parent, name, caller, may_wait));
  Result<Inode> inode = index_->Lookup(parent, name);
  if (!inode.ok() && !inode.status().Is(Code::kNotFound)) return inode.status();
  // A version may have to be made.
  const bool on_the_way = inode.ok() && !inode->IsFile();
  if (!may_wait && !on_the_way && HasRetry(caller)) return Code::kRejected;
  const std::optional<Retry> retry = TakeRetry(caller, parent, name, on_the_way);
  if (retry) return LookupAgain(*retry, parent, name, caller, std::move(inode), negative_timeout_s);
  if (!provisional.empty()) {
    *negative_timeout_s = 0;
    if (FilePtr own = ChooseFor(caller, provisional, inode.ok())) {
      Entry entry = OpenEntry(own);
      entry.entry_timeout_s = kUnsealedTimeoutS;
      return entry;
    }
  }
  Result<Entry> entry =
      inode.ok() ? PublishedEntry(*inode, caller) : Result<Entry>(Code::kNotFound);
  if (entry.status().Is(Code::kStale))
    return Lookup(parent, name, caller, negative_timeout_s, may_wait);
  if (!entry.ok()) {
    if (inode.ok()) *negative_timeout_s = 0;
    counters_.misses.fetch_add(1, std::memory_order_relaxed);
    return entry;
  }
  if (!provisional.empty()) entry->entry_timeout_s = kUnsealedTimeoutS;
  if (entry->inode.IsFile()) counters_.hits.fetch_add(1, std::memory_order_relaxed);
  return entry;
}

PathPolicy Cache::PolicyAt(const Inode& parent, const std::string& path, bool directory) {
  return parent.Has(inode_flag::kPosix) ? PathPolicy::kPosix : naming_->PolicyOf(path, directory);
}

// Directories, symlinks and special files have a record of their own on every drive, for the
// rebuild.
void Cache::WriteRecord(const Inode& inode) {
  for (auto& drive : drives_->drives()) {
    if (drive->failed()) continue;
    OnDrive(*drive, [drive = drive.get(), inode] {
      if (Status status = drive->Note(drive->PutRecord(inode)); !status.ok())
        spdlog::warn("record of inode {} on {}: {}", inode.ino, drive->path(), status.ToString());
    });
  }
}

// Brings the header up to what the index says now. A block gets its header with its checksum:
// without one a rebuild drops it anyway, and its writer need not wait for it.
void Cache::RefreshHeader(Ino ino) {
  const Result<Inode> inode = index_->Get(ino);
  if (!inode.ok()) return;
  if (inode->state != FileState::kPosix && inode->checksum_kind == ChecksumKind::kNone) return;
  Drive* drive = drives_->Find(inode->drive);
  if (drive != nullptr) OnDrive(*drive, [this, ino, drive] { WriteHeaderNow(ino, *drive); });
}

// Drives have turns of their own, so that one that does not answer holds up no other.
Mutex& Cache::HeaderTurn(Ino ino, const Drive& drive) {
  const size_t per_drive = std::size(header_turns_) / kDrivesWithTurns;
  return header_turns_[drive.slot() % kDrivesWithTurns * per_drive + ino % per_drive];
}

// Read from the index and written in one turn, so that of two changes the later one stays.
void Cache::WriteHeaderNow(Ino ino, Drive& drive) {
  MutexLock turn(HeaderTurn(ino, drive));
  const Result<Inode> inode = index_->Get(ino);
  if (inode.ok()) (void)WriteHeader(*inode, drive);
}

bool Cache::WriteHeader(const Inode& inode, Drive& drive) {
  Result<Fd> fd = drive.OpenWritable(inode.block);
  Status status = fd.ok() ? drive.WriteHeader(fd->get(), inode) : fd.status();
  if (status = drive.Note(status); !status.ok() && !status.Is(Code::kNotFound)) {
    spdlog::warn("header of {} on {}: {}", ToHex(inode.block), drive.path(), status.ToString());
  }
  return status.ok();
}

void Cache::TouchDirectory(IndexTxn& txn, Ino directory, int64_t now_ns) {
  Result<Inode> inode = txn.Get(directory);
  if (!inode.ok()) return;
  inode->mtime_ns = inode->ctime_ns = now_ns;
  (void)txn.Put(*inode).ok();
}

// What a new name gets: the caller's, but for the group that a directory hands down.
Inode Cache::NewInode(const Inode& directory, std::string_view name, uint32_t mode,
                      const Caller& caller) const {
  Inode inode;
  inode.parent = directory.ino;
  inode.name = name;
  inode.mode = mode;
  inode.uid = caller.uid();
  inode.gid = caller.gid();
  if (directory.mode & S_ISGID) {
    inode.gid = directory.gid;
    if (S_ISDIR(mode)) inode.mode |= S_ISGID;
  }
  inode.atime_ns = inode.mtime_ns = inode.ctime_ns = inode.btime_ns = clock_.WallNs();
  return inode;
}

Result<Entry> Cache::MakeNode(Ino parent, std::string_view name, uint32_t mode,
                              std::string_view target, const Caller& caller, bool may_wait) {
  PFS_TRY(CheckName(parent, name));
  if (target.size() > kMaxTarget) return Code::kTooLong;
  if (S_ISCHR(mode) || S_ISBLK(mode)) return Status(Code::kDenied, "no device files in a cache");
  const Inode directory = PFS_TRY(index_->Get(parent));
  if (!open_.Provisional(parent, name).empty() || index_->Lookup(parent, name).ok())
    return Code::kExists;
  InodeClaim claim = PFS_TRY(ClaimInode(may_wait));
  Inode inode = NewInode(directory, name, mode, caller);
  inode.ino = PFS_TRY(index_->NextIno());
  inode.target = target;
  inode.size = target.size();
  if (S_ISDIR(mode)) {
    const PathPolicy policy = PolicyAt(directory, PathTo(parent, name), true);
    if (policy == PathPolicy::kPosix) inode.flags |= inode_flag::kPosix | inode_flag::kKeep;
    if (policy == PathPolicy::kKeep) inode.flags |= inode_flag::kKeep;
    (void)LeaseDirectory(inode.ino);
  }
  PFS_TRY(index_->Update([&](IndexTxn& txn) -> Status {
    PFS_TRY(txn.Get(parent));
    PFS_TRY(txn.Insert(inode));
    TouchDirectory(txn, parent, inode.mtime_ns);
    return Ok();
  }));
  claim.Keep();
  WriteRecord(inode);
  return MakeEntry(inode);
}

bool Cache::IsSettled(const Inode& inode) const {
  if (!inode.IsFile() || inode.state == FileState::kPosix) return true;
  return inode.state == FileState::kSealed && clock_.WallNs() - inode.ctime_ns > kSettlingNs;
}

Result<std::vector<DirectoryEntry>> Cache::List(Ino parent, uint64_t cookie, size_t max,
                                                const Caller& caller, bool may_wait) {
  std::vector<DirectoryEntry> entries;
  for (const FilePtr& file : open_.ProvisionalIn(parent, cookie, UINT64_MAX)) {
    if (!IsAnothersTemporary(*file, caller) || caller.DescendsFrom(file->owner)) continue;
    if (!may_wait) return Code::kRejected;
    PublishTemporary(file);
  }
  const std::vector<Inode> published = PFS_TRY(index_->List(parent, cookie, max));
  const Ino last = published.size() < max ? UINT64_MAX : published.back().ino;
  for (const FilePtr& file : open_.ProvisionalIn(parent, cookie, last)) {
    std::string name;
    {
      MutexLock lock(open_.mutex);
      if (file->published) continue;  // listed, or hidden, below
      name = file->inode.name;
    }
    const bool listed = index_->Lookup(parent, name).ok();
    if (ChooseFor(caller, open_.Provisional(parent, name), listed) == file)
      entries.push_back({OpenEntry(file), file->ino, false});
  }
  for (const Inode& inode : published) {
    const std::vector<FilePtr> candidates = open_.Provisional(parent, inode.name);
    if (!candidates.empty()) {
      // The caller's own file of that name has a place of its own in the listing.
      const FilePtr own = ChooseFor(caller, candidates, true);
      if (own && own->ino != inode.ino) continue;
    }
    Result<Entry> entry = PublishedEntry(inode, caller);
    if (!entry.ok()) continue;
    const bool settled = candidates.empty() && IsSettled(inode);
    entries.push_back({std::move(entry).value(), inode.ino, settled});
  }
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.cookie < b.cookie; });
  // An empty page must mean the end, so a page whose every name is hidden from this caller is
  // passed over.
  if (entries.empty() && published.size() == max) return List(parent, last, max, caller, may_wait);
  return entries;
}

}  // namespace prefixfs
