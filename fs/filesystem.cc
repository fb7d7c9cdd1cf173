#include "fs/filesystem.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "cache/base/memory.h"

namespace prefixfs {
namespace {
// linux/fuse.h of kernel 6.9, which older headers lack.
constexpr unsigned long kBackingClose = _IOW(229, 2, uint32_t);
constexpr size_t kMaxDeferred = 4096;
constexpr size_t kMaxNotices = 1024;
// With the threads that a pool gets while all of its own wait for a drive that does not answer.
constexpr size_t kMostWorkers = 64;
constexpr int64_t kPatienceMs = 50;
constexpr size_t kMaxDrops = 1 << 20;  // more than the kernel keeps
constexpr uint32_t kMaxBackground = 256;
// A block of the usual odd sizes fits, and of larger ones several requests are served at once.
constexpr uint32_t kMaxPages = 512;
constexpr uint32_t kPage = 4096;
constexpr char kPagesLimit[] = "/proc/sys/fs/fuse/max_pages_limit";

// What one request may carry, for which kernels from 6.13 on have a limit of the system's.
uint32_t PagesLimit() {
  std::ifstream file(kPagesLimit);
  uint32_t pages = 0;
  return file >> pages ? pages : 256;
}

// An operation as libfuse may call it: no exception goes up into C. A request that runs out of
// memory is answered ENOMEM by its Request.
template <auto kOperation>
struct Guarded;
template <typename... Args, void (*kOperation)(fuse_req_t, Args...)>
struct Guarded<kOperation> {
  static void Call(fuse_req_t req, Args... args) {
    (void)SurvivesNoMemory([&] { kOperation(req, args...); });
  }
};

std::unique_ptr<WorkerPool> MakeWorkers(const Config& config) {
  return std::make_unique<WorkerPool>(config.max_workers, kMaxDeferred, kMostWorkers);
}
}  // namespace

Filesystem::Filesystem(Cache& cache, const std::string& mount_point)
    : cache_(cache),
      dropper_(std::make_unique<WorkerPool>(1, kMaxDrops)),
      nodes_(cache.config().max_backing, [this](int id) { CloseBacking(id); }),
      control_(cache, stats_, nodes_, requests_, mount_point),
      workers_(MakeWorkers(cache.config())),
      name_workers_(MakeWorkers(cache.config())),
      data_workers_(MakeWorkers(cache.config())),
      notifier_(std::make_unique<WorkerPool>(1, kMaxNotices)),
      watch_(requests_, cache.counters(), cache.config().request_limit_ms,
             {[this] {
                for (const Queue queue : {Queue::kSpace, Queue::kNames, Queue::kData})
                  PoolOf(queue)->Relieve(kPatienceMs);
              },
              [this](const Requests::Request& request) { return Describe(request); }}) {
  cache_.SetListener(this);
}

Filesystem::~Filesystem() {
  Drain();
  cache_.SetListener(nullptr);
  notifier_.reset();
  dropper_.reset();
}

void Filesystem::Attach(fuse_session* session, std::function<void()> on_init) {
  session_ = session;
  on_init_ = std::move(on_init);
}

void Filesystem::Init(fuse_conn_info* connection) {
  const Toggle wanted = cache_.config().passthrough;
  if (wanted != Toggle::kOff) {
    const bool got = fuse_set_feature_flag(connection, FUSE_CAP_PASSTHROUGH);
    if (got) connection->max_backing_stack_depth = 1;
    passthrough_.store(got, std::memory_order_relaxed);
    if (!got)
      spdlog::warn(
          "this kernel has no FUSE passthrough (needs 6.9): the daemon serves all data itself");
  }
  control_.SetPassthrough(passthrough());
  if (want_ring_) fuse_set_feature_flag(connection, FUSE_CAP_OVER_IO_URING);
  // O_TRUNC must come with OPEN: a truncated sealed block is a new version, decided there.
  fuse_set_feature_flag(connection, FUSE_CAP_ATOMIC_O_TRUNC);
  fuse_set_feature_flag(connection, FUSE_CAP_READDIRPLUS);
  fuse_set_feature_flag(connection, FUSE_CAP_READDIRPLUS_AUTO);
  // Otherwise the kernel asks for security.capability before every single write.
  fuse_set_feature_flag(connection, FUSE_CAP_HANDLE_KILLPRIV_V2);
  // Requests are read, not spliced: that costs every small one two system calls more, and a write's
  // bytes lie where O_DIRECT can take them. Replies may be spliced.
  fuse_unset_feature_flag(connection, FUSE_CAP_SPLICE_READ);
  fuse_set_feature_flag(connection, FUSE_CAP_SPLICE_WRITE);
  fuse_set_feature_flag(connection, FUSE_CAP_SPLICE_MOVE);
  // A FLUSH must reach the daemon before close() returns, and dirty pages before that: no writeback
  // cache.
  fuse_unset_feature_flag(connection, FUSE_CAP_WRITEBACK_CACHE);
  // A large read of O_DIRECT comes as several requests at once.
  fuse_set_feature_flag(connection, FUSE_CAP_ASYNC_DIO);
  connection->max_background = kMaxBackground;
  connection->congestion_threshold = kMaxBackground / 4 * 3;
  connection->max_write = std::min(PagesLimit(), kMaxPages) * kPage;
  connection->max_readahead = connection->max_write;
  connection->time_gran = 1;
  connection->no_interrupt = 1;
  if (on_init_) on_init_();
}

Caller Filesystem::CallerOf(fuse_req_t req) {
  const fuse_ctx* context = fuse_req_ctx(req);
  return cache_.MakeCaller(context->pid, context->uid, context->gid);
}

std::unique_ptr<WorkerPool>& Filesystem::PoolOf(Queue queue) {
  if (queue == Queue::kSpace) return workers_;
  return queue == Queue::kNames ? name_workers_ : data_workers_;
}

void Filesystem::Defer(Request request, Queue queue, Late late,
                       std::function<void(Deferred&)> work) {
  auto deferred = std::make_shared<Deferred>(std::move(request), late.error, watch_);
  if (deferred->mark() != nullptr) deferred->mark()->Set(Wait::kWorker);
  const auto run = [deferred, work = std::move(work)] {
    const WorksFor works(deferred->mark());
    if (deferred->mark() != nullptr) deferred->mark()->Set(Wait::kNothing);
    work(*deferred);
  };
  if (late.after_ms > 0)
    watch_.Add(*deferred, Clock::Real().MonotonicNs() + late.after_ms * kNsPerMs);
  if (PoolOf(queue)->Submit(run).ok()) return;
  if (late.after_ms == 0) return run();
  if (auto unanswered = deferred->Take()) unanswered->Error(late.error);
}

std::string Filesystem::Describe(const Requests::Request& request) {
  return control_.Describe(request);
}

// Closing the last descriptor of a file that was written, or removed, may take work of its drive.
void Filesystem::CloseBacking(int id) {
  const auto close = [this, id] {
    auto backing = static_cast<uint32_t>(id);
    if (session_ != nullptr) (void)::ioctl(fuse_session_fd(session_), kBackingClose, &backing);
  };
  if (!dropper_->Submit(close).ok()) close();
}

void Filesystem::OnInvalid(Ino parent, const std::string& name) {
  const Status queued = notifier_->Submit([this, parent, name] {
    if (session_ != nullptr)
      (void)fuse_lowlevel_notify_inval_entry(session_, parent, name.c_str(), name.size());
  });
  // The kernel's copy of the answer runs out by itself in half a lease.
  if (!queued.ok()) spdlog::debug("too many notices; {} runs out by itself", name);
}

Status Filesystem::Serve(fuse_req_t req, const Caller& caller, HandlePtr handle,
                         fuse_file_info* fi) {
  const Ino ino = handle->file->ino;
  const bool writer = handle->writer;
  const bool allowed = passthrough() && cache_.PassthroughAllowed(*handle);
  Status failed = Ok();
  auto make_id = [&] {
    Result<int> fd = cache_.DataFd(*handle);
    if (!fd.ok()) {
      failed = fd.status();
      return Nodes::kServed;
    }
    const int id = fuse_passthrough_open(req, *fd);
    return id > 0 ? id : Nodes::kServed;
  };
  const int id = nodes_.Acquire(ino, allowed, writer, make_id);
  // Served by the daemon: the promise of open is kept by having the descriptor now.
  if (failed.ok() && id == Nodes::kServed) failed = cache_.DataFd(*handle).status();
  if (!failed.ok()) {
    nodes_.Release(ino);
    cache_.Release(std::move(handle));
    return failed;
  }
  fi->backing_id = id;
  Cache::DirectWay direct;
  if ((fi->flags & O_DIRECT) != 0) {
    direct = cache_.ChooseDirect(*handle, fi->flags, caller, id != Nodes::kServed);
    // With a backing id and direct_io the reads and writes of this one handle come to the daemon,
    // while its mappings, and all of other handles, stay with the backing file.
    fi->direct_io = id != Nodes::kServed && !direct.native ? 1 : 0;
    fi->parallel_direct_writes = fi->direct_io;
  }
  fi->noflush = writer ? 0 : 1;
  fi->keep_cache = id == Nodes::kServed && !writer ? 1 : 0;
  auto open = std::make_unique<OpenFile>();
  open->passthrough = id != Nodes::kServed;
  open->cached_writes = direct.page_cache;
  open->handle = std::move(handle);
  fi->fh = reinterpret_cast<uint64_t>(open.release());
  return Ok();
}

std::shared_ptr<Filesystem::Use> Filesystem::UseOf(const fuse_file_info* fi) {
  OpenFile* open = OpenFileOf(fi);
  return open == nullptr ? nullptr : std::make_shared<Use>(*this, open);
}

HandlePtr Filesystem::Unserve(OpenFile* served) {
  std::unique_ptr<OpenFile> open(served);
  nodes_.Release(open->handle->file->ino);
  return std::move(open->handle);
}

struct stat ToStat(const Inode& inode) {
  struct stat st {};
  st.st_ino = inode.ino;
  st.st_mode = inode.mode;
  st.st_nlink = 1;
  st.st_uid = inode.uid;
  st.st_gid = inode.gid;
  st.st_size = static_cast<off_t>(inode.size);
  st.st_blocks = static_cast<blkcnt_t>(inode.allocated / 512);
  st.st_blksize = 4096;
  st.st_atim = ToTimespec(inode.atime_ns);
  st.st_mtim = ToTimespec(inode.mtime_ns);
  st.st_ctim = ToTimespec(inode.ctime_ns);
  return st;
}

fuse_entry_param ToEntryParam(const Entry& entry) {
  fuse_entry_param param{};
  param.ino = entry.inode.ino;
  param.attr = ToStat(entry.inode);
  param.attr.st_nlink = entry.links;
  param.attr_timeout = entry.attr_timeout_s;
  param.entry_timeout = entry.entry_timeout_s;
  return param;
}

int64_t ToNs(const timespec& time) { return time.tv_sec * kNsPerSecond + time.tv_nsec; }

const fuse_lowlevel_ops& Filesystem::Operations() {
  static const fuse_lowlevel_ops operations = [] {
    fuse_lowlevel_ops o{};
    o.init = [](void* data, fuse_conn_info* connection) {
      static_cast<Filesystem*>(data)->Init(connection);
    };
    o.lookup = Guarded<ops::Lookup>::Call;
    o.forget = Guarded<ops::Forget>::Call;
    o.forget_multi = Guarded<ops::ForgetMulti>::Call;
    o.mknod = Guarded<ops::Mknod>::Call;
    o.mkdir = Guarded<ops::Mkdir>::Call;
    o.symlink = Guarded<ops::Symlink>::Call;
    o.readlink = Guarded<ops::Readlink>::Call;
    o.unlink = Guarded<ops::Unlink>::Call;
    o.rmdir = Guarded<ops::Rmdir>::Call;
    o.rename = Guarded<ops::Rename>::Call;
    o.link = Guarded<ops::Link>::Call;
    o.create = Guarded<ops::Create>::Call;
    o.tmpfile = Guarded<ops::Tmpfile>::Call;
    o.open = Guarded<ops::Open>::Call;
    o.flush = Guarded<ops::Flush>::Call;
    o.release = Guarded<ops::Release>::Call;
    o.read = Guarded<ops::Read>::Call;
    o.write_buf = Guarded<ops::WriteBuf>::Call;
    o.fsync = Guarded<ops::Fsync>::Call;
    o.fallocate = Guarded<ops::Fallocate>::Call;
    o.lseek = Guarded<ops::Lseek>::Call;
    o.getattr = Guarded<ops::Getattr>::Call;
    o.statx = Guarded<ops::Statx>::Call;
    o.setattr = Guarded<ops::Setattr>::Call;
    o.statfs = Guarded<ops::Statfs>::Call;
    o.ioctl = Guarded<ops::Ioctl>::Call;
    o.opendir = Guarded<ops::Opendir>::Call;
    o.readdir = Guarded<ops::Readdir>::Call;
    o.readdirplus = Guarded<ops::Readdirplus>::Call;
    o.releasedir = Guarded<ops::Releasedir>::Call;
    o.fsyncdir = Guarded<ops::Fsyncdir>::Call;
    o.setxattr = Guarded<ops::Setxattr>::Call;
    o.getxattr = Guarded<ops::Getxattr>::Call;
    o.listxattr = Guarded<ops::Listxattr>::Call;
    o.removexattr = Guarded<ops::Removexattr>::Call;
    return o;
  }();
  return operations;
}

}  // namespace prefixfs
