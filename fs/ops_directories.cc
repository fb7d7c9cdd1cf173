// opendir, readdir, readdirplus, releasedir, fsyncdir
//
// An offset is the inode number of the entry before, shifted past those of "." and "..": stable
// while others come and go, and valid in any handle.
#include <algorithm>
#include <vector>

#include "fs/filesystem.h"

namespace prefixfs::ops {
namespace {

constexpr uint64_t kDotCookie = 1;
constexpr uint64_t kDotDotCookie = 2;
constexpr uint64_t kShift = 1;  // the root is 1 and nobody's child, so entries begin at 2 + kShift
constexpr size_t kMostAtOnce = 512;

// Entries of one reply, in the caller's buffer.
class Page {
 public:
  Page(fuse_req_t req, size_t size, bool plus) : req_(req), buffer_(size), plus_(plus) {}

  // False when the buffer is full.
  bool Add(const char* name, const Entry& entry, uint64_t cookie, bool settled = true) {
    char* at = buffer_.data() + used_;
    const size_t left = buffer_.size() - used_;
    size_t needed;
    if (plus_) {
      fuse_entry_param param = ToEntryParam(entry);
      // Without a number the kernel lists the name and looks it up when it is used.
      if (cookie <= kDotDotCookie || !settled) param.ino = 0;
      needed = fuse_add_direntry_plus(req_, at, left, name, &param, static_cast<off_t>(cookie));
    } else {
      const struct stat st = ToStat(entry.inode);
      needed = fuse_add_direntry(req_, at, left, name, &st, static_cast<off_t>(cookie));
    }
    if (needed > left) return false;
    used_ += needed;
    return true;
  }
  bool empty() const { return used_ == 0; }
  // About as many entries as still fit: the index reads no more than is replied. An entry has 24
  // bytes beside its name, 152 with attributes.
  size_t Expected() const {
    return std::min(kMostAtOnce, (buffer_.size() - used_) / (plus_ ? 192 : 64) + 1);
  }
  int Reply(fuse_req_t req) const { return fuse_reply_buf(req, buffer_.data(), used_); }

 private:
  fuse_req_t req_;
  std::vector<char> buffer_;
  bool plus_;
  size_t used_ = 0;
};

bool AddDots(Page& page, fuse_ino_t ino, uint64_t offset) {
  Entry dot;
  dot.inode.mode = S_IFDIR;
  dot.inode.ino = ino;
  if (offset < kDotCookie && !page.Add(".", dot, kDotCookie)) return false;
  return offset >= kDotDotCookie || page.Add("..", dot, kDotDotCookie);
}

// Fills the page with what follows `off`. kRejected, with the page as it was, if that takes a
// commit and this thread may not wait.
Status FillPage(Filesystem& fs, fuse_ino_t ino, off_t off, const Caller& caller, bool may_wait,
                Page* page) {
  auto cookie = static_cast<uint64_t>(off);
  bool room = AddDots(*page, ino, cookie);
  cookie = std::max(cookie, kDotDotCookie) - kShift;
  while (room) {
    const Result<std::vector<DirectoryEntry>> entries =
        Control::Owns(ino) ? fs.control().List(cookie)
                           : fs.cache().List(ino, cookie, page->Expected(), caller, may_wait);
    if (entries.status().Is(Code::kRejected)) return entries.status();
    if (!entries.ok()) return page->empty() ? entries.status() : Ok();
    if (entries->empty()) break;
    for (const DirectoryEntry& entry : *entries) {
      room = page->Add(entry.entry.inode.name.c_str(), entry.entry, entry.cookie + kShift,
                       entry.settled);
      if (!room) break;
      cookie = entry.cookie;
    }
  }
  return Ok();
}

void ReplyPage(Request request, const Status& status, const Page& page) {
  if (!status.ok()) {
    request.Fail(status);
    return;
  }
  request.With([&](fuse_req_t r) { return page.Reply(r); });
}

void List(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, plus ? Op::kReaddirplus : Op::kReaddir, ino);
  const Caller caller = fs.CallerOf(req);
  Page page(req, size, plus);
  const Status filled = FillPage(fs, ino, off, caller, false, &page);
  if (!filled.Is(Code::kRejected)) {
    ReplyPage(std::move(request), filled, page);
    return;
  }
  fs.Defer(std::move(request), Queue::kNames, fs.LateChange(),
           [&fs, req, ino, size, off, plus, caller](Deferred& deferred) {
             Page again(req, size, plus);
             const Status status = FillPage(fs, ino, off, caller, true, &again);
             if (auto answered = deferred.Take()) ReplyPage(std::move(*answered), status, again);
           });
}

}  // namespace

void Opendir(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Filesystem& fs = FilesystemOf(req);
  Request request = fs.Begin(req, Op::kOpendir, ino);
  request.With([&](fuse_req_t r) { return fuse_reply_open(r, fi); });
}

void Readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, fuse_file_info*) {
  List(req, ino, size, off, false);
}

void Readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, fuse_file_info*) {
  List(req, ino, size, off, true);
}

void Releasedir(fuse_req_t req, fuse_ino_t ino, fuse_file_info*) {
  FilesystemOf(req).Begin(req, Op::kReleasedir, ino).Error(0);
}

// Names are durable against the death of the daemon when the call that made them returns, and KV
// blocks are not worth more; see docs/GUARANTEES.md.
void Fsyncdir(fuse_req_t req, fuse_ino_t ino, int, fuse_file_info*) {
  FilesystemOf(req).Begin(req, Op::kFsyncdir, ino).Error(0);
}

}  // namespace prefixfs::ops
