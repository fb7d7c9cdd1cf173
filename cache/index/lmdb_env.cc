#include "cache/index/lmdb_env.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "cache/base/fd.h"

namespace prefixfs {
namespace {

constexpr unsigned kMaxReaders = 1024;
constexpr unsigned kMaxTables = 16;
constexpr uint64_t kMapStep = 64 * 1024;  // a multiple of every page size
constexpr uint64_t kStretchBytes = 4 << 20;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kMapStep - 1) / kMapStep * kMapStep; }

// The map to start with: what was asked for, and room to write beside what is there.
uint64_t FirstMap(const std::string& directory, uint64_t initial_map, uint64_t max_map) {
  struct stat st {};
  uint64_t have = 0;
  if (::stat((directory + "/data.mdb").c_str(), &st) == 0) have = static_cast<uint64_t>(st.st_size);
  const uint64_t want = std::min(std::max(initial_map, have * 2), max_map);
  return RoundUp(std::max({want, have, kMapStep}));
}

Status OpenError(int rc) {
  // With a damaged header LMDB asks for a map of any size.
  if (rc == ENOMEM || rc == EINVAL) return {Code::kCorrupt, "index: LMDB cannot map its file"};
  return FromLmdb(rc, "index: open LMDB");
}

// A map that cannot be had must be known before the one in use is given up.
Status TryMap(MDB_env* env, uint64_t bytes) {
  int fd = -1;
  mdb_env_get_fd(env, &fd);
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return Status::FromErrno(errno, "index: grow the map");
  ::munmap(map, bytes);
  return Ok();
}

// LMDB tells the address of its map only if the caller chose it.
char* FindMap(int fd) {
  struct stat st {};
  std::ifstream maps("/proc/self/maps");
  if (::fstat(fd, &st) != 0) return nullptr;
  char device[32];
  std::snprintf(device, sizeof device, "%02x:%02x", major(st.st_dev), minor(st.st_dev));
  for (std::string line; std::getline(maps, line);) {
    unsigned long long from = 0, inode = 0;
    char on[32] = "";
    if (std::sscanf(line.c_str(), "%llx-%*x %*s %*s %31s %llu", &from, on, &inode) == 3 &&
        inode == st.st_ino && std::string_view(on) == device)
      return reinterpret_cast<char*>(from);
  }
  return nullptr;
}

// While this lives LMDB finds memory where it looks for the file of its table of readers.
//
// Each read notes itself in that table, through a mapping. Were it a file of the drive, the kernel
// would have a read wait for a drive that takes no writes. Nobody but this process, which has the
// index alone, needs the table.
class ReadersInMemory {
 public:
  explicit ReadersInMemory(const std::string& directory) : name_(directory + "/lock.mdb") {
    (void)::unlink(name_.c_str());
    memory_ = Fd(::memfd_create("prefixfs-readers", MFD_CLOEXEC));
    const std::string target = "/proc/self/fd/" + std::to_string(memory_.get());
    // Where this cannot be done LMDB makes a file.
    linked_ = memory_.valid() && ::access(target.c_str(), R_OK | W_OK) == 0 &&
              ::symlink(target.c_str(), name_.c_str()) == 0;
  }
  ~ReadersInMemory() {
    if (linked_) (void)::unlink(name_.c_str());
  }
  ReadersInMemory(const ReadersInMemory&) = delete;
  ReadersInMemory& operator=(const ReadersInMemory&) = delete;

 private:
  const std::string name_;
  Fd memory_;
  bool linked_ = false;
};

}  // namespace

Status FromLmdb(int rc, std::string_view what) {
  std::string message(what);
  message += ": ";
  message += mdb_strerror(rc);
  switch (rc) {
    case MDB_SUCCESS:
      return Ok();
    case MDB_NOTFOUND:
      return {Code::kNotFound, std::move(message)};
    case MDB_KEYEXIST:
      return {Code::kExists, std::move(message)};
    case MDB_MAP_FULL:
      return {Code::kNoSpace, std::move(message)};
    case MDB_READERS_FULL:
      return {Code::kRejected, std::move(message)};
    case MDB_PANIC:
      return {Code::kUnavailable, std::move(message)};
    case MDB_PAGE_NOTFOUND:
    case MDB_CORRUPTED:
    case MDB_VERSION_MISMATCH:
    case MDB_INVALID:
    case MDB_INCOMPATIBLE:
      return {Code::kCorrupt, std::move(message)};
    case MDB_BAD_VALSIZE:
      return {Code::kTooLong, std::move(message)};
    default:
      break;
  }
  if (rc > 0) return Status::FromErrno(rc, what);
  return {Code::kIo, std::move(message)};
}

MapLock::MapLock() {
  pthread_rwlockattr_t attributes;
  pthread_rwlockattr_init(&attributes);
  pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  pthread_rwlock_init(&lock_, &attributes);
  pthread_rwlockattr_destroy(&attributes);
}

MapLock::~MapLock() { pthread_rwlock_destroy(&lock_); }

ReadTxn::~ReadTxn() {
  if (txn_ != nullptr) env_->EndRead(txn_);
}

void WriteTxn::Abort() {
  if (txn_ != nullptr) mdb_txn_abort(std::exchange(txn_, nullptr));
}

int WriteTxn::Commit() {
  env_->commits_begun_.fetch_add(1);
  return mdb_txn_commit(std::exchange(txn_, nullptr));
}

Result<std::unique_ptr<LmdbEnv>> LmdbEnv::Open(const std::string& directory, uint64_t initial_map,
                                               uint64_t max_map) {
  std::unique_ptr<LmdbEnv> env(new LmdbEnv);
  {
    // A destructor gives transactions back, and must not need memory for it.
    MutexLock lock(env->pool_mutex_);
    env->pool_.reserve(kMaxReaders);
  }
  env->max_map_ = RoundUp(max_map);
  env->map_bytes_ = FirstMap(directory, initial_map, max_map);
  int rc = mdb_env_create(&env->env_);
  if (rc == 0) rc = mdb_env_set_maxdbs(env->env_, kMaxTables);
  if (rc == 0) rc = mdb_env_set_maxreaders(env->env_, kMaxReaders);
  if (rc == 0) rc = mdb_env_set_mapsize(env->env_, env->map_bytes_);
  if (rc != 0) return FromLmdb(rc, "index: set up LMDB");
  const ReadersInMemory readers(directory);
  // NOTLS: read transactions are pooled and move between threads.
  rc = mdb_env_open(env->env_, directory.c_str(), MDB_NOTLS, 0600);
  if (rc != 0) return OpenError(rc);
  return env;
}

LmdbEnv::~LmdbEnv() {
  {
    MutexLock lock(pool_mutex_);
    for (MDB_txn* txn : pool_) mdb_txn_abort(txn);
  }
  if (env_ != nullptr) mdb_env_close(env_);
}

MDB_txn* LmdbEnv::TakePooled() {
  MutexLock lock(pool_mutex_);
  if (pool_.empty()) return nullptr;
  MDB_txn* txn = pool_.back();
  pool_.pop_back();
  return txn;
}

// LMDB copies the roots out of one of two meta pages by turns. A reader that is overtaken by two
// commits just then would copy a page that is being written, so a snapshot counts only if no commit
// began while it was taken.
int LmdbEnv::Renew(MDB_txn* txn) {
  for (;;) {
    const uint64_t before = commits_begun_.load();
    const int rc = mdb_txn_renew(txn);
    if (rc != 0 || commits_begun_.load() == before) return rc;
    mdb_txn_reset(txn);
  }
}

Result<ReadTxn> LmdbEnv::BeginRead() {
  map_lock_.LockShared();
  int rc = map_lost_ ? MDB_PANIC : MDB_SUCCESS;
  MDB_txn* txn = rc == 0 ? TakePooled() : nullptr;
  if (rc == 0 && txn == nullptr) {
    rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn);
    if (rc == 0) mdb_txn_reset(txn);
  }
  if (rc == 0) rc = Renew(txn);
  if (rc == 0) return ReadTxn(this, txn);
  if (txn != nullptr) mdb_txn_abort(txn);
  map_lock_.Unlock();
  return FromLmdb(rc, "index: begin a read");
}

void LmdbEnv::EndRead(MDB_txn* txn) {
  mdb_txn_reset(txn);
  {
    MutexLock lock(pool_mutex_);
    pool_.push_back(txn);
  }
  map_lock_.Unlock();
}

Result<WriteTxn> LmdbEnv::BeginWrite() {
  if (map_lost_) return FromLmdb(MDB_PANIC, "index: begin a write");
  MDB_txn* txn = nullptr;
  const int rc = mdb_txn_begin(env_, nullptr, 0, &txn);
  if (rc != 0) return FromLmdb(rc, "index: begin a write");
  return WriteTxn(this, txn);
}

Status LmdbEnv::Grow() {
  const uint64_t bytes = map_bytes_;
  if (bytes >= max_map_) {
    return {Code::kNoSpace,
            "index: the map has its largest size, " + std::to_string(max_map_) + " bytes"};
  }
  return Resize(std::min(bytes * 2, max_map_));
}

Status LmdbEnv::Stretch() {
  if (map_bytes_ >= max_map_ + kStretchBytes) {
    return {Code::kNoSpace, "index: the map is full, even for what would free space"};
  }
  return Resize(max_map_ + kStretchBytes);
}

void LmdbEnv::Retract() {
  // LMDB keeps at least what is in use. If it fails the map is lost and every later call says so.
  if (Status status = Resize(max_map_); !status.ok()) return;
}

Status LmdbEnv::Resize(uint64_t bytes) {
  PFS_TRY(TryMap(env_, bytes));
  map_lock_.LockAlone();
  populated_bytes_ = 0;
  const int rc = mdb_env_set_mapsize(env_, bytes);
  MDB_envinfo info{};
  if (rc == 0 && mdb_env_info(env_, &info) == 0) {
    map_bytes_ = info.me_mapsize;
  } else {
    map_lost_ = true;  // LMDB unmaps before it maps, so there is no map now
  }
  map_lock_.Unlock();
  return FromLmdb(rc, "index: resize the map");
}

void LmdbEnv::Populate(uint64_t max_bytes) {
  int fd = -1;
  mdb_env_get_fd(env_, &fd);
  struct stat st {};
  if (::fstat(fd, &st) != 0) return;
  map_lock_.LockShared();
  const uint64_t end = std::min<uint64_t>(static_cast<uint64_t>(st.st_size), map_bytes_);
  if (!map_lost_ && end >= populated_bytes_ + kMapStep) {
    char* const map = FindMap(fd);
    const uint64_t bytes = std::min(end - populated_bytes_, max_bytes) / kMapStep * kMapStep;
    // Advice: a kernel that does not know it (before 5.14) makes the first lookups do the same.
    if (map != nullptr && ::madvise(map + populated_bytes_, bytes, MADV_POPULATE_READ) == 0)
      populated_bytes_ += bytes;
  }
  map_lock_.Unlock();
}

Status LmdbEnv::Sync() {
  int fd = -1;
  mdb_env_get_fd(env_, &fd);
  // Not mdb_env_sync: nothing of the map is needed, and Grow need not wait for the disk.
  if (::fdatasync(fd) != 0) return Status::FromErrno(errno, "index: sync");
  return Ok();
}

}  // namespace prefixfs
