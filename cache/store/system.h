// The system calls that Drive is made of, each relative to a directory descriptor and never
// following a symlink in the last component. Private to cache/store.
//
// Threads: every call from any thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "cache/base/fd.h"
#include "cache/base/status.h"

namespace prefixfs {

constexpr char kHeaderXattr[] = "trusted.prefixfs";
constexpr mode_t kDirectoryMode = 0711;  // names inside are unguessable, listing them is root's
constexpr mode_t kFileMode = 0600;

// Status::FromErrno, but for errors that concern one file and must not pass for a failed device: no
// such xattr is kNotFound, a symlink where a file was expected is kCorrupt, a clone between
// filesystems is kUnsupported.
Status Failure(int error, std::string_view what);

// openat with O_CLOEXEC | O_NOFOLLOW.
Result<Fd> OpenAt(int dir, const std::string& name, int flags, mode_t mode = 0);
// The same if the kernel has all in memory that it takes, else an error.
Result<Fd> OpenCachedAt(int dir, const std::string& name, int flags);
// mkdirat with kDirectoryMode whatever the umask; kOk if a directory was there.
Status MakeDirectoryAt(int dir, const std::string& name);
// Makes the directory `path` and its parents, as `mkdir -p`.
Status MakePath(const std::string& path);
// kOk also if the file was gone already.
Status UnlinkAt(int dir, const std::string& name);
// The whole file, which must be regular and no longer than `max` bytes (kCorrupt otherwise).
Result<std::string> ReadAll(int fd, size_t max);
Status WriteAll(int fd, std::string_view bytes);

// Calls `visit` for every entry but . and .. until it returns an error, which is then the result.
Status ForEachEntry(int dir, const std::function<Status(const std::string& name)>& visit);

// A detached, read-only clone of the mount at `dir`, as a directory descriptor. An invalid Fd where
// the kernel or our privileges do not allow it.
Fd CloneReadOnly(int dir);

// Who holds a flock on the file or directory behind one of `fds`, for messages: "process 12
// (prefixfsd)". The kernel is asked first; `pid_file`, the text of DIR/daemon.pid, stands in if it
// does not say.
std::string DescribeLockHolder(std::initializer_list<int> fds, std::string_view pid_file);

}  // namespace prefixfs
