// rename and renameat2: what may replace what, RENAME_NOREPLACE, RENAME_EXCHANGE.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/posix/script.h"

namespace prefixfs::posix {
namespace {

int Rename2(const char* from, const char* to, unsigned flags) {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

// file, another, empty/, full/f, link -> file, dangling -> nowhere, fifo
void Populate() {
  Put("file", "F");
  Put("another", "A");
  (void)!mkdir("empty", 0755);
  (void)!mkdir("full", 0750);
  Put("full/f", "inside");
  (void)!mkdir("full/sub", 0755);
  (void)!symlink("file", "link");
  (void)!symlink("nowhere", "dangling");
  (void)!mkfifo("fifo", 0644);
}

void Files(Script& t) {
  Populate();
  DO(rename("file", "file"));
  DO(rename("absent", "file"));
  DO(rename("file", "absent/file"));
  DO(rename("file", "another/file"));
  DO(rename("file", "empty"));
  DO(rename("file", "full"));
  DO(rename("file", "new/"));
  DO(rename("file/", "new"));
  DO(rename("file", ""));
  DO(rename("", "file"));
  DO(rename("file", "another"));
  t.State("replaced");
  DO(rename("another", "full/f"));
  DO(rename("full/f", "link"));
  DO(rename("link", "dangling"));
  DO(rename("dangling", "fifo"));
  DO(rename("fifo", "full/sub/deep"));
  t.State("after");
}

void Directories(Script& t) {
  Populate();
  DO(rename("full", "full"));
  DO(rename("full", "full/sub"));
  DO(rename("full", "full/sub/below"));
  DO(rename("full", "full/new"));
  DO(rename("full/sub", "full"));
  DO(rename("empty", "full"));
  DO(rename("full", "file"));
  DO(rename("full", "link"));
  DO(rename("full", "dangling"));
  DO(rename("full", "fifo"));
  DO(rename("full", "absent/full"));
  DO(rename("full", "moved/"));
  DO(rename("moved/", "empty/"));
  DO(rename("empty/sub", "empty"));
  DO(rename("empty/.", "x"));
  DO(rename("empty/sub/..", "x"));
  t.State("after");
  DO(rename("empty/sub", "sub"));
  struct stat up {
  }, here{};
  DO(stat("sub/..", &up) | stat(".", &here));
  SAY(up.st_ino == here.st_ino);
  t.State("sub moved");
}

void Symlinks(Script& t) {
  Populate();
  DO(rename("link", "file"));
  DO(rename("dangling", "empty"));
  DO(rename("empty", "file"));
  DO(rename("another", "dangling"));
  DO(symlink("empty", "to_directory"));
  DO(rename("to_directory", "moved"));
  DO(rename("full", "moved"));
  DO(rename("full", "moved/"));
  t.State("after");
}

void NoReplace(Script& t) {
  Populate();
  DO(Rename2("file", "another", RENAME_NOREPLACE));
  DO(Rename2("file", "file", RENAME_NOREPLACE));
  DO(Rename2("file", "empty", RENAME_NOREPLACE));
  DO(Rename2("file", "dangling", RENAME_NOREPLACE));
  DO(Rename2("full", "empty", RENAME_NOREPLACE));
  DO(Rename2("full", "full/sub/x", RENAME_NOREPLACE));
  DO(Rename2("absent", "new", RENAME_NOREPLACE));
  DO(Rename2("file", "new", RENAME_NOREPLACE));
  DO(Rename2("full", "new2", RENAME_NOREPLACE));
  t.State("after");
}

void Exchange(Script& t) {
  Populate();
  DO(Rename2("file", "another", RENAME_EXCHANGE));
  DO(Rename2("file", "file", RENAME_EXCHANGE));
  DO(Rename2("file", "absent", RENAME_EXCHANGE));
  DO(Rename2("absent", "file", RENAME_EXCHANGE));
  DO(Rename2("empty", "full", RENAME_EXCHANGE));
  t.State("alike");
  DO(Rename2("file", "empty", RENAME_EXCHANGE));
  DO(Rename2("link", "full", RENAME_EXCHANGE));
  DO(Rename2("fifo", "dangling", RENAME_EXCHANGE));
  t.State("mixed");
}

void ExchangeAcross(Script& t) {
  Populate();
  DO(Rename2("full/f", "file", RENAME_EXCHANGE));
  DO(Rename2("full/sub", "empty", RENAME_EXCHANGE));
  DO(Rename2("full", "full/sub", RENAME_EXCHANGE));
  DO(Rename2("full/sub", "full", RENAME_EXCHANGE));
  t.State("after");
}

void Flags(Script& t) {
  Populate();
  DO(Rename2("file", "another", RENAME_EXCHANGE | RENAME_NOREPLACE));
  DO(Rename2("file", "new", RENAME_WHITEOUT | RENAME_EXCHANGE));
  DO(Rename2("file", "new", 1u << 20));
  t.State("after");
  DO(Rename2("file", "new", RENAME_WHITEOUT));
}

// The usual way of writing a file whole: a temporary, closed or not, that takes the name.
void WhileOpen(Script& t) {
  Put("file", "old");
  const int reader = FD(open("file", O_RDONLY));
  const int writer = FD(open("file.tmp", O_RDWR | O_CREAT | O_EXCL, 0644));
  DO(write(writer, "new", 3));
  DO(rename("file.tmp", "file"));
  SAY(Get("file"));
  DO(write(writer, "er", 2));
  SAY(Get("file"));
  char bytes[8] = {};
  DO(read(reader, bytes, sizeof bytes));
  SAY(std::string(bytes));
  struct stat st {};
  DO(fstat(reader, &st));
  SAY(st.st_nlink);
  DO(fstat(writer, &st));
  SAY(st.st_nlink);
  DO(Rename2("file", "other", RENAME_NOREPLACE));
  DO(write(writer, "!", 1));
  t.State("after");
}

// One name is still being written.
void ExchangeWhileOpen(Script& t) {
  Put("file", "old");
  const int writer = FD(open("new", O_RDWR | O_CREAT | O_EXCL, 0644));
  DO(write(writer, "new", 3));
  DO(Rename2("new", "file", RENAME_EXCHANGE));
  DO(Rename2("file", "new", RENAME_EXCHANGE));
  t.State("after");
}

}  // namespace

void AddRenameCases(Cases& cases) {
  cases.insert(cases.end(), {{"rename.files", Files},
                             {"rename.directories", Directories},
                             {"rename.symlinks", Symlinks},
                             {"rename.noreplace", NoReplace},
                             {"rename.exchange", Exchange},
                             {"rename.exchange_across", ExchangeAcross},
                             {"rename.flags", Flags},
                             {"rename.while_open", WhileOpen},
                             {"rename.exchange_while_open", ExchangeWhileOpen}});
}

}  // namespace prefixfs::posix
