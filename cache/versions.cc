// Open, and the versions it makes: a sealed block is never written, so a client that opens one for
// writing gets a file of its own that takes the name when it is published.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <chrono>
#include <thread>
#include <vector>

#include "cache/base/descriptors.h"
#include "cache/cache.h"

namespace prefixfs {
namespace {

constexpr int kSecondLookTries = 4;

bool WantsWrite(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0; }

void SetMtime(int fd, int64_t mtime_ns) {
  const timespec times[2] = {{0, UTIME_OMIT}, ToTimespec(mtime_ns)};
  (void)::futimens(fd, times);
}

// The client's own attributes; reflink does not carry them.
void CopyUserXattrs(int from, int to) {
  char names[4096];
  const ssize_t length = ::flistxattr(from, names, sizeof names);
  for (ssize_t at = 0; at < length;
       at += static_cast<ssize_t>(std::string_view(names + at).size()) + 1) {
    const char* name = names + at;
    if (!std::string_view(name).starts_with("user.")) continue;
    const ssize_t size = ::fgetxattr(from, name, nullptr, 0);
    if (size < 0) continue;
    std::vector<char> value(static_cast<size_t>(size));
    if (::fgetxattr(from, name, value.data(), value.size()) == size) {
      (void)::fsetxattr(to, name, value.data(), value.size(), 0);
    }
  }
}

}  // namespace

// The backing file of a base.
Result<Fd> Cache::OpenBase(const Inode& base, Drive& drive) {
  if (FilePtr file = open_.Find(base.ino)) {
    MutexLock lock(open_.mutex);
    if (file->fd.valid() && !file->sealed() && !file->copy_pending) {
      return Fd(::fcntl(file->fd.get(), F_DUPFD_CLOEXEC, 0));
    }
  }
  return drive.OpenWritable(base.block);
}

Status Cache::MakeVersion(const Inode& base, bool truncate, const Caller& caller, bool may_wait,
                          FilePtr* made) {
  Drive* drive = drives_->Find(base.drive);
  if (drive == nullptr) return Code::kNotFound;
  InodeClaim claim = PFS_TRY(ClaimInode(may_wait));
  auto file = std::make_shared<File>(PFS_TRY(index_->NextIno()));
  file->claim = std::move(claim);
  file->drive = drive;  // reflink works only within a filesystem
  const uint64_t bytes = std::max(TypicalBytes(base.parent), truncate ? 0 : base.allocated);
  Result<Fd> source = OpenBase(base, *drive);
  if (!source.ok() && !truncate) {
    const Status status = drive->Note(source.status());
    return status.Is(Code::kNotFound) ? Status(Code::kStale) : status;
  }
  PFS_TRY(ReserveFor(*file, bytes, may_wait));
  file->inode = base;
  file->inode.ino = file->ino;
  file->inode.block = RandomBlockId();
  file->inode.state = FileState::kOpen;
  file->inode.checksum_kind = ChecksumKind::kNone;
  file->inode.checksum = {};
  file->inode.flags = 0;
  Result<Fd> fd = truncate || !drive->supports_reflink()
                      ? drive->Create(file->inode.block)
                      : drive->Clone(source->get(), file->inode.block);
  if (const Status room = fd.ok() ? LeavesReserve(*fd) : Ok(); !room.ok()) {
    (void)drive->Note(drive->Unlink(file->inode.block, false)).ok();
    fd = room;
  }
  if (!fd.ok()) {
    budget_->Unreserve(bytes);
    drives_->AddQueued(drive->slot(), -static_cast<int64_t>(bytes));
    return drive->Note(fd.status());
  }
  file->fd = std::move(fd).value();
  file->base = base.ino;
  file->modified = truncate;
  if (source.ok()) CopyUserXattrs(source->get(), file->fd.get());
  if (!truncate) {
    // Any write moves mtime away from this, which is how an unmodified version is told: also one in
    // the tick of the clock in which the base was written.
    file->inode.mtime_ns = base.mtime_ns - 1;
    SetMtime(file->fd.get(), file->inode.mtime_ns);
    if (!drive->supports_reflink()) {
      file->copy_source = std::move(source).value();
      file->copy_pending = true;
    }
  }
  file->provisional = true;
  file->owner_tid = caller.tid();
  file->owner = caller.process();
  file->made_ns = clock_.MonotonicNs();
  file->served = IsThrottled(base.parent);
  {
    MutexLock lock(open_.mutex);
    open_.AddLocked(file);
    open_.AddProvisionalLocked(file);
  }
  NoteVersion(file->ino);
  counters_.versions.fetch_add(1, std::memory_order_relaxed);
  if (made != nullptr) *made = file;
  return Ok();
}

Result<HandlePtr> Cache::Open(Ino ino, int flags, const Caller& caller, bool may_wait) {
  if (WantsWrite(flags) && !may_wait) return Code::kRejected;
  EndRetry(caller);
  Result<HandlePtr> handle = WantsWrite(flags) ? OpenToWrite(ino, flags, caller, may_wait)
                                               : OpenToRead(ino, caller, may_wait);
  if (handle.ok()) {
    counters_.opens.fetch_add(1, std::memory_order_relaxed);
    NoteAccess(ino, caller);
    EndSecondLook(caller);
  } else if (handle.status().Is(Code::kStale)) {
    ExpectSecondLook(caller);
  }
  return handle;
}

Result<HandlePtr> Cache::OpenToWrite(Ino ino, int flags, const Caller& caller, bool may_wait) {
  FilePtr file = open_.Find(ino);
  if (file && IsAnothersTemporary(*file, caller)) PublishTemporary(file);
  if (file) {
    ChangeLock change(file->change);
    // Nobody but its writer's children can have come by a name that is not published.
    const bool inherited = !file->published && caller.DescendsFrom(file->owner);
    bool own;
    {
      MutexLock lock(open_.mutex);
      own = inherited || file->owner_tid == caller.tid() || file->owner == caller.process();
      // A writer that truncates while another writes gets a version of its own; so does a stranger.
      if (file->writers > 0 && (flags & O_TRUNC)) own = false;
      if (file->sealed() || (file->nameless && file->writers == 0)) own = false;
      if (file->posix()) own = true;
    }
    if (own) {
      if ((flags & O_TRUNC) && !(file->base != 0 && file->modified)) PFS_TRY(Truncate(file, 0));
      MutexLock lock(open_.mutex);
      // Otherwise its last handle went a moment ago, and it is opened as the index has it.
      if (open_.FindLocked(ino) == file) {
        // Its next flush says anew whether it is complete.
        if (std::exchange(file->closed, false)) file->flushed = false;
        if (!file->posix() && file->published && !file->provisional) {
          // Visible but not sealed yet: it is its writer's again, until the next flush.
          file->provisional = true;
          file->flushed = false;
          open_.AddProvisionalLocked(file);
        }
        return Attach(file, true, caller);
      }
    }
  }
  Result<Inode> found = index_->Get(ino);
  if (found.status().Is(Code::kNotFound)) found = FindReplaced([&] { return SuccessorOf(ino); });
  const bool truncate = (flags & O_TRUNC) != 0;
  if (found.status().Is(Code::kStale)) return StaleFor(caller, nullptr, truncate);
  const Inode base = PFS_TRY(std::move(found));
  if (base.IsDirectory()) return Code::kIsDirectory;
  if (base.state == FileState::kPosix) return OpenPosix(base, flags, caller);
  FilePtr made;
  PFS_TRY(MakeVersion(base, truncate, caller, may_wait, &made));
  return StaleFor(caller, made, truncate);
}

// The first handle of an ordinary file brings it into the table.
Result<HandlePtr> Cache::OpenPosix(const Inode& inode, int flags, const Caller& caller,
                                   bool remeasure) {
  Drive* drive = drives_->Find(inode.drive);
  if (drive == nullptr) return Code::kNotFound;
  auto file = std::make_shared<File>(inode.ino);
  file->inode = inode;
  file->drive = drive;
  file->published = true;
  file->accounted = inode.allocated;
  file->remeasure = remeasure;
  Result<Fd> fd = drive->OpenWritable(inode.block);
  if (!fd.ok()) return drive->Note(fd.status());
  PFS_TRY(LeavesReserve(*fd));
  file->fd = std::move(fd).value();
  HandlePtr handle;
  {
    MutexLock lock(open_.mutex);
    if (FilePtr other = open_.FindLocked(inode.ino)) {
      file = other;
    } else {
      AddRead(file, kAlwaysStale);
    }
    // Readers too: what a writer does through a mapping is settled at the last close, whoever's it
    // is.
    handle = Attach(file, true, caller);
  }
  if (flags & O_TRUNC) {
    Status status = Ok();
    {
      ChangeLock change(file->change);
      status = Truncate(file, 0);
    }
    if (!status.ok()) {
      Release(std::move(handle));
      return status;
    }
  }
  return handle;
}

Result<HandlePtr> Cache::OpenToRead(Ino ino, const Caller& caller, bool may_wait) {
  {
    MutexLock lock(open_.mutex);
    FilePtr file = open_.FindLocked(ino);
    if (file && file->posix()) return Attach(file, true, caller);
    if (file && !file->sealed() && !file->nameless) return Attach(file, false, caller);
  }
  Result<HandlePtr> handle = OpenSealed(ino, caller, may_wait);
  // Also while it changes from one state to the next: the kernel does not come a third time.
  // Threads that cannot be told apart may be here for the first time.
  const bool known = caller.tid() != 0;
  for (int tries = 0; known && handle.status().Is(Code::kStale) && IsSecondLook(caller); ++tries) {
    if (!may_wait) return Code::kRejected;
    if (tries == kSecondLookTries) return Code::kNotFound;  // removed since the lookup
    std::this_thread::sleep_for(std::chrono::microseconds(250));
    handle = OpenSealed(ino, caller, may_wait);
  }
  return handle;
}

Result<HandlePtr> Cache::OpenSealed(Ino ino, const Caller& caller, bool may_wait) {
  bool unverified = false;
  switch (residents_->Open(ino, &unverified)) {
    case Residents::Probe::kGone:
      return Code::kStale;
    case Residents::Probe::kUnknown: {
      Result<Inode> inode = index_->Get(ino);
      if (inode.status().Is(Code::kNotFound)) {
        if (!IsSecondLook(caller)) return Code::kStale;
        return FindReplaced([&] { return OpenReplaced(ino, caller); }, may_wait);
      }
      if (!inode.ok()) return inode.status();
      if (inode->IsDirectory()) return Code::kIsDirectory;
      if (inode->state == FileState::kPosix && !may_wait) return Code::kRejected;
      if (inode->state == FileState::kPosix) return OpenPosix(*inode, O_RDONLY, caller);
      MutexLock lock(open_.mutex);
      // Being sealed at this moment; Residents counts the handle when it is.
      if (FilePtr file = open_.FindLocked(ino)) {
        if (!file->resident) return Attach(file, false, caller);
        return Code::kStale;
      }
      return drives_->Find(inode->drive) == nullptr ? Code::kNotFound : Code::kStale;
    }
    case Residents::Probe::kLeased:
      break;
  }
  if (unverified || config_.verify == "always") {
    const Waiting waiting(Wait::kChecksum);
    if (Status status = may_wait ? VerifyResident(ino) : Status(Code::kRejected); !status.ok()) {
      residents_->Close(ino);
      // ESTALE, so that the kernel looks the name up again and forgets it.
      return status.Is(Code::kNotFound) ? Status(Code::kStale) : status;
    }
  }
  {
    MutexLock lock(open_.mutex);
    if (FilePtr file = open_.FindLocked(ino)) return AttachReader(file, caller);
  }
  const uint64_t seen = ChangesSeen();
  Result<Inode> inode = index_->Get(ino);
  Drive* drive = inode.ok() ? drives_->Find(inode->drive) : nullptr;
  if (drive == nullptr) {
    residents_->Close(ino);
    if (inode.ok()) return Code::kNotFound;
    return inode.status().Is(Code::kNotFound) ? Status(Code::kStale) : inode.status();
  }
  auto file = std::make_shared<File>(ino);
  file->inode = std::move(inode).value();
  file->drive = drive;
  file->published = true;
  MutexLock lock(open_.mutex);
  if (FilePtr other = open_.FindLocked(ino)) return AttachReader(other, caller);
  AddRead(file, seen);
  return AttachReader(file, caller);
}

void Cache::AddRead(const FilePtr& file, uint64_t seen) {
  open_.AddLocked(file);
  // After it was added, so that a change which is not seen here sees the file.
  if (changing_.load() == 0 && changes_.load() == seen) return;
  if (Result<Inode> now = index_->Get(file->ino); now.ok()) file->inode = std::move(now).value();
}

Result<HandlePtr> Cache::OpenReplaced(Ino ino, const Caller& caller) {
  {
    MutexLock lock(open_.mutex);
    FilePtr file = open_.FindLocked(ino);
    // Never published and still written: whoever comes by its descriptor means just this file.
    if (file && (file->published || file->writers > 0)) return Attach(file, false, caller);
  }
  FilePtr file = TakeLingering(ino);
  if (!file) return Code::kStale;
  MutexLock lock(open_.mutex);
  open_.AddLocked(file);
  return Attach(file, false, caller);
}

// Residents counts the handle already.
HandlePtr Cache::AttachReader(const FilePtr& file, const Caller& caller) {
  file->resident = true;
  return Attach(file, false, caller);
}

}  // namespace prefixfs
