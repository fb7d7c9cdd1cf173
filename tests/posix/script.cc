#include "tests/posix/script.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <functional>

#include "cache/base/fd.h"
#include "tests/support/fail.h"

namespace prefixfs::posix {
namespace {

using support::Check;
using support::Sys;

constexpr unsigned kChildSeconds = 30;

void WriteFully(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = write(fd, bytes.data(), bytes.size());
    if (done <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(done));
  }
}

std::string ReadToEnd(int fd) {
  std::string all;
  char piece[65536];
  for (;;) {
    const ssize_t got = read(fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return all;
    all.append(piece, static_cast<size_t>(got));
  }
}

// How a child's lines come back: call NUL answer NUL.
std::string Packed(const Transcript& lines) {
  std::string bytes;
  for (const Line& line : lines) {
    bytes.append(line.call).push_back('\0');
    bytes.append(line.answer).push_back('\0');
  }
  return bytes;
}

std::string TypeOf(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "file";
    case S_IFDIR:
      return "directory";
    case S_IFLNK:
      return "symlink";
    case S_IFIFO:
      return "fifo";
    case S_IFSOCK:
      return "socket";
    default:
      return "other";
  }
}

std::string Describe(const std::string& path, const struct stat& st) {
  char head[96];
  std::snprintf(head, sizeof head, "%s %04o %u:%u", TypeOf(st.st_mode).c_str(), st.st_mode & 07777u,
                st.st_uid, st.st_gid);
  std::string text = head;
  if (S_ISREG(st.st_mode)) text += " size " + std::to_string(st.st_size) + " " + Get(path.c_str());
  if (S_ISLNK(st.st_mode)) {
    char target[4096];
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    text += " -> " + (length < 0 ? Errno() : Digest({target, static_cast<size_t>(length)}));
  }
  return text;
}

}  // namespace

char* Nowhere() {
  static char* volatile address = reinterpret_cast<char*>(8);
  return address;
}

std::string Errno() {
  const char* name = strerrorname_np(errno);
  return name != nullptr ? name : std::to_string(errno);
}

std::string Digest(std::string_view bytes) {
  const bool printable =
      std::all_of(bytes.begin(), bytes.end(), [](unsigned char c) { return std::isprint(c) != 0; });
  if (printable && bytes.size() <= 64) return "'" + std::string(bytes) + "'";
  return std::to_string(bytes.size()) + " bytes #" +
         std::to_string(std::hash<std::string_view>()(bytes));
}

void Put(const char* path, std::string_view content) {
  const Fd fd(Sys(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), path));
  WriteFully(fd.get(), content);
}

std::string Get(const char* path) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return fd.valid() ? Digest(ReadToEnd(fd.get())) : Errno();
}

Script::~Script() {
  for (const int fd : descriptors_) close(fd);
}

void Script::Say(std::string_view call, std::string answer) {
  const std::string base(call);
  std::string name = base;
  const auto taken = [&](const Line& line) { return line.call == name; };
  for (int n = 2; std::any_of(lines_.begin(), lines_.end(), taken); ++n)
    name = base + " #" + std::to_string(n);
  lines_.push_back({std::move(name), std::move(answer)});
}

long Script::Call(std::string_view call, long result) {
  const int error = errno;
  Say(call, result == -1 ? Errno() : std::to_string(result));
  errno = error;
  return result;
}

int Script::Descriptor(std::string_view call, int fd) {
  const int error = errno;
  Say(call, fd < 0 ? Errno() : "opened");
  if (fd >= 0) descriptors_.push_back(fd);
  errno = error;
  return fd;
}

void Script::State(std::string_view when) { StateBelow(".", when); }

void Script::StateBelow(const std::string& path, std::string_view when) {
  std::vector<std::string> names;
  DIR* stream = opendir(path.c_str());
  if (stream == nullptr) return Say(std::string(when) + ": " + path, Errno());
  while (const dirent* entry = readdir(stream)) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      names.push_back(entry->d_name);
  }
  closedir(stream);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string below = path == "." ? name : path + "/" + name;
    struct stat st {};
    const bool there = lstat(below.c_str(), &st) == 0;
    Say(std::string(when) + ": " + Digest(below), there ? Describe(below, st) : Errno());
    if (there && S_ISDIR(st.st_mode)) StateBelow(below, when);
  }
}

void Script::InChild(const std::function<void(Script&)>& body) {
  int ends[2];
  Sys(pipe2(ends, O_CLOEXEC), "pipe2");
  fflush(nullptr);
  const pid_t pid = Sys(fork(), "fork");
  if (pid == 0) {
    alarm(kChildSeconds);
    close(ends[0]);
    Script inner;
    inner.lines_ = lines_;  // so that repeated calls are numbered on
    const size_t known = lines_.size();
    try {
      body(inner);
    } catch (const std::exception& failure) {
      inner.Say("child", failure.what());
    }
    WriteFully(ends[1],
               Packed({inner.lines_.begin() + static_cast<ptrdiff_t>(known), inner.lines_.end()}));
    _exit(0);
  }
  close(ends[1]);
  const std::string bytes = ReadToEnd(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  for (size_t at = 0; at < bytes.size();) {
    Line line;
    line.call = bytes.c_str() + at;
    at += line.call.size() + 1;
    line.answer = bytes.c_str() + at;
    at += line.answer.size() + 1;
    lines_.push_back(std::move(line));
  }
  if (WIFSIGNALED(status)) Say("child", std::string("killed by ") + sigabbrev_np(WTERMSIG(status)));
}

void Script::AsUser(uid_t uid, const std::function<void(Script&)>& body) {
  InChild([&](Script& inner) {
    Sys(setgroups(0, nullptr), "setgroups");
    Sys(setresgid(uid, uid, uid), "setresgid");
    Sys(setresuid(uid, uid, uid), "setresuid");
    umask(022);
    body(inner);
  });
}

}  // namespace prefixfs::posix
