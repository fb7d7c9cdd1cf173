// Drive: one directory on XFS or ext4 that holds backing files.
//
// What is in the directory says docs/DATA_FORMAT.md. A new file is made in incoming/; a block stays
// there, published or not, until its checksum is made, and then moves to blocks/.
//
// A drive that answers EIO, EROFS or like a device that is gone is *failed*: its blocks are misses
// and no new block is placed on it, until the next start. Nothing here blocks the rest of the
// mount.
//
// Threads: every call from any thread. Descriptors returned are the caller's.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/fd.h"
#include "cache/base/status.h"
#include "cache/base/waiting.h"
#include "cache/base/worker_pool.h"
#include "cache/index/record.h"
#include "cache/store/flow.h"
#include "cache/store/spares.h"

namespace prefixfs {

struct DriveSpace {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;   // available to all, so without what ext4 keeps for root
  uint64_t total_files = 0;  // inodes; 0 if the filesystem makes them as it needs them
  uint64_t free_files = 0;
  uint64_t fs_id = 0;  // st_dev: two drives on one filesystem share its space
};

class Drive {
 public:
  // Opens `path`, making the layout if the directory is absent or empty. kRejected if another
  // daemon holds its lock (the message names its pid); kInvalid if the directory is not empty and
  // not ours, is of an unknown version, or belongs to another pool than `pool_uuid` (empty: any).
  static Result<std::unique_ptr<Drive>> Open(const std::string& path, std::string_view pool_uuid);
  ~Drive();

  const std::string& path() const { return path_; }
  const std::string& uuid() const { return uuid_; }
  const std::string& pool_uuid() const { return pool_uuid_; }
  // The slot is what inode records carry. A new drive has none until AssignSlot stores one.
  bool has_slot() const { return slot_ >= 0; }
  uint16_t slot() const { return static_cast<uint16_t>(slot_); }
  // Slots that the pool has given so far, as far as this drive was told. Slots of drives that are
  // absent are never given again, so that their blocks cannot be mistaken for another drive's.
  uint32_t slots_given() const { return slots_given_; }
  // Stores pool, slot and max(slots_given, slot + 1). Only while no other thread uses the drive.
  Status Assign(std::string_view pool_uuid, uint16_t slot, uint32_t slots_given = 0);
  bool supports_reflink() const { return reflink_; }  // tried at open
  // What offsets and lengths of O_DIRECT must be multiples of; 0 if the filesystem has no O_DIRECT.
  uint32_t direct_alignment() const { return direct_alignment_; }

  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // It has calls under way and none of them ends: whatever asks it for something may wait as long.
  // As of the last LookForStall, which is to be called every few milliseconds.
  bool stalled() const { return stalled_.load(std::memory_order_relaxed); }
  void LookForStall(int64_t now_ns);
  // The caller is about to use the drive's files itself.
  class Call;

  // Work on this drive that its caller need not wait for, or not for long. One thread does it all,
  // in order. Before StartChores and after StopChores it is done at once.
  void StartChores();
  void StopChores();
  void Post(std::function<void()> work);
  // Waits until it is done, `wait_ms` at most, and not at all while the drive is stalled.
  void PostAndWait(std::function<void()> work, int64_t wait_ms);
  // An empty file in incoming/, made ahead.
  Spares& spares() { return spares_; }

  // Marks the drive failed if `status` says that the device or filesystem is gone (kUnavailable,
  // kIo); returns `status`. The drive's own calls do so by themselves, and on a failed drive all of
  // them return kUnavailable.
  Status Note(Status status);

  // Also the drive's health check: a filesystem that was made read-only or shut down fails the
  // drive.
  Result<DriveSpace> Space();

  // A new empty file in incoming/, open O_RDWR.
  Result<Fd> Create(const BlockId& block);
  // A new file in incoming/ that shares the extents of `source` (FICLONE). kUnsupported without
  // reflink.
  Result<Fd> Clone(int source, const BlockId& block);
  // incoming/ -> blocks/. Idempotent.
  Status Publish(const BlockId& block);
  // Opens a file, wherever it is. kNotFound if absent.
  Result<Fd> OpenWritable(const BlockId& block);
  // Opens a published file through a read-only clone of the mount: O_RDWR through it is refused by
  // the kernel, so a sealed block cannot be written by mistake. Falls back to a plain O_RDONLY
  // where such a clone cannot be had.
  // `cached`: kRejected if that could take I/O.
  Result<Fd> OpenSealed(const BlockId& block, bool cached = false);
  // kOk also if it was gone already. `published`: it may be in blocks/ by now.
  Status Unlink(const BlockId& block, bool published);

  // Gives a block's file, which keeps its own name, a second one in quarantine/. Returns the bytes
  // it takes. kOk also if it was there already.
  Result<uint64_t> Quarantine(const BlockId& block);
  Result<Fd> OpenQuarantined(const BlockId& block);
  // kOk also if it was gone already.
  Status Unquarantine(const BlockId& block);
  struct QuarantinedFile {
    BlockId block{};
    uint64_t bytes = 0;
    int64_t since_ns = 0;
  };
  Result<std::vector<QuarantinedFile>> Quarantined();

  // Header of a backing file. `fd` must not come from OpenSealed (kInvalid). kNoSpace if it does
  // not fit beside the client's own xattrs. Reading: kNotFound without a header, kCorrupt if it
  // does not hold.
  Status WriteHeader(int fd, const Inode& inode);
  static Result<Inode> ReadHeader(int fd);
  // Calls `visit(block id, header or why not, stat)` for every published file. Files that cannot be
  // read, and those whose header names another block, are visited with the error (and a zeroed stat
  // if that is unknown too); names that are no block's are skipped and their number is logged. An
  // error is returned only if a directory is unreadable.
  Status ForEachBlock(
      const std::function<void(const BlockId&, Result<Inode>, const struct stat&)>& visit);
  // The files in incoming/.
  Result<std::vector<BlockId>> Incoming();

  // Records of directories, symlinks and special files. A record too long for the filesystem's
  // xattrs (a long symlink on ext4) is the content of the file instead.
  Status PutRecord(const Inode& inode);
  Status RemoveRecord(Ino ino);
  Status ForEachRecord(const std::function<void(Result<Inode>)>& visit);
  // An O_RDONLY descriptor of the record's file, for the client's own xattrs on directories.
  Result<Fd> OpenRecord(Ino ino);

 private:
  Drive();
  Result<SpareFile> MakeSpare();
  Status MakeLayout();
  Status ReadFormat();
  Status WriteFormat();
  Status TakeLock(int fd);
  Status LockTaken(int fd);
  Status ProbeIncoming();
  static Result<Fd> OpenWherever(int blocks, int incoming, const BlockId& block, int flags);

  // Constant after Open, but for Assign at start.
  std::string path_, uuid_, pool_uuid_;
  int slot_ = -1;
  uint32_t slots_given_ = 0;
  bool reflink_ = false;
  uint32_t direct_alignment_ = 0;
  Fd root_;  // DIR, also locked: it keeps the lock while PREFIXFS is replaced
  Fd lock_;  // PREFIXFS, locked
  Fd incoming_, blocks_, records_, quarantine_;
  // blocks/ and incoming/ in detached, read-only clones of the mount; both or neither.
  Fd sealed_blocks_, sealed_incoming_;
  std::atomic<bool> failed_{false};

  Flow reads_, writes_;
  std::atomic<bool> stalled_{false};
  Spares spares_;
  std::unique_ptr<WorkerPool> chores_;
};

// A call on the drive's filesystem, counted while it is under way; what the calling thread works
// for waits for it.
class Drive::Call {
 public:
  Call(Drive& drive, Wait what, bool writes)
      : flow_(writes ? drive.writes_ : drive.reads_),
        waiting_(what, drive.has_slot() ? drive.slot() : WaitMark::kNoDrive) {
    flow_.Begin();
  }
  ~Call() { flow_.End(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Flow& flow_;
  Waiting waiting_;
};

}  // namespace prefixfs
