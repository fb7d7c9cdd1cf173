#include "tools/fsck/snapshot.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "cache/base/fd.h"

namespace prefixfs::fsck {
namespace {

constexpr const char* kNames[kTables] = {nullptr,  "inodes", "dentries", "children",
                                         "hashes", "models", "trash"};
constexpr unsigned kMostSeconds = 1200;  // for the child that reads a file that may lead it astray
constexpr size_t kSealBytes = 8;
constexpr MDB_dbi kFreeList = 0;  // LMDB's own table of free pages

Status Unreadable(int rc, const std::string& what) {
  return {Code::kCorrupt, what + ": " + mdb_strerror(rc)};
}

MDB_val ToVal(std::string_view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }
std::string_view FromVal(const MDB_val& value) {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

// Runs `read` in a child; what it says comes back. A child that dies has said enough.
Status InChild(const std::function<Status()>& read) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::FromErrno(errno, "pipe");
  Fd from(ends[0]), to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return Status::FromErrno(errno, "fork");
  if (child == 0) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM})
      std::signal(signal, SIG_DFL);
    ::alarm(kMostSeconds);
    const Status status = read();
    const std::string text = status.message().substr(0, 1024);
    const bool told = ::write(to.get(), text.data(), text.size()) >= 0;
    ::_exit(told && status.ok() ? 0 : 1);
  }
  to.Reset();
  std::string text(1024, '\0');
  ssize_t n;
  while ((n = ::read(from.get(), text.data(), text.size())) < 0 && errno == EINTR) continue;
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Ok();
  if (WIFSIGNALED(status))
    text = "it ends its reader with signal " + std::to_string(WTERMSIG(status));
  if (text.empty()) text = "it has more entries than there is room for";
  return {Code::kCorrupt, text};
}

}  // namespace

uint64_t BigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

std::string BigEndian(uint64_t value, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = bytes; i-- > 0; value >>= 8) text[i] = static_cast<char>(value);
  return text;
}

std::optional<std::string_view> Unsealed(std::string_view key, std::string_view sealed) {
  if (sealed.size() < kSealBytes) return std::nullopt;
  const std::string_view value = sealed.substr(0, sealed.size() - kSealBytes);
  const uint64_t digest =
      XXH3_64bits_withSeed(value.data(), value.size(), XXH3_64bits(key.data(), key.size()));
  if (digest != BigEndian(sealed.substr(value.size()))) return std::nullopt;
  return value;
}

Result<std::unique_ptr<Snapshot>> Snapshot::Open(int index) {
  PFS_TRY(InChild([index]() -> Status {
    Snapshot trial;
    PFS_TRY(trial.OpenHere(index));
    PFS_TRY(trial.ReadAll());
    (void)trial.PageFault();
    return Ok();
  }));
  std::unique_ptr<Snapshot> snapshot(new Snapshot);
  PFS_TRY(snapshot->OpenHere(index));
  return snapshot;
}

Status Snapshot::OpenHere(int index) {
  struct stat st {};
  if (::fstatat(index, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
    return {Code::kCorrupt, "data.mdb is no regular file"};
  const std::string path = "/proc/self/fd/" + std::to_string(index);
  int rc = mdb_env_create(&env_);
  if (rc == 0) rc = mdb_env_set_maxdbs(env_, kTables);
  if (rc == 0) rc = mdb_env_open(env_, path.c_str(), MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS, 0);
  if (rc != 0) return Unreadable(rc, "LMDB does not open data.mdb");
  if (rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn_); rc != 0)
    return Unreadable(rc, "LMDB does not read data.mdb");
  for (int i = 0; i < kTables; ++i) {
    rc = mdb_dbi_open(txn_, kNames[i], 0, &tables_[i]);
    if (rc != 0)
      return Unreadable(rc, std::string("table ") + (kNames[i] != nullptr ? kNames[i] : "(main)"));
  }
  return Ok();
}

Snapshot::~Snapshot() {
  if (txn_ != nullptr) mdb_txn_abort(txn_);
  if (env_ != nullptr) mdb_env_close(env_);
}

std::optional<std::string_view> Snapshot::Get(Table table, std::string_view key) const {
  MDB_val k = ToVal(key), v{};
  if (mdb_get(txn_, tables_[static_cast<int>(table)], &k, &v) != 0) return std::nullopt;
  return FromVal(v);
}

Status Snapshot::ForEach(Table table, const Visit& visit) const {
  MDB_cursor* cursor = nullptr;
  int rc = mdb_cursor_open(txn_, tables_[static_cast<int>(table)], &cursor);
  MDB_val key{}, value{};
  if (rc == 0) rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
  while (rc == 0) {
    visit(FromVal(key), FromVal(value));
    rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
  }
  if (cursor != nullptr) mdb_cursor_close(cursor);
  return rc == MDB_NOTFOUND ? Ok() : Unreadable(rc, "LMDB does not read on");
}

// Touches every byte of every entry, and gives up when there are more than the file can hold.
Status Snapshot::ReadAll() const {
  MDB_envinfo info{};
  MDB_stat stat{};
  if (mdb_env_info(env_, &info) != 0 || mdb_env_stat(env_, &stat) != 0)
    return {Code::kCorrupt, "LMDB says nothing of the file"};
  const uint64_t most = (info.me_last_pgno + 1) * stat.ms_psize / 8;
  uint64_t entries = 0;
  volatile uint64_t digest = 0;
  for (int table = 0; table < kTables; ++table) {
    PFS_TRY(ForEach(static_cast<Table>(table), [&](std::string_view key, std::string_view value) {
      digest = digest + XXH3_64bits(key.data(), key.size());
      digest = digest + XXH3_64bits(value.data(), value.size());
      if (++entries > most) ::_exit(1);
    }));
  }
  return Ok();
}

uint64_t Snapshot::transaction() const { return mdb_txn_id(txn_); }

Result<uint64_t> Snapshot::CountFreePages() const {
  MDB_cursor* cursor = nullptr;
  int rc = mdb_cursor_open(txn_, kFreeList, &cursor);
  MDB_val key{}, value{};
  uint64_t free_pages = 0;
  if (rc == 0) rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
  for (; rc == 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
    size_t count = 0;  // of the page numbers that follow it
    if (value.mv_size >= sizeof(count)) std::memcpy(&count, value.mv_data, sizeof(count));
    free_pages += count;
  }
  if (cursor != nullptr) mdb_cursor_close(cursor);
  if (rc != MDB_NOTFOUND) return Unreadable(rc, "LMDB does not read the free list");
  return free_pages;
}

std::string Snapshot::PageFault() const {
  const Result<uint64_t> free_pages = CountFreePages();
  if (!free_pages.ok()) return free_pages.status().message();
  MDB_envinfo info{};
  (void)mdb_env_info(env_, &info);
  uint64_t used = 2 + *free_pages;  // two pages say where all others are
  const auto add = [&](MDB_dbi table, MDB_stat* stat) {
    if (mdb_stat(txn_, table, stat) != 0) return false;
    used += stat->ms_branch_pages + stat->ms_leaf_pages + stat->ms_overflow_pages;
    return true;
  };
  MDB_stat stat{};
  if (!add(kFreeList, &stat)) return "LMDB says nothing of the free list";
  for (int table = 0; table < kTables; ++table) {
    if (!add(tables_[table], &stat)) return "LMDB says nothing of a table";
    uint64_t entries = 0;
    const Status read = ForEach(static_cast<Table>(table), [&](auto, auto) { ++entries; });
    if (!read.ok()) return read.message();
    if (entries != stat.ms_entries)
      return "a table has " + std::to_string(entries) + " entries and says " +
             std::to_string(stat.ms_entries);
  }
  if (used == info.me_last_pgno + 1) return "";
  return std::to_string(used) + " pages are in use or free, of " +
         std::to_string(info.me_last_pgno + 1);
}

}  // namespace prefixfs::fsck
