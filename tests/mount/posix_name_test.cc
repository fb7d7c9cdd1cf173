// Names and directories as POSIX has them: rename, mkdir, readdir, symlinks, what a name may be.
#include <dirent.h>
#include <sys/syscall.h>

#include <cstring>
#include <map>
#include <set>

#include "tests/mount/posix_fixture.h"

namespace prefixfs {
namespace {

using namespace support;

int RenameWith(const std::string& from, const std::string& to, unsigned flags) {
  return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
}

std::map<std::string, unsigned char> List(const std::string& path) {
  std::map<std::string, unsigned char> entries;
  DIR* stream = opendir(path.c_str());
  Check(stream != nullptr, "opendir " + path);
  while (const dirent* entry = readdir(stream)) {
    const bool fresh = entries.emplace(entry->d_name, entry->d_type).second;
    Check(fresh, std::string("listed twice: ") + entry->d_name);
  }
  closedir(stream);
  return entries;
}

TEST_F(Posix, RenameMovesAndReplacesFiles) {
  WriteText(P("a"), "A");
  WriteText(P("b"), "B");
  EXPECT_EQ(Name(rename(P("a").c_str(), P("b").c_str())), "");
  EXPECT_FALSE(Exists(P("a")));
  EXPECT_EQ(ReadText(P("b")), "A");
  EXPECT_EQ(Name(rename(P("b").c_str(), P("b").c_str())), "");
  EXPECT_EQ(ReadText(P("b")), "A");
  EXPECT_EQ(Name(rename(P("absent").c_str(), P("b").c_str())), "ENOENT");
  ASSERT_EQ(mkdir(P("d").c_str(), 0755), 0);
  EXPECT_EQ(Name(rename(P("b").c_str(), P("d").c_str())), "EISDIR");
  EXPECT_EQ(Name(rename(P("d").c_str(), P("b").c_str())), "ENOTDIR");
  EXPECT_EQ(Name(rename(P("b").c_str(), P("d/b").c_str())), "");
  EXPECT_EQ(ReadText(P("d/b")), "A");
}

TEST_F(Posix, RenameNoreplaceKeepsTheTarget) {
  WriteText(P("a"), "A");
  WriteText(P("b"), "B");
  EXPECT_EQ(Name(RenameWith(P("a"), P("b"), RENAME_NOREPLACE)), "EEXIST");
  EXPECT_EQ(ReadText(P("b")), "B");
  EXPECT_EQ(Name(RenameWith(P("a"), P("c"), RENAME_NOREPLACE)), "");
  EXPECT_EQ(ReadText(P("c")), "A");
}

TEST_F(Posix, RenameExchangeSwapsFilesAndDirectories) {
  WriteText(P("a"), "A");
  WriteText(P("b"), "B");
  EXPECT_EQ(Name(RenameWith(P("a"), P("b"), RENAME_EXCHANGE)), "");
  EXPECT_EQ(ReadText(P("a")), "B");
  EXPECT_EQ(ReadText(P("b")), "A");
  ASSERT_EQ(mkdir(P("d").c_str(), 0755), 0);
  WriteText(P("d/x"), "X");
  EXPECT_EQ(Name(RenameWith(P("a"), P("d"), RENAME_EXCHANGE)), "");
  EXPECT_EQ(ReadText(P("d")), "B");
  EXPECT_EQ(ReadText(P("a/x")), "X");
  EXPECT_EQ(Name(RenameWith(P("a"), P("absent"), RENAME_EXCHANGE)), "ENOENT");
}

TEST_F(Posix, RenameMovesDirectoriesWithAllBelow) {
  ASSERT_EQ(mkdir(P("from").c_str(), 0755), 0);
  ASSERT_EQ(mkdir(P("from/sub").c_str(), 0755), 0);
  WriteText(P("from/sub/f"), "F");
  ASSERT_EQ(mkdir(P("empty").c_str(), 0755), 0);
  ASSERT_EQ(mkdir(P("full").c_str(), 0755), 0);
  WriteText(P("full/f"), "");
  EXPECT_EQ(Name(rename(P("from").c_str(), P("from/sub/x").c_str())), "EINVAL");
  const std::string refused = Name(rename(P("from").c_str(), P("full").c_str()));
  EXPECT_TRUE(refused == "ENOTEMPTY" || refused == "EEXIST") << refused;
  EXPECT_EQ(Name(rename(P("from").c_str(), P("empty").c_str())), "");
  EXPECT_FALSE(Exists(P("from")));
  EXPECT_EQ(ReadText(P("empty/sub/f")), "F");
  EXPECT_EQ(Name(rename(P("empty/sub").c_str(), P("sub").c_str())), "");
  EXPECT_EQ(ReadText(P("sub/f")), "F");
  EXPECT_EQ(Stat(P("sub/..")).st_ino, Stat(directory_).st_ino);
}

TEST_F(Posix, DirectoriesAreMadeAndRemovedOnlyWhenEmpty) {
  EXPECT_EQ(Name(mkdir(P("d").c_str(), 0700)), "");
  EXPECT_EQ(Stat(P("d")).st_mode & 07777, 0700u);
  EXPECT_EQ(Name(mkdir(P("d").c_str(), 0755)), "EEXIST");
  EXPECT_EQ(Name(mkdir(P("absent/d").c_str(), 0755)), "ENOENT");
  WriteText(P("d/f"), "");
  EXPECT_EQ(Name(rmdir(P("d").c_str())), "ENOTEMPTY");
  EXPECT_EQ(Name(unlink(P("d").c_str())), "EISDIR");
  EXPECT_EQ(Name(rmdir(P("d/f").c_str())), "ENOTDIR");
  EXPECT_EQ(Name(unlink(P("d/f").c_str())), "");
  EXPECT_EQ(Name(unlink(P("d/f").c_str())), "ENOENT");
  EXPECT_EQ(Name(rmdir(P("d").c_str())), "");
  EXPECT_EQ(Name(rmdir(P("d").c_str())), "ENOENT");
}

TEST_F(Posix, SymlinksKeepTheirTextAndAreFollowed) {
  WriteText(P("f"), "F");
  EXPECT_EQ(Name(symlink("f", P("l").c_str())), "");
  EXPECT_EQ(Name(symlink("f", P("l").c_str())), "EEXIST");
  char text[64] = {};
  ASSERT_EQ(readlink(P("l").c_str(), text, sizeof(text)), 1);
  EXPECT_STREQ(text, "f");
  EXPECT_TRUE(S_ISLNK(Stat(P("l")).st_mode));
  EXPECT_EQ(Stat(P("l")).st_size, 1);
  EXPECT_EQ(ReadText(P("l")), "F");
  EXPECT_EQ(Name(open(P("l").c_str(), O_RDONLY | O_NOFOLLOW)), "ELOOP");
  EXPECT_EQ(Name(readlink(P("f").c_str(), text, sizeof(text))), "EINVAL");
  const std::string longest(1000, 'x');
  EXPECT_EQ(Name(symlink(longest.c_str(), P("dangling").c_str())), "");
  EXPECT_EQ(Name(open(P("dangling").c_str(), O_RDONLY)), "ENAMETOOLONG");
  EXPECT_EQ(Name(unlink(P("l").c_str())), "");
  EXPECT_TRUE(Exists(P("f")));
}

TEST_F(Posix, NamesMayBe255BytesOfAnything) {
  const std::string longest(255, 'n');
  WriteText(P(longest), "long");
  EXPECT_EQ(ReadText(P(longest)), "long");
  EXPECT_EQ(Name(open(P(longest + "n").c_str(), O_CREAT | O_WRONLY, 0644)), "ENAMETOOLONG");
  EXPECT_EQ(Name(mkdir(P(longest + "n").c_str(), 0755)), "ENAMETOOLONG");
  EXPECT_EQ(Name(rename(P(longest).c_str(), P(longest + "n").c_str())), "ENAMETOOLONG");
  struct stat st {};
  EXPECT_EQ(Name(stat(P(longest + "n").c_str(), &st)), "ENAMETOOLONG");

  std::set<std::string> names = {longest, "..."};
  std::string every;
  for (int byte = 1; byte < 256; ++byte) {
    if (byte != '/') every += static_cast<char>(byte);
  }
  names.insert(every);
  for (int byte = 1; byte < 256; byte += 5) {
    if (byte != '/' && byte != '.') names.insert(std::string(1, static_cast<char>(byte)));
  }
  for (const std::string& name : names) WriteText(P(name), name);
  std::set<std::string> listed;
  for (const auto& [name, type] : List(directory_)) {
    if (name != "." && name != "..") listed.insert(name);
  }
  EXPECT_EQ(listed, names);
  for (const std::string& name : names) EXPECT_EQ(ReadText(P(name)), name);
}

TEST_F(Posix, HardLinksAreRefused) {
  if (NativeMode()) GTEST_SKIP() << "XFS has hard links";
  WriteText(P("f"), "");
  EXPECT_EQ(Name(link(P("f").c_str(), P("g").c_str())), "EPERM");
  EXPECT_FALSE(Exists(P("g")));
}

TEST_F(Posix, ListingsGiveEveryNameOnceWithItsType) {
  WriteText(P("file"), "");
  ASSERT_EQ(mkdir(P("dir").c_str(), 0755), 0);
  ASSERT_EQ(symlink("file", P("link").c_str()), 0);
  const std::map<std::string, unsigned char> expected = {
      {".", DT_DIR}, {"..", DT_DIR}, {"file", DT_REG}, {"dir", DT_DIR}, {"link", DT_LNK}};
  EXPECT_EQ(List(directory_), expected);
}

TEST_F(Posix, AListingOf5000NamesIsCompleteAndCanBeResumed) {
  constexpr size_t kNames = 5000;
  for (size_t i = 0; i < kNames; ++i) Create("name_" + std::to_string(i));
  ASSERT_EQ(List(directory_).size(), kNames + 2);

  DIR* stream = opendir(directory_.c_str());
  ASSERT_NE(stream, nullptr);
  for (int i = 0; i < 1234; ++i) ASSERT_NE(readdir(stream), nullptr);
  const long place = telldir(stream);
  std::vector<std::string> first, second;
  while (const dirent* entry = readdir(stream)) first.push_back(entry->d_name);
  seekdir(stream, place);
  while (const dirent* entry = readdir(stream)) second.push_back(entry->d_name);
  EXPECT_EQ(first.size(), kNames + 2 - 1234);
  EXPECT_EQ(first, second);
  rewinddir(stream);
  size_t again = 0;
  while (readdir(stream) != nullptr) ++again;
  EXPECT_EQ(again, kNames + 2);
  closedir(stream);
}

TEST_F(Posix, ADirectoryCanBeEmptiedWhileItIsListed) {
  constexpr size_t kNames = 500;
  for (size_t i = 0; i < kNames; ++i) Create("name_" + std::to_string(i));
  DIR* stream = opendir(directory_.c_str());
  ASSERT_NE(stream, nullptr);
  size_t removed = 0;
  while (const dirent* entry = readdir(stream)) {
    if (entry->d_name[0] == '.') continue;
    ASSERT_EQ(unlinkat(dirfd(stream), entry->d_name, 0), 0) << entry->d_name;
    ++removed;
  }
  closedir(stream);
  EXPECT_EQ(removed, kNames);
  EXPECT_EQ(List(directory_).size(), 2u);
}

TEST_F(Posix, TheControlDirectoryIsThereButNotListed) {
  if (NativeMode()) GTEST_SKIP() << "XFS has no control directory";
  EXPECT_FALSE(List(mount_->path()).contains(".prefixfs"));
  EXPECT_TRUE(S_ISDIR(Stat(mount_->path() + "/.prefixfs").st_mode));
  const auto files = List(mount_->path() + "/.prefixfs");
  for (const char* name : {"stats", "metrics", "config"}) {
    EXPECT_TRUE(files.contains(name)) << name;
    EXPECT_FALSE(ReadText(mount_->path() + "/.prefixfs/" + name).empty()) << name;
  }
  EXPECT_NE(Name(unlink((mount_->path() + "/.prefixfs/stats").c_str())), "");
  EXPECT_NE(Name(rmdir((mount_->path() + "/.prefixfs").c_str())), "");
  EXPECT_NE(Name(open((mount_->path() + "/.prefixfs/new").c_str(), O_CREAT | O_WRONLY, 0644)), "");
  EXPECT_EQ(Name(mkdir((mount_->path() + "/.prefixfs").c_str(), 0755)), "EEXIST");
}

}  // namespace
}  // namespace prefixfs
