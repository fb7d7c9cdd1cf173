// Several processes on one file: appending, locks, handles handed down; and places that are gone.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "tests/posix/script.h"

namespace prefixfs::posix {
namespace {

constexpr int kRecords = 200;
constexpr size_t kRecord = 64;

std::string Record(char who, int number) {
  char text[kRecord + 1];
  std::snprintf(text, sizeof text, "%c%05d%*s", who, number, static_cast<int>(kRecord) - 6, "\n");
  return text;
}

// How many whole records of each writer the file has, in order.
std::string Tally(const char* path) {
  FILE* file = fopen(path, "r");
  if (file == nullptr) return Errno();
  std::map<char, int> next;
  char record[kRecord + 1] = {};
  long total = 0;
  bool torn = false;
  while (fread(record, 1, kRecord, file) == kRecord) {
    ++total;
    torn |= Record(record[0], next[record[0]]++) != record;
  }
  fclose(file);
  return std::to_string(total) + (torn ? " torn" : " whole");
}

template <typename Body>
pid_t Fork(Body body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);
    body();
    _exit(0);
  }
  return pid;
}

void AppendRecords(int fd, char who) {
  for (int i = 0; i < kRecords; ++i) {
    const std::string record = Record(who, i);
    if (write(fd, record.data(), record.size()) != static_cast<ssize_t>(record.size())) _exit(1);
  }
}

int ExitOf(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

// One open file, given to two children.
void AppendThroughOneHandle(Script& t) {
  const int fd = FD(open("f", O_WRONLY | O_CREAT | O_APPEND, 0644));
  const pid_t one = Fork([&] { AppendRecords(fd, 'a'); });
  const pid_t two = Fork([&] { AppendRecords(fd, 'b'); });
  SAY(ExitOf(one));
  SAY(ExitOf(two));
  SAY(Tally("f"));
}

// Each process opens the file itself, and none writes before both have.
void AppendThroughTwo(Script& t) {
  Put("f", "");
  int opened[2], go[2];
  DO(pipe(opened) | pipe(go));
  const auto open_and_append = [&](char who) {
    const int fd = open("f", O_WRONLY | O_APPEND);
    if (fd < 0) _exit(2);
    char byte = 0;
    if (write(opened[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) _exit(3);
    AppendRecords(fd, who);
  };
  const pid_t one = Fork([&] { open_and_append('a'); });
  const pid_t two = Fork([&] { open_and_append('b'); });
  char bytes[2] = {};
  DO(read(opened[0], bytes, 1) + read(opened[0], bytes, 1));
  DO(write(go[1], bytes, 2));
  SAY(ExitOf(one));
  SAY(ExitOf(two));
  for (const int fd : {opened[0], opened[1], go[0], go[1]}) close(fd);
  SAY(Tally("f"));
}

// Opened and closed by two at once, so that each comes just as the other has gone. The name is one
// of policy posix wherever it is: of a block each would get a version of its own.
void OpenInTurn(Script& t) {
  Put("config.json", "content");
  const auto open_often = [] {
    for (int i = 0; i < 300; ++i) {
      const int fd = open("config.json", i % 3 == 0 ? O_RDWR : O_WRONLY | O_APPEND);
      if (fd < 0) return "round " + std::to_string(i) + ": " + Errno();
      close(fd);
    }
    return std::string("opened");
  };
  const pid_t other = Fork([&] { _exit(open_often() != "opened" ? 1 : 0); });
  SAY(open_often());
  SAY(ExitOf(other));
  SAY(Get("config.json"));
}

// One after the other.
void AppendInTurn(Script& t) {
  for (const char who : {'a', 'b', 'c'}) {
    const pid_t pid = Fork([&] {
      const int fd = open("f", O_WRONLY | O_CREAT | O_APPEND, 0644);
      if (fd < 0) _exit(2);
      AppendRecords(fd, who);
    });
    SAY(ExitOf(pid));
  }
  SAY(Tally("f"));
}

void LockedByAnother(Script& t) {
  const int fd = FD(open("f", O_RDWR));
  DO(flock(fd, LOCK_EX | LOCK_NB));
  DO(flock(fd, LOCK_SH | LOCK_NB));
}

void Flocks(Script& t) {
  Put("f", "content");
  const int fd = FD(open("f", O_RDWR));
  const int again = FD(open("f", O_RDWR));
  DO(flock(fd, LOCK_SH));
  DO(flock(again, LOCK_SH | LOCK_NB));
  DO(flock(again, LOCK_EX | LOCK_NB));
  DO(flock(again, LOCK_UN));
  DO(flock(fd, LOCK_EX | LOCK_NB));
  t.InChild(LockedByAnother);
  DO(flock(fd, LOCK_UN));
  t.InChild(LockedByAnother);
  const int directory = FD(open(".", O_RDONLY));
  DO(flock(directory, LOCK_EX | LOCK_NB));
}

int SetLock(int fd, int command, short type, off_t start, off_t length) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  const int result = fcntl(fd, command, &lock);
  return command == F_GETLK || command == F_OFD_GETLK ? lock.l_type : result;
}

void RecordLocksOfAnother(Script& t) {
  const int fd = FD(open("f", O_RDWR));
  DO(SetLock(fd, F_GETLK, F_WRLCK, 0, 10));
  DO(SetLock(fd, F_SETLK, F_WRLCK, 0, 10));
  DO(SetLock(fd, F_SETLK, F_WRLCK, 100, 10));
  DO(SetLock(fd, F_SETLK, F_RDLCK, 50, 10));
  DO(SetLock(fd, F_OFD_SETLK, F_WRLCK, 0, 10));
}

void RecordLocks(Script& t) {
  Put("f", "content");
  const int fd = FD(open("f", O_RDWR));
  DO(SetLock(fd, F_SETLK, F_WRLCK, 0, 10));
  DO(SetLock(fd, F_SETLK, F_RDLCK, 50, 10));
  DO(SetLock(fd, F_SETLK, F_WRLCK, 0, 5));
  t.InChild(RecordLocksOfAnother);
  DO(SetLock(fd, F_SETLK, F_UNLCK, 0, 0));
  t.InChild(RecordLocksOfAnother);
  const int other = FD(open("f", O_RDWR));
  DO(SetLock(fd, F_OFD_SETLK, F_WRLCK, 0, 10));
  DO(SetLock(other, F_OFD_SETLK, F_WRLCK, 5, 10));
  DO(SetLock(other, F_OFD_SETLK, F_WRLCK, 10, 10));
  const int read_only = FD(open("f", O_RDONLY));
  DO(SetLock(read_only, F_SETLK, F_WRLCK, 0, 1));
  DO(lockf(fd, F_TEST, 0));
}

void UsesTheHandle(Script& t, int fd) {
  DO(write(fd, "child ", 6));
  DO(lseek(fd, 0, SEEK_CUR));
}

void HandleHandedDown(Script& t) {
  const int fd = FD(open("f", O_RDWR | O_CREAT, 0644));
  DO(write(fd, "parent ", 7));
  t.InChild([fd](Script& child) { UsesTheHandle(child, fd); });
  DO(lseek(fd, 0, SEEK_CUR));
  DO(write(fd, "parent", 6));
  SAY(Get("f"));
}

void InARemovedDirectory(Script& t) {
  DO(mkdir("d", 0755));
  const int directory = FD(open("d", O_RDONLY | O_DIRECTORY));
  DO(chdir("d"));
  DO(rmdir("../d"));
  char path[4096];
  SAY(getcwd(path, sizeof path) == nullptr ? Errno() : "found");
  struct stat st {};
  DO(stat(".", &st));
  SAY(st.st_nlink);
  DO(fstat(directory, &st));
  SAY(S_ISDIR(st.st_mode));
  DO(open("f", O_CREAT | O_RDWR, 0644));
  DO(mkdir("sub", 0755));
  DO(open("f", O_RDONLY));
  FD(open(".", O_TMPFILE | O_RDWR, 0600));
  DO(fchmod(directory, 0700));
  DO(fstat(directory, &st));
  SAY(st.st_mode & 07777);
  DO(futimens(directory, nullptr));
  DO(fsync(directory));
  DO(chdir(".."));
  t.State("after");
}

void InAMovedDirectory(Script& t) {
  DO(mkdir("d", 0755));
  DO(mkdir("d/sub", 0755));
  const int directory = FD(open("d/sub", O_RDONLY | O_DIRECTORY));
  DO(rename("d", "e"));
  FD(openat(directory, "f", O_CREAT | O_RDWR, 0644));
  DO(fchdir(directory));
  char path[4096];
  SAY(getcwd(path, sizeof path) == nullptr ? Errno() : std::string(strrchr(path, '/')));
  DO(chdir("../.."));
  t.State("after");
}

}  // namespace

void AddProcessCases(Cases& cases) {
  cases.insert(cases.end(), {{"processes.append_one_handle", AppendThroughOneHandle},
                             {"processes.append_two_handles", AppendThroughTwo},
                             {"processes.open_in_turn", OpenInTurn},
                             {"processes.append_in_turn", AppendInTurn},
                             {"processes.flock", Flocks},
                             {"processes.record_locks", RecordLocks},
                             {"processes.handed_down", HandleHandedDown},
                             {"processes.removed_directory", InARemovedDirectory},
                             {"processes.moved_directory", InAMovedDirectory}});
}

}  // namespace prefixfs::posix
