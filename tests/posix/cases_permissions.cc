// Who may do what: modes, owners, sticky and setgid directories, umask, set-user-ID.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/posix/script.h"

namespace prefixfs::posix {
namespace {

constexpr uid_t kOther = 65533;

mode_t ModeOf(const char* path) {
  struct stat st {};
  return lstat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

void NobodyOnRootsFiles(Script& t) {
  DO(open("secret", O_RDONLY));
  FD(open("public", O_RDONLY));
  DO(open("public", O_WRONLY));
  DO(open("public", O_RDWR));
  DO(open("public", O_RDONLY | O_TRUNC));
  DO(access("secret", R_OK));
  DO(access("public", R_OK));
  DO(access("public", W_OK));
  DO(access("public", X_OK));
  DO(access("run", X_OK));
  DO(truncate("public", 0));
  DO(chmod("public", 0777));
  DO(chown("public", kNobody, kNobody));
  DO(unlink("public"));
  DO(rename("public", "x"));
  DO(open("new", O_CREAT | O_RDWR, 0644));
  DO(open(".", O_TMPFILE | O_RDWR, 0644));
  DO(mkdir("new", 0755));
  DO(symlink("x", "new"));
  DO(mkfifo("new", 0644));
  DO(utimensat(AT_FDCWD, "public", nullptr, 0));
  DO(setxattr("public", "user.x", "1", 1, 0));
  DO(getxattr("secret", "user.set", nullptr, 0));
  DO(getxattr("public", "user.set", nullptr, 0));
  DO(open("locked/f", O_RDONLY));
  DO(access("locked", R_OK));
  DO(rmdir("locked"));
  DO(openat(AT_FDCWD, "listed", O_RDONLY | O_DIRECTORY));
  FD(open("searched/f", O_RDONLY));
  DO(open("searched", O_RDONLY | O_DIRECTORY));
  FD(open("ours", O_WRONLY));
  DO(utimensat(AT_FDCWD, "ours", nullptr, 0));
  const timespec times[2] = {{1, 0}, {2, 0}};
  DO(utimensat(AT_FDCWD, "ours", times, 0));
}

void OtherUsers(Script& t) {
  Put("secret", "s");
  Put("public", "p");
  Put("run", "r");
  Put("ours", "o");
  (void)!mkdir("locked", 0700);
  Put("locked/f", "f");
  (void)!mkdir("searched", 0711);
  Put("searched/f", "f");
  DO(setxattr("secret", "user.set", "1", 1, 0));
  DO(setxattr("public", "user.set", "1", 1, 0));
  DO(chmod("secret", 0600));
  DO(chmod("run", 0755));
  DO(chmod("ours", 0666));
  t.AsUser(kNobody, NobodyOnRootsFiles);
  t.State("after");
}

void NobodyInSticky(Script& t) {
  DO(unlink("sticky/roots"));
  DO(rename("sticky/roots", "sticky/x"));
  Put("sticky/mine", "m");
  Put("sticky/more", "m");
  DO(rename("sticky/mine", "sticky/roots"));
  DO(rename("sticky/mine", "sticky/more"));
  DO(mkdir("sticky/dir", 0755));
  DO(mkdir("sticky/dir/sub", 0777));
  DO(symlink("mine", "sticky/link"));
  DO(mkfifo("sticky/fifo", 0600));
}

void OtherInSticky(Script& t) {
  DO(unlink("sticky/more"));
  DO(rmdir("sticky/dir"));
  DO(unlink("open/roots"));
  Put("open/others", "o");
}

void Sticky(Script& t) {
  (void)!mkdir("sticky", 0755);
  DO(chmod("sticky", 01777));
  (void)!mkdir("open", 0755);
  DO(chmod("open", 0777));
  Put("sticky/roots", "r");
  Put("open/roots", "r");
  t.AsUser(kNobody, NobodyInSticky);
  t.AsUser(kOther, OtherInSticky);
  t.State("after");
}

void NobodyInSetgid(Script& t) {
  Put("shared/mine", "m");
  DO(mkdir("shared/dir", 0755));
  Put("shared/dir/f", "f");
  DO(symlink("mine", "shared/link"));
  DO(chmod("shared/mine", 02755));  // not of that group: the bit goes
  DO(close(open("shared/asked", O_CREAT | O_RDWR, 02755)));
  FD(open("shared", O_TMPFILE | O_RDWR, 0644));
}

void Setgid(Script& t) {
  (void)!mkdir("shared", 0755);
  DO(chown("shared", 0, 77));
  DO(chmod("shared", 02777));
  Put("shared/roots", "r");
  t.AsUser(kNobody, NobodyInSetgid);
  t.State("after");
}

void Umask(Script& t) {
  const mode_t before = umask(027);
  DO(close(open("file", O_CREAT | O_RDWR, 0666)));
  DO(mkdir("dir", 0777));
  DO(mkfifo("fifo", 0666));
  DO(mknod("node", S_IFREG | 0666, 0));
  DO(chmod("file", 0666));
  umask(0);
  DO(close(open("open", O_CREAT | O_RDWR, 07777)));
  DO(mkdir("odd", 07777));
  umask(0777);
  DO(close(open("none", O_CREAT | O_RDWR, 0666)));
  umask(before);
  t.State("after");
}

void NobodyOnOwn(Script& t) {
  Put("own", "content");
  DO(chmod("own", 06755));
  SAY(ModeOf("own"));
  DO(chown("own", kNobody, kNobody));
  SAY(ModeOf("own"));
  DO(chmod("own", 04755));
  DO(chown("own", 0, static_cast<gid_t>(-1)));
  DO(chown("own", static_cast<uid_t>(-1), 0));
  DO(chown("own", static_cast<uid_t>(-1), static_cast<gid_t>(-1)));
  SAY(ModeOf("own"));
  DO(chmod("own", 04755));
  const int fd = FD(open("own", O_RDWR));
  DO(pwrite(fd, "C", 1, 0));
  SAY(ModeOf("own"));
}

void WritersLoseSetuid(Script& t) {
  const int fd = FD(open("f", O_RDWR));
  DO(pwrite(fd, "x", 1, 0));
  SAY(ModeOf("f"));
}

void CuttersLoseSetuid(Script& t) {
  DO(truncate("g", 1));
  SAY(ModeOf("g"));
}

void SetUserId(Script& t) {
  DO(chmod(".", 0777));
  t.AsUser(kNobody, NobodyOnOwn);
  Put("f", "content");
  Put("g", "content");
  DO(chmod("f", 06777));
  DO(chmod("g", 06777));
  DO(chown("f", 0, 0));
  SAY(ModeOf("f"));
  DO(chmod("f", 06777));
  t.AsUser(kNobody, WritersLoseSetuid);
  DO(chmod("g", 06777));
  t.AsUser(kNobody, CuttersLoseSetuid);
  DO(chmod("f", 04777));
  const int fd = FD(open("f", O_RDWR));
  DO(pwrite(fd, "y", 1, 0));
  SAY(ModeOf("f"));
  DO(mkdir("d", 0755));
  DO(chmod("d", 06755));
  DO(chown("d", 5, 6));
  SAY(ModeOf("d"));
}

void Owners(Script& t) {
  Put("f", "");
  DO(symlink("f", "link"));
  DO(mkdir("d", 0755));
  DO(chown("f", 1, 2));
  DO(chown("f", 3, static_cast<gid_t>(-1)));
  DO(chown("link", static_cast<uid_t>(-1), 4));
  DO(lchown("link", 5, 6));
  DO(fchownat(AT_FDCWD, "d", 7, 8, 0));
  DO(chown("absent", 1, 1));
  const int fd = FD(open("f", O_RDONLY));
  DO(fchown(fd, 9, 10));
  DO(fchmod(fd, 0604));
  DO(chmod("absent", 0644));
  DO(chmod("link", 0640));
  DO(chmod("d", 0));
  t.State("after");
}

}  // namespace

void AddPermissionCases(Cases& cases) {
  cases.insert(cases.end(), {{"permissions.other_users", OtherUsers},
                             {"permissions.sticky", Sticky},
                             {"permissions.setgid", Setgid},
                             {"permissions.umask", Umask},
                             {"permissions.setuid", SetUserId},
                             {"permissions.owners", Owners}});
}

}  // namespace prefixfs::posix
