// Attributes as POSIX has them: modes, owners, times, extended attributes, permissions of other
// users, and that all of it is still there after a new mount.
#include <grp.h>
#include <sys/xattr.h>

#include <cstring>
#include <set>

#include "tests/mount/posix_fixture.h"

namespace prefixfs {
namespace {

using namespace support;

constexpr uid_t kNobody = 65534;

// Runs `body` as another user; its failures come back as the message.
void AsNobody(const std::function<void()>& body) {
  RunInProcess([&] {
    Sys(setgroups(0, nullptr), "setgroups");
    Sys(setgid(kNobody), "setgid");
    Sys(setuid(kNobody), "setuid");
    umask(022);
    body();
  });
}

std::string GetXattr(const std::string& path, const char* name) {
  char value[256];
  const ssize_t got = getxattr(path.c_str(), name, value, sizeof(value));
  return got < 0 ? std::string("<") + strerrorname_np(errno) + ">"
                 : std::string(value, static_cast<size_t>(got));
}

std::set<std::string> ListXattrs(const std::string& path) {
  std::string names(4096, '\0');
  names.resize(
      static_cast<size_t>(Sys(listxattr(path.c_str(), names.data(), names.size()), "listxattr")));
  std::set<std::string> all;
  for (size_t at = 0; at < names.size(); at += strlen(names.c_str() + at) + 1) {
    if (std::string_view(names.c_str() + at).starts_with("user.")) all.insert(names.c_str() + at);
  }
  return all;
}

TEST_F(Posix, ChmodAndChownChangeWhatStatSays) {
  Fd fd = Create("f", O_RDWR | O_CREAT | O_EXCL, 0640);
  EXPECT_EQ(Stat(P("f")).st_mode & 07777, 0640u);
  EXPECT_EQ(Name(chmod(P("f").c_str(), 0755)), "");
  EXPECT_EQ(Stat(P("f")).st_mode & 07777, 0755u);
  EXPECT_EQ(Name(fchmod(fd.get(), 0600)), "");
  fd.Reset();
  EXPECT_EQ(Stat(P("f")).st_mode & 07777, 0600u);
  EXPECT_EQ(Name(chown(P("f").c_str(), 123, 456)), "");
  EXPECT_EQ(Stat(P("f")).st_uid, 123u);
  EXPECT_EQ(Stat(P("f")).st_gid, 456u);
  EXPECT_EQ(Name(chown(P("f").c_str(), 321, static_cast<gid_t>(-1))), "");
  EXPECT_EQ(Stat(P("f")).st_uid, 321u);
  EXPECT_EQ(Stat(P("f")).st_gid, 456u);
  ASSERT_EQ(mkdir(P("d").c_str(), 0755), 0);
  EXPECT_EQ(Name(chmod(P("d").c_str(), 01777)), "");
  EXPECT_EQ(Stat(P("d")).st_mode & 07777, 01777u);
}

TEST_F(Posix, TimesCanBeSetToTheNanosecondAndOneByOne) {
  WriteText(P("f"), "x");
  const timespec both[2] = {{1'000'000'001, 123'456'789}, {1'100'000'002, 987'654'321}};
  ASSERT_EQ(Name(utimensat(AT_FDCWD, P("f").c_str(), both, 0)), "");
  struct stat st = Stat(P("f"));
  EXPECT_EQ(st.st_atim.tv_sec, 1'000'000'001);
  EXPECT_EQ(st.st_atim.tv_nsec, 123'456'789);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'100'000'002);
  EXPECT_EQ(st.st_mtim.tv_nsec, 987'654'321);

  const timespec touch[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ASSERT_EQ(Name(utimensat(AT_FDCWD, P("f").c_str(), touch, 0)), "");
  st = Stat(P("f"));
  EXPECT_GT(st.st_atim.tv_sec, 1'500'000'000) << "a touch moves atime";
  EXPECT_EQ(st.st_mtim.tv_sec, 1'100'000'002) << "and leaves mtime";
  EXPECT_EQ(st.st_mtim.tv_nsec, 987'654'321);
}

TEST_F(Posix, WritingMovesMtimeAndReadingDoesNot) {
  const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  Fd fd = Create("f");
  ASSERT_EQ(futimens(fd.get(), old), 0);
  ASSERT_EQ(write(fd.get(), "x", 1), 1);
  fd.Reset();
  EXPECT_GT(Stat(P("f")).st_mtim.tv_sec, 1'500'000'000);
  ASSERT_EQ(utimensat(AT_FDCWD, P("f").c_str(), old, 0), 0);
  ReadText(P("f"));
  EXPECT_EQ(Stat(P("f")).st_mtim.tv_sec, 1'000'000'000);
}

TEST_F(Posix, UserXattrsAreSetReadListedAndRemoved) {
  WriteText(P("f"), "x");
  ASSERT_EQ(mkdir(P("d").c_str(), 0755), 0);
  for (const std::string& path : {P("f"), P("d")}) {
    const auto set = [&](const char* name, const char* value, int flags) {
      return Name(setxattr(path.c_str(), name, value, strlen(value), flags));
    };
    EXPECT_EQ(GetXattr(path, "user.none"), "<ENODATA>");
    EXPECT_EQ(set("user.one", "1", XATTR_REPLACE), "ENODATA");
    EXPECT_EQ(set("user.one", "1", XATTR_CREATE), "");
    EXPECT_EQ(set("user.one", "1", XATTR_CREATE), "EEXIST");
    EXPECT_EQ(set("user.one", "eins", 0), "");
    EXPECT_EQ(set("user.two", "", 0), "");
    EXPECT_EQ(GetXattr(path, "user.one"), "eins");
    EXPECT_EQ(GetXattr(path, "user.two"), "");
    char small[2];
    EXPECT_EQ(Name(getxattr(path.c_str(), "user.one", small, 2)), "ERANGE");
    EXPECT_EQ(getxattr(path.c_str(), "user.one", nullptr, 0), 4);
    EXPECT_EQ(ListXattrs(path), (std::set<std::string>{"user.one", "user.two"}));
    EXPECT_EQ(Name(removexattr(path.c_str(), "user.two")), "");
    EXPECT_EQ(Name(removexattr(path.c_str(), "user.two")), "ENODATA");
    EXPECT_EQ(ListXattrs(path), (std::set<std::string>{"user.one"}));
  }
}

TEST_F(Posix, AnXattrSetOnTheTemporarySurvivesTheRename) {
  RunInProcess([&] {
    Fd fd = Create("f.tmp");
    Sys(write(fd.get(), "x", 1), "write");
    Sys(fsetxattr(fd.get(), "user.checksum", "abc", 3, 0), "fsetxattr");
    Sys(close(fd.Release()), "close");
    Sys(setxattr(P("f.tmp").c_str(), "user.more", "def", 3, 0), "setxattr after close");
    Sys(rename(P("f.tmp").c_str(), P("f").c_str()), "rename");
  });
  EXPECT_EQ(GetXattr(P("f"), "user.checksum"), "abc");
  EXPECT_EQ(GetXattr(P("f"), "user.more"), "def");
}

TEST_F(Posix, OtherUsersGetWhatTheModesGrant) {
  WriteText(P("secret"), "s");
  ASSERT_EQ(chmod(P("secret").c_str(), 0600), 0);
  WriteText(P("public"), "p");
  ASSERT_EQ(mkdir(P("shared").c_str(), 0755), 0);
  ASSERT_EQ(chmod(P("shared").c_str(), 01777), 0);
  WriteText(P("shared/roots"), "r");
  EXPECT_NO_THROW(AsNobody([&] {
    CheckErrno(open(P("secret").c_str(), O_RDONLY), EACCES, "open of a 0600 file");
    CheckErrno(open(P("public").c_str(), O_WRONLY), EACCES, "open for writing of a 0644 file");
    CheckErrno(truncate(P("public").c_str(), 0), EACCES, "truncate of a 0644 file");
    CheckErrno(open(P("mine").c_str(), O_CREAT | O_WRONLY, 0644), EACCES,
               "create in a 0755 directory");
    CheckErrno(unlink(P("public").c_str()), EACCES, "unlink in a 0755 directory");
    CheckErrno(chmod(P("public").c_str(), 0777), EPERM, "chmod of another's file");
    CheckErrno(setxattr(P("public").c_str(), "user.x", "1", 1, 0), EACCES,
               "setxattr on another's file");
    Check(ReadText(P("public")) == "p", "read of a 0644 file");
    WriteText(P("shared/mine"), "m");
    Check(Stat(P("shared/mine")).st_uid == kNobody, "the new file belongs to another");
    Check(Stat(P("shared/mine")).st_gid == kNobody, "the new file has another group");
    Sys(mkdir(P("shared/dir").c_str(), 0755), "mkdir in a 1777 directory");
    Sys(symlink("mine", P("shared/link").c_str()), "symlink in a 1777 directory");
    CheckErrno(unlink(P("shared/roots").c_str()), EPERM,
               "unlink of another's file in a sticky directory");
    Sys(unlink(P("shared/mine").c_str()), "unlink of the own file");
  }));
  EXPECT_EQ(ReadText(P("public")), "p");
}

TEST_F(Posix, EverythingIsThereAfterANewMount) {
  WriteFile(P("block"), Pattern(70'273, 1));
  ASSERT_EQ(chmod(P("block").c_str(), 0640), 0);
  ASSERT_EQ(chown(P("block").c_str(), 123, 456), 0);
  ASSERT_EQ(setxattr(P("block").c_str(), "user.k", "v", 1, 0), 0);
  const timespec times[2] = {{1'000'000'001, 11}, {1'100'000'002, 22}};
  ASSERT_EQ(utimensat(AT_FDCWD, P("block").c_str(), times, 0), 0);
  ASSERT_EQ(mkdir(P("dir").c_str(), 0750), 0);
  ASSERT_EQ(setxattr(P("dir").c_str(), "user.k", "w", 1, 0), 0);
  ASSERT_EQ(mkdir(P("dir/empty").c_str(), 0711), 0);
  ASSERT_EQ(rename(P("dir").c_str(), P("moved").c_str()), 0);
  ASSERT_EQ(symlink("block", P("link").c_str()), 0);
  WriteText(P("kv_cache.data"), "an ordinary file");
  mount_->Remount();
  EXPECT_EQ(VerifyFile(P("link"), 1, 70'273), "");
  const struct stat block = Stat(P("block"));
  EXPECT_EQ(block.st_mode & 07777, 0640u);
  EXPECT_EQ(block.st_uid, 123u);
  EXPECT_EQ(block.st_gid, 456u);
  EXPECT_EQ(block.st_mtim.tv_sec, 1'100'000'002);
  EXPECT_EQ(block.st_mtim.tv_nsec, 22);
  EXPECT_EQ(GetXattr(P("block"), "user.k"), "v");
  EXPECT_EQ(Stat(P("moved")).st_mode & 07777, 0750u);
  EXPECT_EQ(GetXattr(P("moved"), "user.k"), "w");
  EXPECT_EQ(Stat(P("moved/empty")).st_mode & 07777, 0711u);
  EXPECT_FALSE(Exists(P("dir")));
  EXPECT_EQ(ReadText(P("kv_cache.data")), "an ordinary file");
}

}  // namespace
}  // namespace prefixfs
