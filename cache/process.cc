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

// Reads a file of /proc in one call; returns what fits.
std::string_view ReadProc(pid_t id, const char* file, char* buffer, size_t size) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/%s", id, file);
  Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
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

ProcessId Processes::Of(pid_t tid) {
  if (tid == 0) return {};
  const Stat thread = ReadStat(tid);
  if (!thread.found) return {tid, 0};
  const Key key{tid, thread.start};
  {
    MutexLock lock(mutex_);
    if (auto it = known_.find(key); it != known_.end()) return it->second;
  }
  const pid_t tgid = ReadTgid(tid);
  const Stat leader = tgid == tid ? thread : ReadStat(tgid);
  const ProcessId process{tgid, leader.start};
  MutexLock lock(mutex_);
  if (known_.size() >= kMaxKnown) known_.clear();
  known_.emplace(key, process);
  return process;
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

bool Processes::TookFatalSignal(pid_t tid) {
  const Stat stat = ReadStat(tid);
  return stat.found && (stat.flags & kPfSignaled) != 0;
}

}  // namespace prefixfs
