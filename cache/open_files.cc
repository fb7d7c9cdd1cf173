#include "cache/open_files.h"

#include <algorithm>

namespace prefixfs {

// What was written, or has lost its name, may take work of the filesystem when its last descriptor
// is closed.
File::~File() {
  if (drive == nullptr || !fd.valid() || (owner_tid == 0 && !nameless && !posix())) return;
  try {
    drive->Post([last = std::make_shared<Fd>(std::move(fd))] {});
  } catch (const std::bad_alloc&) {
    // Then it is closed here.
  }
}

FilePtr OpenFiles::Find(Ino ino) {
  MutexLock lock(mutex);
  return FindLocked(ino);
}

FilePtr OpenFiles::FindLocked(Ino ino) {
  auto it = files_.find(ino);
  return it == files_.end() ? nullptr : it->second;
}

std::vector<FilePtr> OpenFiles::Provisional(Ino parent, std::string_view name) {
  if (provisional_count_.load(std::memory_order_acquire) == 0) return {};
  MutexLock lock(mutex);
  auto it = provisional_.find(Name{parent, std::string(name)});
  return it == provisional_.end() ? std::vector<FilePtr>() : it->second;
}

void OpenFiles::AddProvisionalLocked(const FilePtr& file) {
  provisional_[Name{file->inode.parent, file->inode.name}].push_back(file);
  provisional_in_[file->inode.parent].emplace(file->ino, file);
  provisional_count_.fetch_add(1, std::memory_order_release);
}

void OpenFiles::RemoveProvisionalLocked(const FilePtr& file) {
  auto it = provisional_.find(Name{file->inode.parent, file->inode.name});
  if (it == provisional_.end()) return;
  auto at = std::find(it->second.begin(), it->second.end(), file);
  if (at == it->second.end()) return;
  it->second.erase(at);
  if (it->second.empty()) provisional_.erase(it);
  auto siblings = provisional_in_.find(file->inode.parent);
  siblings->second.erase(file->ino);
  if (siblings->second.empty()) provisional_in_.erase(siblings);
  provisional_count_.fetch_sub(1, std::memory_order_release);
}

bool OpenFiles::HasProvisional(Ino parent) {
  MutexLock lock(mutex);
  return provisional_in_.contains(parent);
}

std::vector<FilePtr> OpenFiles::ProvisionalIn(Ino parent, Ino after, Ino last) {
  std::vector<FilePtr> found;
  if (provisional_count_.load(std::memory_order_acquire) == 0) return found;
  MutexLock lock(mutex);
  auto siblings = provisional_in_.find(parent);
  if (siblings == provisional_in_.end()) return found;
  for (auto it = siblings->second.upper_bound(after);
       it != siblings->second.end() && it->first <= last; ++it) {
    found.push_back(it->second);
  }
  return found;
}

std::vector<FilePtr> OpenFiles::AllProvisional() {
  std::vector<FilePtr> found;
  MutexLock lock(mutex);
  for (auto& [name, files] : provisional_) found.insert(found.end(), files.begin(), files.end());
  return found;
}

std::vector<FilePtr> OpenFiles::Writing() {
  std::vector<FilePtr> found;
  MutexLock lock(mutex);
  for (auto& [ino, file] : files_) {
    if (file->writers > 0) found.push_back(file);
  }
  return found;
}

std::vector<FilePtr> OpenFiles::All() {
  std::vector<FilePtr> found;
  MutexLock lock(mutex);
  for (auto& [ino, file] : files_) found.push_back(file);
  return found;
}

FilePtr ChooseFor(const Caller& caller, const std::vector<FilePtr>& candidates, bool published) {
  for (auto it = candidates.rbegin(); it != candidates.rend(); ++it) {
    if ((*it)->owner_tid == caller.tid()) return *it;
  }
  if (published) return nullptr;
  for (auto it = candidates.rbegin(); it != candidates.rend(); ++it) {
    if (caller.DescendsFrom((*it)->owner)) return *it;
  }
  return nullptr;
}

}  // namespace prefixfs
