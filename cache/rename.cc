// Rename: of provisional files (which publishes them), of published names, and the exchange of two.
#include <linux/fs.h>
#include <spdlog/spdlog.h>

#include "cache/cache.h"

namespace prefixfs {

Status Cache::Rename(Ino parent, std::string_view name, Ino new_parent, std::string_view new_name,
                     unsigned flags, const Caller& caller) {
  PFS_TRY(CheckName(new_parent, new_name));
  if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE)) return Code::kInvalid;
  if (flags & RENAME_EXCHANGE) {
    const Status one = ConfirmName(parent, name, caller);
    const Status two = ConfirmName(new_parent, new_name, caller);
    PFS_TRY(one.ok() ? two : one);
    EndSecondLook(caller);
    // Renaming publishes, and here both are renamed.
    PFS_TRY(PublishInPlace(parent, name, caller));
    PFS_TRY(PublishInPlace(new_parent, new_name, caller));
    return Exchange(parent, name, new_parent, new_name);
  }
  PFS_TRY(ConfirmName(parent, name, caller));
  EndSecondLook(caller);
  if (FilePtr own = OwnUnder(parent, name, caller)) {
    const bool replace = (flags & RENAME_NOREPLACE) == 0;
    if (const auto done = PublishOwn(own, {parent, name}, {new_parent, new_name}, replace))
      return *done;
  }
  return RenamePublished(parent, name, new_parent, new_name, flags);
}

// What the caller is writing under that name; null if nothing.
FilePtr Cache::OwnUnder(Ino parent, std::string_view name, const Caller& caller) {
  const std::vector<FilePtr> files = WrittenUnder(parent, name, caller);
  FilePtr own = ChooseFor(caller, files, index_->Lookup(parent, name).ok());
  if (!own) return own;
  // What another thread still writes is not this one's to publish.
  MutexLock lock(open_.mutex);
  return own->owner_tid == caller.tid() || own->flushed ? own : nullptr;
}

// Nothing if `own` is not provisional under its old name any more.
std::optional<Status> Cache::PublishOwn(const FilePtr& own, const Place& from, const Place& to,
                                        bool replace) {
  Status status;
  {
    ChangeLock change(own->change);
    bool writers, complete;
    {
      MutexLock lock(open_.mutex);
      if (!own->provisional || own->nameless || own->inode.parent != from.parent ||
          own->inode.name != from.name)
        return std::nullopt;
      writers = own->writers > 0;
      complete = !writers || own->closed;
    }
    status = Publish(own, to.parent, to.name, replace, complete);
    if (status.ok() && !writers) SettleWriter(own);
  }
  Forget(own);
  return status;
}

Status Cache::PublishInPlace(Ino parent, std::string_view name, const Caller& caller) {
  const FilePtr own = OwnUnder(parent, name, caller);
  if (!own) return Ok();
  return PublishOwn(own, {parent, name}, {parent, name}, true).value_or(Ok());
}

// A file that gets or loses the policy `posix` by its new name.
void Cache::ApplyPolicy(PathPolicy policy, Inode* inode) {
  if (!inode->IsFile()) return;
  if (policy == PathPolicy::kPosix) {
    inode->state = FileState::kPosix;
    inode->checksum_kind = ChecksumKind::kNone;  // its bytes may change from now on
    inode->checksum = {};
  } else if (inode->state == FileState::kPosix && !open_.Find(inode->ino)) {
    inode->state = FileState::kSealed;
  }
}

Status Cache::RenamePublished(Ino parent, std::string_view name, Ino new_parent,
                              std::string_view new_name, unsigned flags) {
  const Inode source = PFS_TRY(index_->Lookup(parent, name));
  const Inode directory = PFS_TRY(index_->Get(new_parent));
  const std::string path = PathTo(new_parent, new_name);
  const PathPolicy policy = PolicyAt(directory, path, source.IsDirectory());
  Inode named = source;
  named.parent = new_parent;
  named.name = new_name;
  const std::string model = source.IsFile() ? Classify(path, &named) : std::string();
  const int64_t now = clock_.WallNs();
  Removal removal;
  Inode moved;
  bool policy_changed = false;
  const Replacing replacing(replacements_);
  const Changing changing(*this);
  PFS_TRY(index_->Update([&](IndexTxn& txn) -> Status {
    removal.inodes.clear();
    const Ino ino = PFS_TRY(txn.Lookup(parent, name));
    moved = PFS_TRY(txn.Get(ino));
    Result<Ino> existing = txn.Lookup(new_parent, new_name);
    if (existing.ok()) {
      if (*existing == ino) return Ok();
      if (flags & RENAME_NOREPLACE) return Code::kExists;
      const Inode target = PFS_TRY(txn.Get(*existing));
      if (moved.IsDirectory() && !target.IsDirectory()) return Code::kNotDirectory;
      if (!moved.IsDirectory() && target.IsDirectory()) return Code::kIsDirectory;
      if (target.IsDirectory()) {
        const bool children = PFS_TRY(txn.HasChildren(target.ino));
        if (children || open_.HasProvisional(target.ino)) return Code::kNotEmpty;
      }
      PFS_TRY(RemoveName(txn, target, &removal));
    }
    PFS_TRY(txn.Move(ino, new_parent, new_name));
    moved.parent = new_parent;
    moved.name = new_name;
    moved.ctime_ns = now;
    if (moved.IsFile()) {
      moved.hash = named.hash;
      moved.rank = named.rank;
      PFS_TRY(InternModel(txn, model, &moved));
      const FileState before = moved.state;
      ApplyPolicy(policy, &moved);
      policy_changed = moved.state != before;
    }
    PFS_TRY(txn.Put(moved));
    TouchDirectory(txn, parent, now);
    if (new_parent != parent) TouchDirectory(txn, new_parent, now);
    return Ok();
  }));
  Removed(removal, true);
  if (policy_changed) PolicyChanged(moved);
  Moved(moved);
  return Ok();
}

// The account does not change; who may be evicted does.
void Cache::PolicyChanged(const Inode& after) {
  if (after.state == FileState::kPosix) {
    (void)residents_->Remove(after.ino);
    // It gets no checksum, which is when a block is moved.
    if (Drive* drive = drives_->Find(after.drive); drive != nullptr)
      (void)drive->Note(drive->Publish(after.block)).ok();
  }
  if (after.state == FileState::kSealed) {
    residents_->Insert(after.ino, {after.allocated, after.model, after.drive, false});
    checksums_->Enqueue(after.ino);
  }
}

// What must follow a committed rename: the open file's own idea of its name, and the record for the
// rebuild.
void Cache::Moved(const Inode& moved) {
  if (!moved.IsFile()) return WriteRecord(moved);
  {
    MutexLock lock(open_.mutex);
    if (FilePtr file = open_.FindLocked(moved.ino)) {
      const bool provisional = file->provisional;
      if (provisional) open_.RemoveProvisionalLocked(file);
      file->inode.parent = moved.parent;
      file->inode.name = moved.name;
      file->renamed = true;
      file->inode.ctime_ns = moved.ctime_ns;
      file->inode.hash = moved.hash;
      file->inode.rank = moved.rank;
      file->inode.model = moved.model;
      if (moved.state == FileState::kPosix) file->inode.state = moved.state;
      if (provisional) open_.AddProvisionalLocked(file);
    }
  }
  residents_->EndGrace(moved.ino);
  RefreshHeader(moved.ino);
}

Status Cache::Exchange(Ino parent, std::string_view name, Ino new_parent,
                       std::string_view new_name) {
  Inode one, two;
  const int64_t now = clock_.WallNs();
  const Changing changing(*this);
  PFS_TRY(index_->Update([&](IndexTxn& txn) -> Status {
    const Ino first = PFS_TRY(txn.Lookup(parent, name));
    const Ino second = PFS_TRY(txn.Lookup(new_parent, new_name));
    one = PFS_TRY(txn.Get(first));
    two = PFS_TRY(txn.Get(second));
    if (one.ino == two.ino) return Ok();
    // Seen by nobody: the transaction ends without it.
    const std::string between = ".exchange-" + std::to_string(one.ino);
    PFS_TRY(txn.Move(one.ino, new_parent, between));
    PFS_TRY(txn.Move(two.ino, parent, name));
    PFS_TRY(txn.Move(one.ino, new_parent, new_name));
    std::swap(one.parent, two.parent);
    std::swap(one.name, two.name);
    one.ctime_ns = two.ctime_ns = now;
    PFS_TRY(txn.Put(one));
    PFS_TRY(txn.Put(two));
    TouchDirectory(txn, parent, now);
    if (new_parent != parent) TouchDirectory(txn, new_parent, now);
    return Ok();
  }));
  Moved(one);
  Moved(two);
  return Ok();
}

}  // namespace prefixfs
