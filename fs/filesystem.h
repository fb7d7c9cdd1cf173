// Filesystem: FUSE requests in, cache calls out. One file per group of operations (ops_*.cc); no
// decision about blocks is taken here.
//
// Threads: libfuse calls the operations from its loop threads, which read the index and memory and
// wait for nothing; whatever may wait, for a drive, for a commit of the index, for space, or for
// somebody who does, is handed to the workers, which reply.
#pragma once

#include <fuse_lowlevel.h>

#include <atomic>
#include <memory>
#include <string>

#include "cache/base/worker_pool.h"
#include "cache/cache.h"
#include "fs/control.h"
#include "fs/deferred.h"
#include "fs/nodes.h"
#include "fs/op_stats.h"
#include "fs/request.h"
#include "fs/requests.h"
#include "fs/watch.h"

namespace prefixfs {

// What fi->fh points to for files.
struct OpenFile {
  HandlePtr handle;
  bool passthrough = false;
  bool cached_writes = false;  // opened with O_DIRECT, but its writes go through the page cache
  std::atomic<int> users{1};   // the client, and work that goes on after its answer
};

// What a deferred request is answered if it takes longer than `after_ms`; 0: it may take for ever.
struct Late {
  int error = 0;
  int64_t after_ms = 0;
};

// Who goes on with a deferred request. What may wait long for one thing must not hold up what waits
// for another.
enum class Queue {
  kSpace,  // for bytes, inodes and checksums
  kNames,  // for the index and the drives' metadata
  kData,   // for bytes of a drive
};

class Filesystem final : public CacheListener {
 public:
  Filesystem(Cache& cache, const std::string& mount_point);
  ~Filesystem() override;
  Filesystem(const Filesystem&) = delete;
  Filesystem& operator=(const Filesystem&) = delete;

  // Lives until the session's loop has ended; call once, before the loop. `on_init` runs when the
  // kernel has said hello.
  void Attach(fuse_session* session, std::function<void()> on_init);
  // Waits for what the workers still have. No request may come any more.
  void Drain() {
    watch_.Stop();
    workers_.reset();
    name_workers_.reset();
    data_workers_.reset();
  }
  static const fuse_lowlevel_ops& Operations();
  void WantRing() { want_ring_ = true; }  // before the mount
  bool ring() const { return want_ring_; }

  // For the operations.
  Cache& cache() { return cache_; }
  Nodes& nodes() { return nodes_; }
  OpStats& stats() { return stats_; }
  Control& control() { return control_; }
  bool passthrough() const { return passthrough_.load(std::memory_order_relaxed); }
  Caller CallerOf(fuse_req_t req);
  Request Begin(fuse_req_t req, Op op, fuse_ino_t ino) {
    if (want_ring_ && fuse_req_is_uring(req)) control_.SeenRing();
    return Request(req, op, stats_, requests_, ino);
  }
  // Runs `work` on a worker. If the queue is full the request is answered as if it were late, or,
  // if it may not be, worked on by this thread.
  void Defer(Request request, Queue queue, Late late, std::function<void(Deferred&)> work);
  Late LateOpen() const { return {ENOENT, cache_.config().deadline_ms}; }
  Late LateChange() const { return {EIO, cache_.config().deadline_ms}; }
  static Late Never() { return {}; }
  // Whether this thread may wait for a drive with data that it serves itself: not all that read
  // /dev/fuse may at once, and never one of the ring.
  class DataTurn;
  void Init(fuse_conn_info* connection);
  // Whether Serve need not wait for the drive.
  bool IsReady(const Handle& handle) {
    return nodes_.HasId(handle.file->ino) || cache_.HasDataFd(handle);
  }
  // Decides how the handle is served and fills fi.
  Status Serve(fuse_req_t req, const Caller& caller, HandlePtr handle, fuse_file_info* fi);
  HandlePtr Unserve(OpenFile* open);  // to be given back to the cache
  // Keeps an open file over work that may outlast its answer, and so the client's last close. To be
  // given up before the answer: otherwise whoever holds it longer does the release, and late.
  class Use;
  std::shared_ptr<Use> UseOf(const fuse_file_info* fi);  // null if there is none

  void OnGone(Ino ino) override { nodes_.Drop(ino); }
  void OnInvalid(Ino parent, const std::string& name) override;

 private:
  void CloseBacking(int id);
  std::unique_ptr<WorkerPool>& PoolOf(Queue queue);
  std::string Describe(const Requests::Request& request);

  Cache& cache_;
  OpStats stats_;
  Requests requests_;
  std::unique_ptr<WorkerPool> dropper_;  // one thread, that gives backing ids back to the kernel
  Nodes nodes_;
  Control control_;
  fuse_session* session_ = nullptr;
  std::function<void()> on_init_;
  bool want_ring_ = false;
  std::atomic<bool> passthrough_{false};
  std::atomic<int> serving_data_{0};  // threads that read /dev/fuse and may wait for a drive
  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<WorkerPool> name_workers_;
  std::unique_ptr<WorkerPool> data_workers_;
  std::unique_ptr<WorkerPool> notifier_;  // one thread: the kernel may hold a notice back
  Watch watch_;
};

class Filesystem::Use {
 public:
  Use(Filesystem& fs, OpenFile* open) : fs_(fs), open_(open) { open_->users.fetch_add(1); }
  ~Use() {
    if (open_->users.fetch_sub(1) == 1) fs_.cache_.Release(fs_.Unserve(open_));
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  const Handle& handle() const { return *open_->handle; }

 private:
  Filesystem& fs_;
  OpenFile* const open_;
};

// Held by a thread that serves data itself, if it may.
class Filesystem::DataTurn {
 public:
  DataTurn(Filesystem& fs, fuse_req_t req) {
    if (fuse_req_is_uring(req)) return;
    const auto most = static_cast<int>((fs.cache_.config().max_threads + 1) / 2);
    if (fs.serving_data_.fetch_add(1, std::memory_order_relaxed) < most) {
      taken_ = &fs.serving_data_;
    } else {
      fs.serving_data_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  ~DataTurn() {
    if (taken_ != nullptr) taken_->fetch_sub(1, std::memory_order_relaxed);
  }
  DataTurn(const DataTurn&) = delete;
  DataTurn& operator=(const DataTurn&) = delete;
  explicit operator bool() const { return taken_ != nullptr; }

 private:
  std::atomic<int>* taken_ = nullptr;
};

inline Filesystem& FilesystemOf(fuse_req_t req) {
  return *static_cast<Filesystem*>(fuse_req_userdata(req));
}
inline OpenFile* OpenFileOf(const fuse_file_info* fi) {
  return fi == nullptr ? nullptr : reinterpret_cast<OpenFile*>(fi->fh);
}

struct stat ToStat(const Inode& inode);
fuse_entry_param ToEntryParam(const Entry& entry);
int64_t ToNs(const timespec& time);

// The operations, by file.
namespace ops {
void Lookup(fuse_req_t, fuse_ino_t, const char*);
void Forget(fuse_req_t, fuse_ino_t, uint64_t);
void ForgetMulti(fuse_req_t, size_t, fuse_forget_data*);
void Mknod(fuse_req_t, fuse_ino_t, const char*, mode_t, dev_t);
void Mkdir(fuse_req_t, fuse_ino_t, const char*, mode_t);
void Symlink(fuse_req_t, const char*, fuse_ino_t, const char*);
void Readlink(fuse_req_t, fuse_ino_t);
void Unlink(fuse_req_t, fuse_ino_t, const char*);
void Rmdir(fuse_req_t, fuse_ino_t, const char*);
void Rename(fuse_req_t, fuse_ino_t, const char*, fuse_ino_t, const char*, unsigned);
void Link(fuse_req_t, fuse_ino_t, fuse_ino_t, const char*);

void Create(fuse_req_t, fuse_ino_t, const char*, mode_t, fuse_file_info*);
void Tmpfile(fuse_req_t, fuse_ino_t, mode_t, fuse_file_info*);
void Open(fuse_req_t, fuse_ino_t, fuse_file_info*);
void Flush(fuse_req_t, fuse_ino_t, fuse_file_info*);
void Release(fuse_req_t, fuse_ino_t, fuse_file_info*);

void Read(fuse_req_t, fuse_ino_t, size_t, off_t, fuse_file_info*);
void WriteBuf(fuse_req_t, fuse_ino_t, fuse_bufvec*, off_t, fuse_file_info*);
void Fsync(fuse_req_t, fuse_ino_t, int, fuse_file_info*);
void Fallocate(fuse_req_t, fuse_ino_t, int, off_t, off_t, fuse_file_info*);
void Lseek(fuse_req_t, fuse_ino_t, off_t, int, fuse_file_info*);

void Getattr(fuse_req_t, fuse_ino_t, fuse_file_info*);
void Statx(fuse_req_t, fuse_ino_t, int, int, fuse_file_info*);
void Setattr(fuse_req_t, fuse_ino_t, struct stat*, int, fuse_file_info*);
void Statfs(fuse_req_t, fuse_ino_t);
void Ioctl(fuse_req_t, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*, size_t,
           size_t);

void Opendir(fuse_req_t, fuse_ino_t, fuse_file_info*);
void Readdir(fuse_req_t, fuse_ino_t, size_t, off_t, fuse_file_info*);
void Readdirplus(fuse_req_t, fuse_ino_t, size_t, off_t, fuse_file_info*);
void Releasedir(fuse_req_t, fuse_ino_t, fuse_file_info*);
void Fsyncdir(fuse_req_t, fuse_ino_t, int, fuse_file_info*);

void Setxattr(fuse_req_t, fuse_ino_t, const char*, const char*, size_t, int);
void Getxattr(fuse_req_t, fuse_ino_t, const char*, size_t);
void Listxattr(fuse_req_t, fuse_ino_t, size_t);
void Removexattr(fuse_req_t, fuse_ino_t, const char*);
}  // namespace ops

}  // namespace prefixfs
