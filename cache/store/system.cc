#include "cache/store/system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>

namespace prefixfs {

Status Failure(int error, std::string_view what) {
  switch (error) {
    case ENODATA:
      return Status(Code::kNotFound, std::string(what) + ": no such attribute");
    case ELOOP:
      return Status(Code::kCorrupt, std::string(what) + ": is a symbolic link");
    case EXDEV:
      return Status(Code::kUnsupported, std::string(what) + ": on another filesystem");
    case E2BIG:
      return Status(Code::kTooLong, std::string(what) + ": too long");
    default:
      return Status::FromErrno(error, what);
  }
}

Result<Fd> OpenAt(int dir, const std::string& name, int flags, mode_t mode) {
  Fd fd(openat(dir, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd.valid()) return Failure(errno, "open " + name);
  return fd;
}

Result<Fd> OpenCachedAt(int dir, const std::string& name, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC | O_NOFOLLOW);
  how.resolve = RESOLVE_CACHED;
  Fd fd(static_cast<int>(syscall(SYS_openat2, dir, name.c_str(), &how, sizeof how)));
  if (!fd.valid()) return Failure(errno, "open " + name);
  return fd;
}

Status MakeDirectoryAt(int dir, const std::string& name) {
  if (mkdirat(dir, name.c_str(), kDirectoryMode) == 0) {
    if (fchmodat(dir, name.c_str(), kDirectoryMode, 0) == 0) return Ok();
    return Failure(errno, "chmod " + name);
  }
  if (errno != EEXIST) return Failure(errno, "mkdir " + name);
  struct stat st;
  if (fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return Failure(errno, "stat " + name);
  }
  if (!S_ISDIR(st.st_mode)) return Status(Code::kNotDirectory, name + " is not a directory");
  return Ok();
}

Status MakePath(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const bool last = slash == std::string::npos;
    if (mkdir(part.c_str(), last ? kDirectoryMode : 0755) != 0 && errno != EEXIST) {
      return Failure(errno, "mkdir " + part);
    }
    if (last) return Ok();
  }
}

Status UnlinkAt(int dir, const std::string& name) {
  if (unlinkat(dir, name.c_str(), 0) == 0 || errno == ENOENT) return Ok();
  return Failure(errno, "unlink " + name);
}

Result<std::string> ReadAll(int fd, size_t max) {
  struct stat st;
  if (fstat(fd, &st) != 0) return Failure(errno, "stat");
  if (!S_ISREG(st.st_mode)) return Status(Code::kCorrupt, "not a regular file");
  if (static_cast<uint64_t>(st.st_size) > max) return Status(Code::kCorrupt, "too long");
  std::string bytes(static_cast<size_t>(st.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failure(errno, "read");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

Status WriteAll(int fd, std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failure(errno, "write");
    done += static_cast<size_t>(n);
  }
  return Ok();
}

Status ForEachEntry(int dir, const std::function<Status(const std::string& name)>& visit) {
  Fd own(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own.valid()) return Failure(errno, "open directory");
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(own.get()), closedir);
  if (!stream) return Failure(errno, "open directory");
  (void)own.Release();  // the stream's now
  for (;;) {
    errno = 0;
    const struct dirent* entry = readdir(stream.get());
    if (!entry) return errno == 0 ? Ok() : Failure(errno, "read directory");
    const std::string name(entry->d_name);
    if (name != "." && name != "..") PFS_TRY(visit(name));
  }
}

Fd CloneReadOnly(int dir) {
  // Raw system calls, because <sys/mount.h> has wrappers only from glibc 2.36 on and clashes with
  // <linux/mount.h>.
  Fd tree(static_cast<int>(
      syscall(SYS_open_tree, dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)));
  if (!tree.valid()) return Fd();
  struct mount_attr attributes = {};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  if (syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) !=
      0) {
    return Fd();
  }
  return tree;
}

namespace {

// The process that /proc/locks shows as the holder of a flock on `fd`'s file, or 0.
pid_t LockHolder(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return 0;
  char want[64];
  std::snprintf(want, sizeof want, "%02x:%02x:%llu", major(st.st_dev), minor(st.st_dev),
                static_cast<unsigned long long>(st.st_ino));
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    char kind[16], mode[16], access[16], file[64];
    long pid = 0;
    if (std::sscanf(line.c_str(), "%*s %15s %15s %15s %ld %63s", kind, mode, access, &pid, file) ==
            5 &&
        std::string_view(kind) == "FLOCK" && std::string_view(file) == want && pid > 0) {
      return static_cast<pid_t>(pid);
    }
  }
  return 0;
}

}  // namespace

std::string DescribeLockHolder(std::initializer_list<int> fds, std::string_view pid_file) {
  pid_t pid = 0;
  for (const int fd : fds) {
    if (pid == 0) pid = LockHolder(fd);
  }
  if (pid == 0) std::from_chars(pid_file.data(), pid_file.data() + pid_file.size(), pid);
  if (pid <= 0) return "another process";
  std::string text = "process " + std::to_string(pid);
  std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  if (std::getline(comm, name)) text += " (" + name + ")";
  return text;
}

}  // namespace prefixfs
