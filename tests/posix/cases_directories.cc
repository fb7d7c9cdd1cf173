// Listing directories: readdir with types, places in a listing, changes while it is read.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/posix/script.h"

namespace prefixfs::posix {
namespace {

constexpr int kNames = 600;

// Several pages of a listing, whatever their size.
void Fill(const char* directory) {
  for (int i = 0; i < kNames; ++i)
    (void)!symlink("x", (std::string(directory) + "/name_" + std::to_string(i)).c_str());
}

void Types(Script& t) {
  Put("file", "");
  DO(mkdir("directory", 0755));
  DO(symlink("file", "symlink"));
  DO(mkfifo("fifo", 0644));
  std::set<std::string> found;
  struct stat st {};
  DIR* stream = opendir(".");
  while (const dirent* entry = readdir(stream)) {
    found.insert(std::string(entry->d_name) + " " + std::to_string(entry->d_type));
    if (lstat(entry->d_name, &st) != 0 || st.st_ino != entry->d_ino) {
      if (strcmp(entry->d_name, "..") != 0) t.Say("another inode", entry->d_name);
    }
  }
  closedir(stream);
  for (const std::string& entry : found) t.Say("entry", entry);
}

void Places(Script& t) {
  DO(mkdir("d", 0755));
  Fill("d");
  DIR* stream = opendir("d");
  for (int i = 0; i < 250; ++i) readdir(stream);
  const long place = telldir(stream);
  std::vector<std::string> first, second;
  while (const dirent* entry = readdir(stream)) first.push_back(entry->d_name);
  SAY(static_cast<long>(first.size()));
  seekdir(stream, place);
  while (const dirent* entry = readdir(stream)) second.push_back(entry->d_name);
  SAY(first == second);
  rewinddir(stream);
  long count = 0;
  while (readdir(stream) != nullptr) ++count;
  SAY(count);
  Put("d/later", "");
  rewinddir(stream);
  bool seen = false;
  while (const dirent* entry = readdir(stream)) seen |= !strcmp(entry->d_name, "later");
  SAY(seen);
  closedir(stream);
  // A place is good in another stream too.
  stream = opendir("d");
  readdir(stream);
  seekdir(stream, place);
  const dirent* entry = readdir(stream);
  SAY(entry != nullptr && entry->d_name == first.front());
  closedir(stream);
}

void ChangesWhileListing(Script& t) {
  DO(mkdir("d", 0755));
  Fill("d");
  std::set<std::string> seen;
  long twice = 0, n = 0;
  DIR* stream = opendir("d");
  while (const dirent* entry = readdir(stream)) {
    if (!seen.insert(entry->d_name).second) ++twice;
    const int number = static_cast<int>(++n);
    // Names that stay must be listed exactly once, whatever becomes of others.
    if (number % 3 == 0) (void)!symlink("x", ("d/new_" + std::to_string(number)).c_str());
    if (number % 5 == 0) (void)!unlink(("d/new_" + std::to_string(number - 2)).c_str());
  }
  closedir(stream);
  SAY(twice);
  long stayed = 0;
  for (int i = 0; i < kNames; ++i) stayed += seen.count("name_" + std::to_string(i));
  SAY(stayed);
}

void EmptiedWhileListing(Script& t) {
  DO(mkdir("d", 0755));
  Fill("d");
  DIR* stream = opendir("d");
  long removed = 0, failed = 0;
  while (const dirent* entry = readdir(stream)) {
    if (entry->d_name[0] == '.') continue;
    ++(unlinkat(dirfd(stream), entry->d_name, 0) == 0 ? removed : failed);
  }
  SAY(removed);
  SAY(failed);
  closedir(stream);
  DO(rmdir("d"));
}

void Removed(Script& t) {
  DO(mkdir("d", 0755));
  DIR* stream = opendir("d");
  DO(rmdir("d"));
  errno = 0;
  SAY(readdir(stream) == nullptr);
  SAY(Errno());
  closedir(stream);
  DO(opendir("d") == nullptr ? -1 : 0);
  Put("f", "");
  DO(opendir("f") == nullptr ? -1 : 0);
}

void SmallBuffers(Script& t) {
  DO(mkdir("d", 0755));
  Put(("d/" + std::string(200, 'n')).c_str(), "");
  const int fd = FD(open("d", O_RDONLY | O_DIRECTORY));
  char bytes[1024];
  DO(syscall(SYS_getdents64, fd, bytes, 10));
  DO(syscall(SYS_getdents64, fd, bytes, sizeof bytes) > 0);
  DO(syscall(SYS_getdents64, fd, bytes, sizeof bytes));
  DO(lseek(fd, 0, SEEK_SET));
  DO(syscall(SYS_getdents64, fd, bytes, sizeof bytes) > 0);
  const int file = FD(open("f", O_RDWR | O_CREAT, 0644));
  DO(syscall(SYS_getdents64, file, bytes, sizeof bytes));
}

// What a listing brought along must be what stat says.
void ListedAttributes(Script& t) {
  for (int i = 0; i < 50; ++i) {
    const std::string name = "file_" + std::to_string(i);
    Put(name.c_str(), std::string(static_cast<size_t>(i) * 100, 'x'));
    (void)!chmod(name.c_str(), static_cast<mode_t>(0600 + i));
  }
  t.State("first");
  Put("file_7", "changed");
  (void)!truncate("file_8", 3);
  (void)!unlink("file_9");
  (void)!rename("file_10", "file_11");
  t.State("second");
}

}  // namespace

void AddDirectoryCases(Cases& cases) {
  cases.insert(cases.end(), {{"directories.types", Types},
                             {"directories.places", Places},
                             {"directories.changes", ChangesWhileListing},
                             {"directories.emptied", EmptiedWhileListing},
                             {"directories.removed", Removed},
                             {"directories.small_buffers", SmallBuffers},
                             {"directories.attributes", ListedAttributes}});
}

}  // namespace prefixfs::posix
