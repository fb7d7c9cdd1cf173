#include "fs/nodes.h"

#include <algorithm>

namespace prefixfs {

int Nodes::Acquire(Ino ino, bool allowed, bool writable, const std::function<int()>& make_id) {
  {
    MutexLock lock(mutex_);
    Node& node = nodes_[ino];
    if (node.handles > 0 && node.served) {
      ++node.handles;
      return kServed;
    }
    if (node.id != 0) {
      ++node.handles;
      return node.id;
    }
    // Counted at once, so that nobody decides otherwise while the file is being registered.
    ++node.handles;
    if (!allowed) {
      node.served = true;
      return kServed;
    }
  }
  const int made = make_id();
  int id = made;
  bool superfluous = false;
  {
    MutexLock lock(mutex_);
    Node& node = nodes_[ino];
    if (node.id != 0) {
      superfluous = made != 0;
      id = node.id;
    } else if (made == 0 || node.served) {
      superfluous = made != 0;
      node.served = true;
      id = kServed;
    } else {
      node.id = made;
      node.writable = writable;
    }
  }
  if (superfluous) close_id_(made);
  return id;
}

void Nodes::Release(Ino ino) {
  std::vector<int> closing;
  {
    MutexLock lock(mutex_);
    auto it = nodes_.find(ino);
    if (it == nodes_.end() || --it->second.handles > 0) return;
    const Node& node = it->second;
    if (node.id == 0 || node.writable || node.dropped) {
      if (node.id != 0) closing.push_back(node.id);
      nodes_.erase(it);
    } else {
      idle_.push_back(ino);
      TrimIdle(&closing);
    }
  }
  CloseAll(closing);
}

bool Nodes::HasId(Ino ino) {
  MutexLock lock(mutex_);
  const auto it = nodes_.find(ino);
  return it != nodes_.end() && it->second.id != 0;
}

// An inode may stand in the queue several times, or be in use again: such entries are passed over.
void Nodes::TrimIdle(std::vector<int>* closing) {
  while (idle_.size() > max_idle_) {
    const Ino ino = idle_.front();
    idle_.pop_front();
    auto it = nodes_.find(ino);
    if (it == nodes_.end() || it->second.handles > 0) continue;
    closing->push_back(it->second.id);
    nodes_.erase(it);
  }
}

void Nodes::Drop(Ino ino) {
  int id = 0;
  {
    MutexLock lock(mutex_);
    auto it = nodes_.find(ino);
    if (it == nodes_.end()) return;
    if (it->second.handles > 0) {
      it->second.dropped = true;
      return;
    }
    id = it->second.id;
    nodes_.erase(it);
  }
  if (id != 0) close_id_(id);
}

uint64_t Nodes::registered() {
  MutexLock lock(mutex_);
  return static_cast<uint64_t>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& n) { return n.second.id != 0; }));
}

}  // namespace prefixfs
