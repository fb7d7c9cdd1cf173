// Attributes: times, statx, sizes, statfs, extended attributes, ioctl.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "tests/posix/script.h"

namespace prefixfs::posix {
namespace {

std::string TimesOf(const char* path) {
  struct stat st {};
  if (lstat(path, &st) != 0) return Errno();
  const auto show = [](const timespec& time) {
    return time.tv_sec > 2'000'000'000 || time.tv_sec < 1'600'000'000
               ? std::to_string(time.tv_sec) + "." + std::to_string(time.tv_nsec)
               : std::string("now");
  };
  return show(st.st_atim) + " " + show(st.st_mtim);
}

void Times(Script& t) {
  Put("f", "content");
  DO(mkdir("d", 0755));
  DO(symlink("f", "link"));
  const timespec both[2] = {{1'000'000'001, 123'456'789}, {1'100'000'002, 987'654'321}};
  DO(utimensat(AT_FDCWD, "f", both, 0));
  SAY(TimesOf("f"));
  const timespec touch[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  DO(utimensat(AT_FDCWD, "f", touch, 0));
  SAY(TimesOf("f"));
  const timespec modified[2] = {{0, UTIME_OMIT}, {5, 6}};
  DO(utimensat(AT_FDCWD, "f", modified, 0));
  SAY(TimesOf("f"));
  const timespec neither[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
  DO(utimensat(AT_FDCWD, "f", neither, 0));
  DO(utimensat(AT_FDCWD, "absent", neither, 0));
  const timespec wrong[2] = {{0, 1'000'000'000}, {0, 0}};
  DO(utimensat(AT_FDCWD, "f", wrong, 0));
  DO(utimensat(AT_FDCWD, "d", both, 0));
  SAY(TimesOf("d"));
  DO(utimensat(AT_FDCWD, "link", both, AT_SYMLINK_NOFOLLOW));
  SAY(TimesOf("link"));
  DO(utimensat(AT_FDCWD, "link", modified, 0));
  SAY(TimesOf("f"));
  const int fd = FD(open("f", O_RDONLY));
  DO(futimens(fd, both));
  SAY(TimesOf("f"));
  const timespec old[2] = {{-86'400, 0}, {-1, 500'000'000}};
  DO(utimensat(AT_FDCWD, "f", old, 0));
  SAY(TimesOf("f"));
  const timespec far[2] = {{4'000'000'000, 1}, {7'000'000'000, 2}};
  DO(utimensat(AT_FDCWD, "f", far, 0));
  SAY(TimesOf("f"));
  DO(utimensat(AT_FDCWD, "f", nullptr, 0));
  SAY(TimesOf("f"));
}

// Which calls move mtime and ctime, from the past to now.
void TimesThatMove(Script& t) {
  Put("f", "content");
  DO(mkdir("d", 0755));
  const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  const int fd = FD(open("f", O_RDWR));
  DO(futimens(fd, old));
  DO(pwrite(fd, "x", 1, 0));
  DO(fsync(fd));
  SAY(TimesOf("f"));
  DO(futimens(fd, old));
  DO(ftruncate(fd, 3));
  SAY(TimesOf("f"));
  DO(futimens(fd, old));
  DO(fchmod(fd, 0600));
  SAY(TimesOf("f"));
  DO(futimens(fd, old));
  DO(fallocate(fd, 0, 0, 100));
  SAY(TimesOf("f"));
  DO(close(dup(fd)));
  for (const char* what : {"mkdir", "create", "rename", "unlink"}) {
    DO(utimensat(AT_FDCWD, "d", old, 0));
    if (!strcmp(what, "mkdir")) DO(mkdir("d/sub", 0755));
    if (!strcmp(what, "create")) Put("d/f", "f");
    if (!strcmp(what, "rename")) DO(rename("d/f", "d/g"));
    if (!strcmp(what, "unlink")) DO(unlink("d/g"));
    SAY(TimesOf("d"));
  }
  DO(utimensat(AT_FDCWD, "f", old, 0));
  SAY(Get("f"));
  SAY(TimesOf("f").substr(TimesOf("f").find(' ')));
}

void Statx(Script& t) {
  Put("f", "content");
  DO(mkdir("d", 0755));
  DO(symlink("f", "link"));
  struct statx stx {};
  DO(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS | STATX_BTIME, &stx));
  SAY((stx.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
  SAY((stx.stx_mask & STATX_BTIME) != 0);
  SAY(stx.stx_btime.tv_sec > 1'600'000'000);
  SAY(static_cast<long>(stx.stx_size));
  SAY(stx.stx_nlink);
  SAY(stx.stx_mode);
  SAY(stx.stx_blksize);
  DO(statx(AT_FDCWD, "d", 0, STATX_BTIME, &stx));
  SAY((stx.stx_mask & STATX_BTIME) != 0);
  DO(statx(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &stx));
  SAY(stx.stx_mode);
  DO(statx(AT_FDCWD, "f", AT_STATX_DONT_SYNC, STATX_SIZE, &stx));
  DO(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC, STATX_SIZE, &stx));
  DO(statx(AT_FDCWD, "absent", 0, STATX_SIZE, &stx));
  const int fd = FD(open("f", O_RDWR));
  DO(write(fd, "more content", 12));
  DO(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE | STATX_BTIME, &stx));
  SAY(static_cast<long>(stx.stx_size));
  DO(statx(AT_FDCWD, "f", 0, STATX_DIOALIGN, &stx));
  SAY((stx.stx_mask & STATX_DIOALIGN) != 0);
}

void LinkCounts(Script& t) {
  struct stat st {};
  DO(mkdir("d", 0755));
  DO(mkdir("d/sub", 0755));
  Put("d/f", "");
  DO(stat("d", &st));
  SAY(st.st_nlink);
  SAY(st.st_size > 0);
  SAY(st.st_blksize);
  DO(stat("d/f", &st));
  SAY(st.st_nlink);
  SAY(st.st_size);
  SAY(st.st_blocks);
  Put("d/f", "content");
  const int fd = FD(open("d/f", O_RDWR));
  DO(fsync(fd));
  DO(stat("d/f", &st));
  SAY(st.st_blocks > 0);
}

void Sizes(Script& t) {
  Put("f", "0123456789");
  DO(truncate("f", 4));
  SAY(Get("f"));
  DO(truncate("f", 8));
  SAY(Get("f"));
  DO(truncate("f", 4));
  DO(truncate("f", -1));
  DO(truncate("absent", 0));
  DO(truncate(".", 0));
  DO(truncate("f/", 0));
  DO(symlink("f", "link"));
  DO(truncate("link", 2));
  SAY(Get("f"));
  DO(mkfifo("fifo", 0644));
  DO(truncate("fifo", 0));
  const int fd = FD(open("f", O_RDWR));
  DO(ftruncate(fd, 5000));
  DO(lseek(fd, 0, SEEK_END));
  DO(ftruncate(fd, -1));
  DO(ftruncate(fd, LLONG_MAX));
  DO(ftruncate(fd, 1ll << 40));
  DO(lseek(fd, 0, SEEK_END));
  DO(ftruncate(fd, 0));
  DO(lseek(fd, 0, SEEK_CUR));
  DO(write(fd, "x", 1));
  struct stat st {};
  DO(fstat(fd, &st));
  SAY(st.st_size);
  DO(truncate("f", 3));
}

void FileSystem(Script& t) {
  struct statvfs space {};
  struct statfs plain {};
  DO(statvfs(".", &space));
  SAY(static_cast<long>(space.f_bsize));
  SAY(static_cast<long>(space.f_namemax));
  SAY(space.f_blocks > 0 && space.f_bavail > 0 && space.f_bavail <= space.f_blocks);
  SAY(space.f_files > 0 && space.f_ffree > 0);
  DO(statfs(".", &plain));
  SAY(plain.f_type);
  DO(statfs("absent", &plain));
  DO(pathconf(".", _PC_NAME_MAX));
  DO(pathconf(".", _PC_LINK_MAX));
}

void Xattrs(Script& t) {
  Put("f", "content");
  DO(mkdir("d", 0755));
  DO(symlink("f", "link"));
  char value[128] = {};
  for (const char* path : {"f", "d"}) {
    DO(getxattr(path, "user.none", value, sizeof value));
    DO(setxattr(path, "user.one", "1", 1, XATTR_REPLACE));
    DO(setxattr(path, "user.one", "1", 1, XATTR_CREATE));
    DO(setxattr(path, "user.one", "1", 1, XATTR_CREATE));
    DO(setxattr(path, "user.one", "eins", 4, 0));
    DO(setxattr(path, "user.empty", "", 0, 0));
    DO(setxattr(path, "user.", "x", 1, 0));
    DO(setxattr(path, "one", "x", 1, 0));
    DO(setxattr(path, "user.flags", "x", 1, 0x70));
    DO(getxattr(path, "user.one", value, sizeof value));
    DO(getxattr(path, "user.one", value, 2));
    DO(getxattr(path, "user.one", nullptr, 0));
    DO(getxattr(path, "user.empty", value, sizeof value));
    DO(listxattr(path, value, 3));
    DO(removexattr(path, "user.empty"));
    DO(removexattr(path, "user.empty"));
    char list[4096] = {};
    const ssize_t length = listxattr(path, list, sizeof list);
    std::vector<std::string> names;
    for (ssize_t at = 0; at < length; at += static_cast<ssize_t>(strlen(list + at)) + 1) {
      if (!strncmp(list + at, "user.", 5)) names.emplace_back(list + at);
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) t.Say("listed", name);
  }
  DO(lsetxattr("link", "user.x", "1", 1, 0));
  DO(lgetxattr("link", "user.x", value, sizeof value));
  DO(llistxattr("link", value, sizeof value));
  DO(setxattr("absent", "user.x", "1", 1, 0));
  DO(setxattr("f", "trusted.x", "1", 1, 0));
  DO(getxattr("f", "trusted.none", value, sizeof value));
  DO(setxattr("f", "unknown.x", "1", 1, 0));
  DO(getxattr("f", "unknown.x", value, sizeof value));
  DO(setxattr("f", "security.x", "1", 1, 0));
  DO(getxattr("f", "security.capability", value, sizeof value));
  DO(setxattr("f", "system.x", "1", 1, 0));
  DO(getxattr("f", "system.posix_acl_access", value, sizeof value));
  DO(rename("f", "g"));
  DO(getxattr("g", "user.one", value, sizeof value));
}

void XattrLimits(Script& t) {
  Put("f", "content");
  const std::string name250(250, 'n'), name251(251, 'n');
  const std::string value(65'536, 'v'), longer(65'537, 'v');
  DO(setxattr("f", ("user." + name250).c_str(), "1", 1, 0));
  DO(setxattr("f", ("user." + name251).c_str(), "1", 1, 0));
  DO(setxattr("f", "user.value", value.data(), value.size(), 0));
  DO(getxattr("f", "user.value", nullptr, 0));
  std::string back(65'536, 0);
  DO(getxattr("f", "user.value", back.data(), back.size()));
  SAY(back == value);
  DO(setxattr("f", "user.value", longer.data(), longer.size(), 0));
  DO(removexattr("f", "user.value"));
  for (int i = 0; i < 200; ++i) {
    const std::string name = "user.many" + std::to_string(i);
    if (setxattr("f", name.c_str(), "value", 5, 0) != 0) return t.Say(name, Errno());
  }
  SAY(listxattr("f", nullptr, 0) > 200 * 9);
  Put("f", "content again");
  DO(getxattr("f", "user.many7", nullptr, 0));
}

void Ioctls(Script& t) {
  Put("f", "content");
  const int fd = FD(open("f", O_RDWR));
  termios terminal{};
  int value = 0;
  DO(ioctl(fd, TCGETS, &terminal));
  DO(isatty(fd));
  DO(ioctl(fd, _IOR('~', 77, int), &value));
  DO(ioctl(fd, FIONREAD, &value));
  SAY(value);
  DO(lseek(fd, 3, SEEK_SET));
  DO(ioctl(fd, FIONREAD, &value));
  SAY(value);
  DO(ioctl(fd, FIOCLEX));
  DO(ioctl(fd, FS_IOC_GETFLAGS, &value));
  DO(ioctl(fd, FIGETBSZ, &value));
  SAY(value);
  const int other = FD(open("g", O_RDWR | O_CREAT, 0644));
  DO(ioctl(other, FICLONE, fd));
}

}  // namespace

void AddAttributeCases(Cases& cases) {
  cases.insert(cases.end(), {{"attributes.times", Times},
                             {"attributes.times_that_move", TimesThatMove},
                             {"attributes.statx", Statx},
                             {"attributes.links", LinkCounts},
                             {"attributes.sizes", Sizes},
                             {"attributes.filesystem", FileSystem},
                             {"attributes.xattr", Xattrs},
                             {"attributes.xattr_limits", XattrLimits},
                             {"attributes.ioctl", Ioctls}});
}

}  // namespace prefixfs::posix
