// Publish and seal: the two moments in a block's life that others depend on.
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>

#include "cache/cache.h"

namespace prefixfs {
namespace {

void TakeStat(const struct stat& now, Inode* inode) {
  inode->size = static_cast<uint64_t>(now.st_size);
  inode->allocated = static_cast<uint64_t>(now.st_blocks) * 512;
  inode->mtime_ns = now.st_mtim.tv_sec * kNsPerSecond + now.st_mtim.tv_nsec;
  inode->ctime_ns =
      std::max(inode->ctime_ns, now.st_ctim.tv_sec * kNsPerSecond + now.st_ctim.tv_nsec);
}

}  // namespace

std::string Cache::PathTo(Ino parent, std::string_view name) {
  std::string path = PathOf(parent);
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

std::string Cache::Classify(const std::string& path, Inode* inode) {
  BlockName name = naming_->Parse(path);
  inode->hash = std::move(name.hash);
  inode->rank = name.rank;
  return std::move(name.model);
}

Status Cache::InternModel(IndexTxn& txn, const std::string& model, Inode* inode) {
  inode->model = 0;
  if (model.empty()) return Ok();
  inode->model = PFS_TRY(txn.InternModel(model));
  MutexLock lock(side_mutex_);
  models_.emplace(inode->model, model);
  NoteModelHome(inode->model, inode->parent);
  return Ok();
}

void Cache::NoteModelHome(uint32_t model, Ino directory) {
  constexpr size_t kMaxHomes = 16;
  std::vector<Ino>& homes = model_homes_[model];
  if (std::find(homes.begin(), homes.end(), directory) != homes.end()) return;
  if (homes.size() >= kMaxHomes) homes.erase(homes.begin());
  homes.push_back(directory);
}

Status Cache::Publish(const FilePtr& file, Ino parent, std::string_view name, bool replace,
                      bool complete) {
  Inode inode;
  bool was_published;
  {
    MutexLock lock(open_.mutex);
    inode = file->inode;
    was_published = file->published;
  }
  const Ino old_parent = inode.parent;
  const std::string old_name = inode.name;
  const Ino base = file->base;
  struct stat now;
  if (::fstat(file->fd.get(), &now) != 0)
    return file->drive->Note(Status::FromErrno(errno, "fstat"));
  if (!file->copy_pending) TakeStat(now, &inode);
  const Inode directory = PFS_TRY(index_->Get(parent));
  const std::string path = PathTo(parent, name);
  const bool posix = PolicyAt(directory, path, false) == PathPolicy::kPosix;
  inode.state = posix ? FileState::kPosix : FileState::kOpen;
  inode.parent = parent;
  inode.name = name;
  const std::string model = Classify(path, &inode);
  if (posix && !was_published)
    PFS_TRY(file->drive->Note(file->drive->WriteHeader(file->fd.get(), inode)));
  // What the index keeps. A complete file is sealed there at once, so that Seal need not commit.
  Inode stored = inode;
  if (complete && !posix) stored.state = FileState::kSealed;
  Removal removal;
  const Replacing replacing(replacements_);
  PFS_TRY(index_->Update([&](IndexTxn& txn) -> Status {
    removal.inodes.clear();
    PFS_TRY(txn.Get(parent));
    Result<Ino> existing = txn.Lookup(parent, name);
    if (existing.ok() && *existing != inode.ino) {
      const Inode target = PFS_TRY(txn.Get(*existing));
      if (target.IsDirectory()) return Code::kIsDirectory;
      if (!replace) return Code::kExists;
      PFS_TRY(RemoveName(txn, target, &removal));
    }
    // Renamed before it replaced its base: the base goes with the name, as the one file they seem
    // to be.
    if (Result<Inode> old = txn.Get(base); base != 0 && old.ok()) {
      if (old->parent == old_parent && old->name == old_name)
        PFS_TRY(RemoveName(txn, *old, &removal));
    }
    PFS_TRY(InternModel(txn, model, &stored));
    if (!was_published) {
      PFS_TRY(txn.Insert(stored));
    } else {
      if (old_parent != parent || old_name != name) PFS_TRY(txn.Move(stored.ino, parent, name));
      PFS_TRY(txn.Put(stored));
    }
    TouchDirectory(txn, parent, inode.mtime_ns);
    return Ok();
  }));
  if (!was_published) {
    file->claim.Keep();
    // A block is moved when its checksum is made, so that its writer need not wait for that.
    if (posix) (void)file->drive->Note(file->drive->Publish(inode.block)).ok();
  } else {
    RefreshHeader(inode.ino);
  }
  {
    MutexLock lock(open_.mutex);
    if (file->provisional) open_.RemoveProvisionalLocked(file);
    inode.model = stored.model;
    file->inode = inode;
    file->recorded = stored.state == FileState::kSealed;
    file->renamed |= parent != old_parent || name != old_name;
    file->published = true;
    file->provisional = file->closed = false;
    file->base = 0;
  }
  Removed(removal, true);
  counters_.published.fetch_add(1, std::memory_order_relaxed);
  return Ok();
}

Status Cache::Seal(const FilePtr& file) {
  struct stat now;
  PFS_TRY(EnsureCopied(file));
  if (::fstat(file->fd.get(), &now) != 0)
    return file->drive->Note(Status::FromErrno(errno, "fstat"));
  Inode sealed = PFS_TRY(index_->Get(file->ino));
  const Inode recorded = sealed;
  TakeStat(now, &sealed);
  // What it takes on the drive may still change; the checksum thread notes that.
  if (!file->recorded || sealed.size != recorded.size || sealed.mtime_ns != recorded.mtime_ns) {
    PFS_TRY(index_->Update([&](IndexTxn& txn) -> Status {
      sealed = PFS_TRY(txn.Get(file->ino));
      TakeStat(now, &sealed);
      if (sealed.state != FileState::kPosix) sealed.state = FileState::kSealed;
      return txn.Put(sealed);
    }));
    RefreshHeader(sealed.ino);
  }
  uint64_t reserved, accounted;
  {
    MutexLock lock(open_.mutex);
    // The name is not ours to set: a rename may have come in between.
    file->inode.state = sealed.state;
    TakeStat(now, &file->inode);
    reserved = std::exchange(file->reserved, 0);
    accounted =
        std::exchange(file->accounted,
                      sealed.state == FileState::kPosix || file->nameless ? sealed.allocated : 0);
    if (sealed.state == FileState::kSealed && !file->nameless) {
      residents_->Insert(sealed.ino, {sealed.allocated, sealed.model, sealed.drive, false},
                         file->readers, !file->renamed);
      file->resident = true;
    }
  }
  budget_->Account(static_cast<int64_t>(sealed.allocated) - static_cast<int64_t>(accounted),
                   reserved);
  drives_->AddQueued(file->drive->slot(), -static_cast<int64_t>(reserved));
  if (sealed.state == FileState::kSealed) {
    LearnSize(sealed);
    NoteTemporary(sealed);
  }
  if (sealed.state == FileState::kSealed || file->remeasure) checksums_->Enqueue(sealed.ino);
  return Ok();
}

// The top-level directory above `directory`: its blocks are of one model and so of one size.
Ino Cache::NamespaceOf(Ino directory) {
  Ino ino = directory;
  for (int depth = 0; depth < 128 && ino != kRootIno; ++depth) {
    Result<Inode> inode = index_->Get(ino);
    if (!inode.ok() || inode->parent == kRootIno || inode->parent == ino) break;
    ino = inode->parent;
  }
  return ino;
}

uint64_t Cache::TypicalBytes(Ino parent) {
  const Ino space = NamespaceOf(parent);
  MutexLock lock(side_mutex_);
  auto it = typical_bytes_.find(space);
  return it == typical_bytes_.end() ? config_.reserve_initial : it->second;
}

// Follows growth at once and shrinks by an eighth of the difference: promising too little is what
// costs.
void Cache::LearnSize(const Inode& inode) {
  constexpr size_t kMaxNamespaces = 65'536;
  const Ino space = NamespaceOf(inode.parent);
  MutexLock lock(side_mutex_);
  if (typical_bytes_.size() >= kMaxNamespaces) typical_bytes_.clear();
  uint64_t& typical = typical_bytes_.emplace(space, inode.allocated).first->second;
  typical =
      inode.allocated >= typical ? inode.allocated : typical - (typical - inode.allocated) / 8;
}

}  // namespace prefixfs
