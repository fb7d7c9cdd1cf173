#include "cache/process.h"

#include <fcntl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cache/base/fd.h"

namespace prefixfs {
namespace {

constexpr uint64_t kPfSignaled = 0x400;  // include/linux/sched.h: killed by a signal

Fd OpenProc(pid_t id, const char* file) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/%s", id, file);
  return Fd(::open(path, O_RDONLY | O_CLOEXEC));
}

// Reads a file of /proc in one call; returns what fits.
std::string_view ReadProc(pid_t id, const char* file, char* buffer, size_t size) {
  const Fd fd = OpenProc(id, file);
  if (!fd.valid()) return {};
  const ssize_t got = ::read(fd.get(), buffer, size);
  return got > 0 ? std::string_view(buffer, static_cast<size_t>(got)) : std::string_view();
}

struct Stat {
  bool found = false;
  pid_t parent = 0;
  uint64_t flags = 0;
  uint64_t start = 0;
};

// Fields 4, 9 and 22 of /proc/<id>/stat; the command before them may hold any character but ends at
// the last ')'.
Stat ReadStat(pid_t id) {
  char buffer[1024];
  std::string_view text = ReadProc(id, "stat", buffer, sizeof buffer - 1);
  const size_t end = text.rfind(')');
  if (end == std::string_view::npos) return {};
  buffer[text.size()] = '\0';
  Stat stat;
  int field = 3;
  for (char* at = buffer + end + 1; field <= 22; ++field) {
    while (*at == ' ') ++at;
    if (*at == '\0') return {};
    if (field == 4) stat.parent = static_cast<pid_t>(std::strtol(at, nullptr, 10));
    if (field == 9) stat.flags = std::strtoull(at, nullptr, 10);
    if (field == 22) stat.start = std::strtoull(at, nullptr, 10);
    while (*at != ' ' && *at != '\0') ++at;
  }
  stat.found = true;
  return stat;
}

pid_t ReadTgid(pid_t tid) {
  char buffer[4096];
  std::string_view text = ReadProc(tid, "status", buffer, sizeof buffer - 1);
  const size_t at = text.find("\nTgid:");
  if (at == std::string_view::npos) return 0;
  buffer[text.size()] = '\0';
  return static_cast<pid_t>(std::strtol(buffer + at + 6, nullptr, 10));
}

}  // namespace

// The process of a thread that called before, is alive, and is not about to exit.
std::optional<ProcessId> Processes::Recall(pid_t tid) {
  Known known;
  {
    MutexLock lock(mutex_);
    auto it = known_.find(tid);
    if (it == known_.end()) return std::nullopt;
    known = it->second;
  }
  char pages[2];
  const ssize_t got = ::pread(known.statm->get(), pages, sizeof pages, 0);
  if (got == sizeof pages && pages[0] != '0') return known.process;
  MutexLock lock(mutex_);
  if (auto it = known_.find(tid); it != known_.end() && it->second.statm == known.statm)
    known_.erase(it);
  return std::nullopt;
}

Processes::Thread Processes::Look(pid_t tid) {
  if (tid == 0) return {};
  if (const auto process = Recall(tid)) return {*process, false};
  // Before anything is read: if the id changes hands in between, the descriptor is of the thread
  // that is gone, and will say so.
  auto statm = std::make_shared<Fd>(OpenProc(tid, "statm"));
  const Stat thread = ReadStat(tid);
  if (!thread.found) return {{tid, 0}, false};
  const bool signaled = (thread.flags & kPfSignaled) != 0;
  const pid_t tgid = ReadTgid(tid);
  const Stat leader = tgid == tid ? thread : ReadStat(tgid);
  const ProcessId process{tgid, leader.start};
  if (statm->valid()) {
    MutexLock lock(mutex_);
    if (known_.size() >= kMaxKnown) known_.clear();
    known_.insert_or_assign(tid, Known{std::move(statm), process});
  }
  return {process, signaled};
}

bool Processes::Descends(ProcessId child, ProcessId ancestor) {
  if (child == ancestor) return true;
  pid_t id = child.tgid;
  for (int generation = 0; generation < 64 && id > 1; ++generation) {
    const Stat stat = ReadStat(id);
    if (!stat.found) return false;
    if (id == ancestor.tgid) return stat.start == ancestor.start;
    id = stat.parent;
  }
  return false;
}

}  // namespace prefixfs
