// getattr, setattr, statfs, ioctl
#include <sys/stat.h>

#include "fs/filesystem.h"

namespace prefixfs::ops {
namespace {

// A node without an inode behind it has been replaced: ESTALE makes the kernel look its name up
// again.
int ErrnoOfNode(const Status& status) {
  return status.Is(Code::kNotFound) ? ESTALE : ErrnoOf(status);
}

void ReplyAttributes(Request request, const Result<Entry>& entry) {
  if (!entry.ok()) {
    request.Error(ErrnoOfNode(entry.status()));
    return;
  }
  struct stat st = ToStat(entry->inode);
  st.st_nlink = entry->links;
  request.With([&](fuse_req_t req) { return fuse_reply_attr(req, &st, entry->attr_timeout_s); });
}

const Handle* HandleOf(const fuse_file_info* fi) {
  const OpenFile* open = OpenFileOf(fi);
  return open == nullptr ? nullptr : open->handle.get();
}

const Handle* HandleOf(const std::shared_ptr<Filesystem::Use>& use) {
  return use == nullptr ? nullptr : &use->handle();
}

// The attributes of a node, to `reply` (Request, entry): at once, or when a rename that is under
// way has come to its end.
template <typename Reply>
void GetAttributes(Filesystem& fs, Request request, fuse_ino_t ino, const fuse_file_info* fi,
                   Reply reply) {
  const Result<Entry> entry = Control::Owns(ino)
                                  ? fs.control().Attributes(ino)
                                  : fs.cache().GetAttributes(ino, HandleOf(fi), false);
  if (!entry.status().Is(Code::kRejected)) {
    reply(std::move(request), entry);
    return;
  }
  fs.Defer(std::move(request), Queue::kNames, fs.LateChange(),
           [&fs, ino, use = fs.UseOf(fi), reply](Deferred& deferred) mutable {
             const Result<Entry> late = fs.cache().GetAttributes(ino, HandleOf(use), true);
             use.reset();
             if (auto answered = deferred.Take()) reply(std::move(*answered), late);
           });
}

struct statx ToStatx(const Entry& entry) {
  const Inode& inode = entry.inode;
  struct statx stx {};
  stx.stx_mask = STATX_BASIC_STATS | STATX_BTIME;
  stx.stx_blksize = 4096;
  stx.stx_nlink = entry.links;
  stx.stx_uid = inode.uid;
  stx.stx_gid = inode.gid;
  stx.stx_mode = static_cast<uint16_t>(inode.mode);
  stx.stx_ino = inode.ino;
  stx.stx_size = inode.size;
  stx.stx_blocks = inode.allocated / 512;
  auto set = [](statx_timestamp& to, int64_t ns) {
    const timespec time = ToTimespec(ns);
    to.tv_sec = time.tv_sec;
    to.tv_nsec = static_cast<uint32_t>(time.tv_nsec);
  };
  set(stx.stx_atime, inode.atime_ns);
  set(stx.stx_btime, inode.btime_ns);
  set(stx.stx_ctime, inode.ctime_ns);
  set(stx.stx_mtime, inode.mtime_ns);
  return stx;
}

void ReplyStatx(Request request, const Result<Entry>& entry) {
  if (!entry.ok()) {
    request.Error(ErrnoOfNode(entry.status()));
    return;
  }
  struct statx stx = ToStatx(*entry);
  request.With([&](fuse_req_t r) { return fuse_reply_statx(r, 0, &stx, entry->attr_timeout_s); });
}

AttributeChange ToChange(const struct stat& st, int to_set) {
  AttributeChange change;
  const int64_t now = Clock::Real().WallNs();
  if (to_set & FUSE_SET_ATTR_MODE) change.mode = st.st_mode;
  if (to_set & FUSE_SET_ATTR_UID) change.uid = st.st_uid;
  if (to_set & FUSE_SET_ATTR_GID) change.gid = st.st_gid;
  if (to_set & FUSE_SET_ATTR_SIZE) change.size = static_cast<uint64_t>(st.st_size);
  if (to_set & FUSE_SET_ATTR_ATIME)
    change.atime_ns = to_set & FUSE_SET_ATTR_ATIME_NOW ? now : ToNs(st.st_atim);
  if (to_set & FUSE_SET_ATTR_MTIME)
    change.mtime_ns = to_set & FUSE_SET_ATTR_MTIME_NOW ? now : ToNs(st.st_mtim);
  change.kill_set_id = (to_set & FUSE_SET_ATTR_KILL_SUID) != 0;
  change.touch = (to_set & FUSE_SET_ATTR_ATIME_NOW) && !change.mtime_ns && !change.size &&
                 !change.mode && !change.uid && !change.gid;
  return change;
}

}  // namespace

void Getattr(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kGetattr, ino);
  GetAttributes(fs, std::move(request), ino, fi, ReplyAttributes);
}

// Asked for where a client wants the time of birth, which is all that it adds.
void Statx(fuse_req_t req, fuse_ino_t ino, int, int, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kStatx, ino);
  GetAttributes(fs, std::move(request), ino, fi, ReplyStatx);
}

void Setattr(fuse_req_t req, fuse_ino_t ino, struct stat* st, int to_set, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kSetattr, ino);
  if (Control::Owns(ino)) {
    request.Error(EPERM);
    return;
  }
  const AttributeChange change = ToChange(*st, to_set);
  const Caller caller = fs.CallerOf(req);
  const bool space = change.size.has_value();
  fs.Defer(std::move(request), space ? Queue::kSpace : Queue::kNames, fs.LateChange(),
           [&fs, ino, use = fs.UseOf(fi), change, caller](Deferred& deferred) mutable {
             const Result<Entry> entry =
                 fs.cache().SetAttributes(ino, HandleOf(use), change, caller, true);
             use.reset();
             if (auto answered = deferred.Take()) ReplyAttributes(std::move(*answered), entry);
           });
}

void Statfs(fuse_req_t req, fuse_ino_t ino) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kStatfs, ino);
  const struct statvfs status = fs.cache().FileSystemStatus();
  request.With([&](fuse_req_t r) { return fuse_reply_statfs(r, &status); });
}

// stdio and Python ask every file whether it is a terminal.
void Ioctl(fuse_req_t req, fuse_ino_t ino, unsigned, void*, fuse_file_info*, unsigned, const void*,
           size_t, size_t) {
  FilesystemOf(req).Begin(req, Op::kIoctl, ino).Error(ENOTTY);
}

}  // namespace prefixfs::ops
