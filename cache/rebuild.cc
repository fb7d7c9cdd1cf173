#include "cache/rebuild.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace prefixfs {
namespace {

constexpr size_t kBatch = 1024;

using Nodes = std::map<Ino, Inode>;

struct Candidate {
  Inode inode;
  Drive* drive;
};

// Why a block cannot be kept; empty if it can.
std::string Fault(const Result<Inode>& header, const struct stat& now) {
  if (!header.ok()) return header.status().ToString();
  if (!header->IsFile()) return "the header is no file's";
  if (header->state == FileState::kPosix) return "";
  if (header->checksum_kind == ChecksumKind::kNone) return "no checksum yet";
  if (header->size != static_cast<uint64_t>(now.st_size)) return "not the sealed size";
  return "";
}

class Rebuilder {
 public:
  Rebuilder(Index& index, DriveSet& drives, const Naming& naming)
      : index_(index), drives_(drives), naming_(naming) {}

  Result<RebuildTally> Run() {
    for (auto& drive : drives_.drives()) ReadRecords(*drive);
    // Before a block is dropped because its directory is not known.
    PFS_TRY(unread_);
    if (!nodes_.empty()) highest_ = nodes_.rbegin()->first;
    for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) (void)AddNode(it->first, 0);
    for (auto& drive : drives_.drives()) ReadBlocks(*drive);
    PFS_TRY(unread_);
    for (auto& drive : drives_.drives()) tally_.complete &= !drive->failed();
    PFS_TRY(index_.RaiseIno(highest_));
    PFS_TRY(RestoreRoot());
    DropUnreachable();
    PFS_TRY(InsertNodes());
    PFS_TRY(InsertBlocks());
    return tally_;
  }

 private:
  // Whether the status says that something could not be looked at, rather than what is wrong with
  // it. One bad sector costs one block; a drive that does not answer at all has failed.
  bool Unread(Drive& drive, const Status& status) {
    switch (status.code()) {
      case Code::kOk:
      case Code::kCorrupt:
      case Code::kNotFound:
      case Code::kInvalid:
      case Code::kTooLong:
      case Code::kUnsupported:
        return false;
      case Code::kIo:
        return !drive.Note(drive.Space().status()).ok();
      default:
        if (drive.Note(status).ok() || drive.failed()) return true;
        if (unread_.ok()) unread_ = status;
        return true;
    }
  }

  // The latest record of each number, over all drives: a rename while a drive was away leaves an
  // old one there.
  void ReadRecords(Drive& drive) {
    const Status status = drive.ForEachRecord([&](Result<Inode> inode) {
      if (!inode.ok()) {
        if (Unread(drive, inode.status())) return;
        spdlog::warn("record on {}: {}", drive.path(), inode.status().ToString());
        return;
      }
      auto [it, added] = nodes_.emplace(inode->ino, *inode);
      if (!added && inode->ctime_ns > it->second.ctime_ns) it->second = *inode;
    });
    if (Unread(drive, status)) spdlog::warn("records on {}: {}", drive.path(), status.ToString());
  }

  // Whether `ino` hangs off the root through directories; decides once and remembers.
  bool AddNode(Ino ino, int depth) {
    if (ino == kRootIno) return true;
    if (auto known = reachable_.find(ino); known != reachable_.end()) return known->second;
    auto it = nodes_.find(ino);
    bool ok = it != nodes_.end() && depth < 512 && it->second.parent != ino;
    if (ok && it->second.parent != kRootIno) {
      auto parent = nodes_.find(it->second.parent);
      ok = parent != nodes_.end() && parent->second.IsDirectory() &&
           AddNode(it->second.parent, depth + 1);
    }
    if (ok) ok = Claim(it->second);
    reachable_[ino] = ok;
    if (ok) order_.push_back(ino);
    return ok;
  }

  // A name belongs to whoever has it with the highest number; nodes come before blocks.
  bool Claim(const Inode& inode) {
    return names_.emplace(std::make_pair(inode.parent, inode.name), inode.ino).second;
  }

  void ReadBlocks(Drive& drive) {
    const Status status = drive.ForEachBlock([&](const BlockId& block, Result<Inode> header,
                                                 const struct stat& now) {
      if (Unread(drive, header.status())) return;
      std::string fault = Fault(header, now);
      if (fault.empty() && header->block != block) fault = "the header is another file's";
      if (fault.empty() && !AddNode(header->parent, 0)) fault = "its directory is gone";
      if (fault.empty() && (nodes_.contains(header->ino) || !numbers_.insert(header->ino).second)) {
        fault = "its number is another's";
      }
      if (!fault.empty()) return Discard(drive, block, fault);
      Inode inode = std::move(header).value();
      highest_ = std::max(highest_, inode.ino);
      inode.drive = drive.slot();
      inode.allocated = static_cast<uint64_t>(now.st_blocks) * 512;
      inode.size = static_cast<uint64_t>(now.st_size);
      if (inode.state != FileState::kPosix) {
        inode.state = FileState::kSealed;
        inode.flags |= inode_flag::kUnverified;
      }
      Offer({std::move(inode), &drive});
    });
    if (Unread(drive, status)) spdlog::warn("blocks on {}: {}", drive.path(), status.ToString());
  }

  // Of two blocks with one name the later incarnation stays.
  void Offer(Candidate candidate) {
    const auto name = std::make_pair(candidate.inode.parent, candidate.inode.name);
    if (names_.contains(name))
      return Discard(*candidate.drive, candidate.inode.block, "its name is a directory's");
    auto [it, added] = blocks_.try_emplace(name, candidate);
    if (added) return;
    if (candidate.inode.ino > it->second.inode.ino) std::swap(it->second, candidate);
    Discard(*candidate.drive, candidate.inode.block, "replaced by a newer one");
  }

  void Discard(Drive& drive, const BlockId& block, const std::string& why) {
    ++tally_.dropped;
    spdlog::debug("dropping {}: {}", ToHex(block), why);
    (void)drive.Note(drive.Unlink(block, true)).ok();
  }

  // Owner, mode and times of the mount itself, if they were ever set.
  Status RestoreRoot() {
    const auto it = nodes_.find(kRootIno);
    if (it == nodes_.end() || !it->second.IsDirectory()) return Ok();
    return index_.Update([&](IndexTxn& txn) { return txn.Put(it->second); });
  }

  // What hangs off nothing would be in the way of nobody, and stay for ever.
  void DropUnreachable() {
    for (const auto& [ino, reachable] : reachable_) {
      if (reachable || !nodes_.contains(ino)) continue;
      for (auto& drive : drives_.drives()) (void)drive->Note(drive->RemoveRecord(ino)).ok();
    }
  }

  Status InsertNodes() {
    for (size_t at = 0; at < order_.size();) {
      const size_t end = std::min(order_.size(), at + kBatch);
      PFS_TRY(index_.Update([&](IndexTxn& txn) -> Status {
        for (size_t i = at; i < end; ++i) PFS_TRY(txn.Insert(nodes_.at(order_[i])));
        return Ok();
      }));
      at = end;
    }
    tally_.records = order_.size();
    return Ok();
  }

  Status InsertBlocks() {
    auto it = blocks_.begin();
    while (it != blocks_.end()) {
      auto end = it;
      for (size_t n = 0; n < kBatch && end != blocks_.end(); ++n) ++end;
      PFS_TRY(index_.Update([&](IndexTxn& txn) -> Status {
        for (auto at = it; at != end; ++at) {
          Inode& inode = at->second.inode;
          BlockName name = naming_.Parse(PathOf(inode));
          inode.hash = std::move(name.hash);
          inode.rank = name.rank;
          inode.model = name.model.empty() ? 0 : PFS_TRY(txn.InternModel(name.model));
          PFS_TRY(txn.Insert(inode));
        }
        return Ok();
      }));
      it = end;
    }
    tally_.blocks = blocks_.size();
    return Ok();
  }

  std::string PathOf(const Inode& inode) const {
    std::string path = inode.name;
    for (Ino ino = inode.parent; ino != kRootIno;) {
      const Inode& directory = nodes_.at(ino);
      path = directory.name + "/" + path;
      ino = directory.parent;
    }
    return path;
  }

  using Name = std::pair<Ino, std::string>;
  Index& index_;
  DriveSet& drives_;
  const Naming& naming_;
  Nodes nodes_;
  std::unordered_map<Ino, bool> reachable_;
  std::vector<Ino> order_;  // parents before children
  std::map<Name, Ino> names_;
  std::map<Name, Candidate> blocks_;
  std::unordered_set<Ino> numbers_;
  Ino highest_ = 0;
  Status unread_;  // why something could not be looked at
  RebuildTally tally_;
};

}  // namespace

Result<RebuildTally> RebuildIndex(Index& index, DriveSet& drives, const Naming& naming) {
  return Rebuilder(index, drives, naming).Run();
}

}  // namespace prefixfs
