// Filesystem: FUSE requests in, cache calls out. One file per group of operations (ops_*.cc); no
// decision about blocks is taken here.
//
// Threads: libfuse calls the operations from its loop threads; whatever may wait is handed to the
// workers, which reply.
#pragma once

#include <fuse_lowlevel.h>

#include <atomic>
#include <memory>
#include <string>

#include "cache/base/worker_pool.h"
#include "cache/cache.h"
#include "fs/control.h"
#include "fs/nodes.h"
#include "fs/op_stats.h"
#include "fs/request.h"

namespace prefixfs {

// What fi->fh points to for files.
struct OpenFile {
  HandlePtr handle;
  bool passthrough = false;
  bool cached_writes = false;  // opened with O_DIRECT, but its writes go through the page cache
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
    workers_.reset();
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
  Request Begin(fuse_req_t req, Op op) {
    if (want_ring_ && fuse_req_is_uring(req)) control_.SeenRing();
    return Request(req, op, stats_);
  }
  // Runs `work` on a worker, or on this thread if the queue is full.
  void Defer(std::function<void()> work);
  // The same for what waits for a drive only, and must not stand behind what waits for space.
  void DeferData(std::function<void()> work);
  void Init(fuse_conn_info* connection);
  // Decides how the handle is served and fills fi.
  Status Serve(fuse_req_t req, const Caller& caller, HandlePtr handle, fuse_file_info* fi);
  void Unserve(fuse_file_info* fi);

  void OnGone(Ino ino) override { nodes_.Drop(ino); }
  void OnInvalid(Ino parent, const std::string& name) override;

 private:
  void CloseBacking(int id);

  Cache& cache_;
  OpStats stats_;
  Nodes nodes_;
  Control control_;
  fuse_session* session_ = nullptr;
  std::function<void()> on_init_;
  bool want_ring_ = false;
  std::atomic<bool> passthrough_{false};
  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<WorkerPool> data_workers_;
  std::unique_ptr<WorkerPool> notifier_;  // one thread: the kernel may hold a notice back
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
