// Names: mkdir, rmdir, unlink, link, symlink, mknod, and what a name may be.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "tests/posix/script.h"

namespace prefixfs::posix {
namespace {

void MakeDirectories(Script& t) {
  DO(mkdir("d", 0750));
  DO(mkdir("d", 0750));
  DO(mkdir("d/", 0750));
  DO(mkdir("e/", 0705));
  DO(mkdir("absent/d", 0755));
  DO(mkdir("d/sub", 01777));
  DO(mkdir(".", 0755));
  DO(mkdir("..", 0755));
  DO(mkdir("d/.", 0755));
  Put("f", "");
  DO(mkdir("f", 0755));
  DO(mkdir("f/d", 0755));
  DO(symlink("d", "link"));
  DO(mkdir("link", 0755));
  DO(symlink("nowhere", "dangling"));
  DO(mkdir("dangling", 0755));
  t.State("after");
}

void RemoveDirectories(Script& t) {
  DO(mkdir("d", 0755));
  Put("d/f", "");
  DO(mkdir("d/sub", 0755));
  DO(rmdir("d"));
  DO(rmdir("d/f"));
  DO(rmdir("d/sub/."));
  DO(rmdir("d/sub/.."));
  DO(rmdir("d/sub/"));
  DO(unlink("d"));
  DO(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));
  DO(unlink("d/f"));
  DO(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));
  DO(rmdir("d"));
  DO(rmdir(""));
  DO(symlink("nowhere", "link"));
  DO(rmdir("link"));
  t.State("after");
}

void Unlink(Script& t) {
  Put("f", "F");
  DO(unlink("absent"));
  DO(unlink("f/x"));
  DO(unlink("f/"));
  DO(unlink("."));
  DO(unlink(""));
  DO(symlink("f", "link"));
  DO(unlink("link"));
  DO(unlink("f"));
  DO(unlink("f"));
  t.State("after");
}

void UnlinkWhileOpen(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT | O_EXCL, 0644));
  DO(write(fd, "content", 7));
  DO(unlink("f"));
  struct stat st {};
  DO(fstat(fd, &st));
  SAY(st.st_nlink);
  SAY(st.st_size);
  char bytes[16] = {};
  DO(pread(fd, bytes, sizeof bytes, 0));
  SAY(std::string(bytes));
  DO(write(fd, "!", 1));
  DO(ftruncate(fd, 4));
  DO(fchmod(fd, 0600));
  DO(fsync(fd));
  Put("f", "another");
  DO(pread(fd, bytes, sizeof bytes, 0));
  const int sealed = FD(open("f", O_RDONLY));
  DO(unlink("f"));
  DO(fstat(sealed, &st));
  SAY(st.st_nlink);
  DO(pread(sealed, bytes, sizeof bytes, 0));
  SAY(std::string(bytes));
  t.State("after");
}

void Links(Script& t) {
  Put("f", "F");
  DO(mkdir("d", 0755));
  DO(link("f", "g"));
  DO(link("f", "f"));
  DO(link("absent", "h"));
  DO(link("f", "absent/h"));
  DO(link("d", "e"));
  DO(symlink("f", "s"));
  DO(linkat(AT_FDCWD, "s", AT_FDCWD, "hs", 0));
  struct stat st {};
  DO(stat("f", &st));
  SAY(st.st_nlink);
  DO(unlink("f"));
}

void Symlinks(Script& t) {
  char text[5000] = {};
  DO(symlink("target", "link"));
  DO(symlink("target", "link"));
  DO(symlink("", "empty"));
  DO(symlink("target", "absent/link"));
  DO(readlink("link", text, sizeof text));
  SAY(std::string(text));
  DO(readlink("link", text, 3));
  DO(readlink("absent", text, sizeof text));
  Put("f", "");
  DO(readlink("f", text, sizeof text));
  DO(readlink(".", text, sizeof text));
  const std::string longest(4095, 'x');
  DO(symlink(longest.c_str(), "longest"));
  DO(readlink("longest", text, sizeof text));
  DO(symlink(std::string(4096, 'x').c_str(), "longer"));
  struct stat st {};
  DO(lstat("link", &st));
  SAY(st.st_size);
  DO(stat("link", &st));
  DO(lchown("link", 3, 4));
  DO(lstat("link", &st));
  SAY(st.st_uid);
  DO(fchmodat(AT_FDCWD, "link", 0600, AT_SYMLINK_NOFOLLOW));
  DO(symlink(".", "here"));
  DO(stat("here/here/here/here/f", &st));
  DO(rename("link", "moved"));
  DO(unlink("longest"));
  t.State("after");
}

// 40 links may be followed, not 41.
void ManySymlinks(Script& t) {
  Put("link0", "");
  for (int i = 1; i <= 41; ++i)
    (void)!symlink(("link" + std::to_string(i - 1)).c_str(), ("link" + std::to_string(i)).c_str());
  DO(access("link40", F_OK));
  DO(access("link41", F_OK));
}

void SpecialFiles(Script& t) {
  DO(mkfifo("fifo", 0640));
  DO(mkfifo("fifo", 0640));
  DO(mknod("file", S_IFREG | 0600, 0));
  DO(mknod("typeless", 0600, 0));
  DO(mknod("file", S_IFREG | 0600, 0));
  DO(mknod("null", S_IFCHR | 0666, makedev(1, 3)));
  DO(mknod("block", S_IFBLK | 0600, makedev(7, 0)));
  DO(mknod("directory", S_IFDIR | 0755, 0));
  (void)!(unlink("null") | unlink("block"));
  DO(open("fifo", O_WRONLY | O_NONBLOCK));
  const int in = FD(open("fifo", O_RDONLY | O_NONBLOCK));
  const int out = FD(open("fifo", O_WRONLY | O_NONBLOCK));
  DO(write(out, "through", 7));
  char bytes[16] = {};
  DO(read(in, bytes, sizeof bytes));
  SAY(std::string(bytes));
  DO(chmod("fifo", 0600));
  DO(rename("fifo", "moved"));
  DO(unlink("moved"));
  struct stat st {};
  DO(fstat(in, &st));
  SAY(st.st_nlink);
  DO(write(out, "!", 1));
  DO(read(in, bytes, 1));
  t.State("after");
}

void Sockets(Script& t) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, "socket");
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  const int server = FD(socket(AF_UNIX, SOCK_STREAM, 0));
  const int client = FD(socket(AF_UNIX, SOCK_STREAM, 0));
  DO(connect(client, where, sizeof address));
  DO(bind(server, where, sizeof address));
  DO(bind(client, where, sizeof address));
  DO(listen(server, 1));
  DO(connect(client, where, sizeof address));
  const int served = FD(accept(server, nullptr, nullptr));
  DO(write(client, "hello", 5));
  char bytes[8] = {};
  DO(read(served, bytes, sizeof bytes));
  DO(open("socket", O_RDONLY));
  t.State("after");
  DO(unlink("socket"));
}

void NamesOfAnyKind(Script& t) {
  const std::string longest(255, 'n'), longer(256, 'n'), absurd(5000, 'n');
  struct stat st {};
  Put(longest.c_str(), "longest");
  DO(stat(longest.c_str(), &st));
  DO(stat(longer.c_str(), &st));
  DO(open(longer.c_str(), O_CREAT | O_RDWR, 0644));
  DO(mkdir(longer.c_str(), 0755));
  DO(unlink(longer.c_str()));
  DO(rename(longest.c_str(), longer.c_str()));
  DO(symlink("x", longer.c_str()));
  DO(mkfifo(longer.c_str(), 0644));
  DO(link(longest.c_str(), longer.c_str()));
  DO(stat(absurd.c_str(), &st));
  DO(stat(std::string(1025, 'n').c_str(), &st));
  for (int byte = 1; byte < 256; ++byte) {
    if (byte != '/' && byte != '.') Put(std::string(1, static_cast<char>(byte)).c_str(), "x");
  }
  for (const char* name : {"...", " ", "-", "a b", "\xff\xfe", "tab\t", "line\n", "..a", ".hidden"})
    Put(name, name);
  DO(open("..", O_CREAT | O_RDWR, 0644));
  DO(rename(".", "x"));
  DO(rename("...", ".."));
  DO(rename("...", "."));
  t.State("after");
}

// A path may be 4,095 bytes long, and a component too many is ENAMETOOLONG whatever is there.
void LongPaths(Script& t) {
  std::string path;
  for (int i = 0; i < 15; ++i) {
    path += std::string(254, 'd') + "/";
    if (mkdir(path.c_str(), 0755) != 0) return t.Say("mkdir", Errno());
  }
  Put((path + "f").c_str(), "deep");
  SAY(Get((path + "f").c_str()));
  struct stat st {};
  std::string dots;
  while (dots.size() < 4090) dots += "./";
  DO(stat((dots + ".").c_str(), &st));
  DO(stat((dots + "./././.").c_str(), &st));
}

}  // namespace

void AddNameCases(Cases& cases) {
  cases.insert(cases.end(), {{"names.mkdir", MakeDirectories},
                             {"names.rmdir", RemoveDirectories},
                             {"names.unlink", Unlink},
                             {"names.unlink_while_open", UnlinkWhileOpen},
                             {"names.link", Links},
                             {"names.symlink", Symlinks},
                             {"names.many_symlinks", ManySymlinks},
                             {"names.special", SpecialFiles},
                             {"names.socket", Sockets},
                             {"names.any", NamesOfAnyKind},
                             {"names.long_paths", LongPaths}});
}

}  // namespace prefixfs::posix
