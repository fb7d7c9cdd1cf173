#include "cache/index/index_check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/index/index.h"
#include "cache/index/index_impl.h"
#include "cache/index/index_state.h"
#include "cache/index/page_check.h"
#include "cache/index/table_check.h"

namespace prefixfs {
namespace {

constexpr size_t kMaxFinding = 1024;

// Where the child answers: one byte, the Code, then the message. Set in the child only.
int answer_fd = -1;

[[noreturn]] void Answer(const Status& status) {
  std::string text(1, static_cast<char>(status.code()));
  text += status.message().substr(0, kMaxFinding);
  // At most PIPE_BUF, so it is written whole or not at all.
  const ssize_t n = ::write(answer_fd, text.data(), text.size());
  ::_exit(n == static_cast<ssize_t>(text.size()) && status.ok() ? 0 : 1);
}

void OnLmdbAssert(MDB_env*, const char* what) {
  Answer(Status(Code::kCorrupt, std::string("index: LMDB: ") + what));
}

// A damaged file may well kill this process: let it die quietly and at once.
void PrepareToDie(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  for (int sig : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) std::signal(sig, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

Status CheckFilePages(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st {};
  if (!fd.valid() || ::fstat(fd.get(), &st) != 0) return Status::FromErrno(errno, path);
  const auto size = static_cast<size_t>(st.st_size);
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return Status::FromErrno(errno, path);
  Status status = CheckPages({static_cast<const uint8_t*>(map), size});
  ::munmap(map, size);
  return status;
}

// In the child. Whatever is wrong is told by the answer, so nothing is released on failure.
Status CheckFiles(const std::string& directory, NameHash name_hash) {
  PFS_TRY(CheckFilePages(directory + "/data.mdb"));
  MDB_env* env = nullptr;
  int rc = mdb_env_create(&env);
  if (rc == 0) rc = mdb_env_set_maxdbs(env, 16);
  if (rc == 0) rc = mdb_env_set_assert(env, OnLmdbAssert);
  // The lock on the index keeps writers out.
  if (rc == 0) rc = mdb_env_open(env, directory.c_str(), MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS, 0);
  MDB_txn* txn = nullptr;
  if (rc == 0) rc = mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn);
  Status status = rc == 0 ? CheckTables(txn, name_hash) : FromLmdb(rc, "index: open LMDB");
  if (txn != nullptr) mdb_txn_abort(txn);
  if (env != nullptr) mdb_env_close(env);
  // Whatever else keeps LMDB from reading what the pages promised, this index is of no use.
  if (status.ok() || status.Is(Code::kNoDescriptors)) return status;
  return {Code::kCorrupt, status.message()};
}

// Reads the answer to its end; false at the timeout.
bool ReadAnswer(int fd, int64_t timeout_ms, std::string* answer) {
  const int64_t deadline_ns = Clock::Real().MonotonicNs() + timeout_ms * kNsPerMs;
  for (;;) {
    const int64_t left_ms = (deadline_ns - Clock::Real().MonotonicNs()) / kNsPerMs;
    if (left_ms <= 0) return false;
    pollfd poll_fd{fd, POLLIN, 0};
    const int ready = ::poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left_ms, 60'000)));
    if (ready <= 0) continue;
    char buffer[kMaxFinding + 1];
    const ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    answer->append(buffer, static_cast<size_t>(n));
  }
}

// Whether the file is, bit for bit, the one that its last user closed. That one was checked, or
// made anew, when it was opened, and nobody but LMDB has written it since.
bool IsAsClosed(int directory_fd) {
  const Result<IndexState> state = ReadIndexState(directory_fd);
  if (!state.ok() || !state->clean || state->digest.empty()) return false;
  const Result<std::string> digest = DigestOfData(directory_fd);
  return digest.ok() && *digest == state->digest;
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit code " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

}  // namespace

Status RunInChild(Status (*job)(const std::string& directory, NameHash name_hash),
                  const std::string& directory, NameHash name_hash, int64_t timeout_ms) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::FromErrno(errno, "index check: pipe");
  Fd read_end(ends[0]), write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Status::FromErrno(errno, "index check: fork");
  if (child == 0) {
    PrepareToDie(parent);
    answer_fd = write_end.get();
    Answer(job(directory, name_hash));
  }
  write_end.Reset();
  std::string answer;
  const bool in_time = ReadAnswer(read_end.get(), timeout_ms, &answer);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  pid_t reaped = -1;
  do {
    reaped = ::waitpid(child, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  if (!in_time) return {Code::kCorrupt, "index: the check took too long"};
  if (!answer.empty()) return {static_cast<Code>(answer[0]), answer.substr(1)};
  return {Code::kCorrupt, "index: the check died: " + HowItEnded(reaped < 0 ? -1 : status)};
}

Status CheckIndexWith(const std::string& directory, int64_t timeout_ms, NameHash name_hash) {
  struct stat st {};
  if (::stat((directory + "/data.mdb").c_str(), &st) != 0) {
    return Status::FromErrno(errno, "index: data.mdb");
  }
  if (st.st_size == 0) return {Code::kNotFound, "index: data.mdb is empty"};
  Fd dir(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir.valid()) return Status::FromErrno(errno, directory);
  const Fd lock = PFS_TRY(LockIndex(dir.get()));
  if (IsAsClosed(dir.get())) return Ok();
  return RunInChild(CheckFiles, directory, name_hash, timeout_ms);
}

Status CheckIndex(const std::string& directory, int64_t timeout_ms) {
  return CheckIndexWith(directory, timeout_ms, DefaultNameHash);
}

}  // namespace prefixfs
