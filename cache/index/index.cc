#include "cache/index/index.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/waiting.h"
#include "cache/index/index_impl.h"
#include "cache/index/index_state.h"

namespace prefixfs {
namespace {

// How many inodes ForEach reads at once. Between pieces no snapshot is held: an old one would keep
// LMDB from reusing pages, and the visitor may use the index.
constexpr size_t kScanPiece = 256;
// Numbers from here on would come from damage, and leave too little room for more.
constexpr Ino kMaxIno = uint64_t{1} << 62;

Inode RootInode() {
  Inode root;
  root.ino = kRootIno;
  root.parent = kRootIno;
  root.mode = S_IFDIR | 0755;
  root.flags = inode_flag::kKeep;
  root.atime_ns = root.mtime_ns = root.ctime_ns = root.btime_ns = Clock::Real().WallNs();
  return root;
}

}  // namespace

Result<Fd> LockIndex(int directory_fd) {
  Fd fd(::openat(directory_fd, "LOCK", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return Status::FromErrno(errno, "index: LOCK");
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) return {Code::kRejected, "the index is in use by another process"};
  return Status::FromErrno(errno, "index: LOCK");
}

Result<std::unique_ptr<Index>> Index::Open(const IndexOptions& options) {
  std::unique_ptr<IndexImpl> index = PFS_TRY(IndexImpl::Open(options, DefaultNameHash));
  return std::unique_ptr<Index>(std::move(index));
}

Result<std::unique_ptr<IndexImpl>> IndexImpl::Open(const IndexOptions& options,
                                                   NameHash name_hash) {
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) return Status::FromErrno(error.value(), options.directory);
  std::unique_ptr<IndexImpl> index(new IndexImpl(name_hash));
  index->directory_ = Fd(::open(options.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!index->directory_.valid()) return Status::FromErrno(errno, options.directory);
  PFS_TRY(index->TakeOver());
  index->env_ = PFS_TRY(LmdbEnv::Open(options.directory, options.initial_map, options.max_map));
  index->commits_ = std::make_unique<GroupCommit>(*index->env_, index->tables_, name_hash,
                                                  index->inos_, index->directory_.get());
  PFS_TRY(index->Start());
  index->env_->SetNoSync();
  // Reserves the first numbers, so that changes need not wait for any. A failure shows when they
  // are asked for.
  if (!index->stale_) (void)index->commits_->Run([](IndexTxn&) { return Ok(); });
  return index;
}

Status IndexImpl::TakeOver() {
  lock_ = PFS_TRY(LockIndex(directory_.get()));
  const IndexState before = PFS_TRY(ReadIndexState(directory_.get()));
  lineage_.boot_id = before.boot_id;
  lineage_.closed_clean = before.clean;
  const std::string boot = CurrentBootId();
  struct stat data {};
  const bool empty = ::fstatat(directory_.get(), "data.mdb", &data, 0) != 0 || data.st_size == 0;
  stale_ = !empty && !before.clean && before.boot_id != boot;
  // A stale index stays marked as stale, whatever becomes of this process before it is replaced.
  // Otherwise "in use" must be on the disk before anything is written that is not synced.
  return stale_ ? Ok() : WriteIndexState(directory_.get(), {boot, false, {}});
}

Status IndexImpl::Start() {
  for (;;) {
    WriteTxn lmdb = PFS_TRY(env_->BeginWrite());
    Status opened = OpenTables(lmdb);
    // The commit also keeps the tables' handles.
    if (opened.ok()) opened = FromLmdb(lmdb.Commit(), "index: create");
    if (!opened.Is(Code::kNoSpace)) return opened;
    lmdb.Abort();
    PFS_TRY(env_->Grow());
  }
}

Status IndexImpl::OpenTables(WriteTxn& lmdb) {
  tables_ = PFS_TRY(Tables::OpenMain(lmdb.get()));
  Result<uint64_t> format =
      TableReader(lmdb.get(), tables_, name_hash_).MetaNumber(meta_key::kFormat);
  if (format.ok() && *format != kIndexFormat) {
    return {Code::kCorrupt, "index: unknown format " + std::to_string(*format)};
  }
  if (!format.ok() && !format.status().Is(Code::kNotFound)) return format.status();
  tables_ = PFS_TRY(Tables::Open(lmdb.get(), !format.ok()));
  ModelIds models;
  if (format.ok()) {
    PFS_TRY(LoadContents(lmdb.get(), &models));
    commits_->LearnModels(std::move(models));
    return Ok();
  }
  IndexTxnImpl txn(lmdb.get(), tables_, name_hash_, models);
  if (txn.Get(kRootIno).ok()) return {Code::kCorrupt, "index: inodes but no format"};
  return CreateContents(txn, mdb_txn_id(lmdb.get()));
}

Status IndexImpl::CreateContents(IndexTxnImpl& txn, uint64_t txn_id) {
  PFS_TRY(txn.PutMeta(meta_key::kFormat, Key().Number(kIndexFormat)));
  PFS_TRY(txn.PutMeta(meta_key::kNextIno, Key().Number(kRootIno + 1)));
  PFS_TRY(txn.PutMeta(meta_key::kTxn, Key().Number(txn_id)));
  PFS_TRY(txn.InsertRoot(RootInode()));
  inos_.Start(kRootIno + 1);
  lineage_ = IndexLineage{.fresh = true, .closed_clean = false, .boot_id = {}, .pool_uuid = {}};
  return Ok();
}

Status IndexImpl::LoadContents(MDB_txn* txn, ModelIds* models) {
  TableReader reader(txn, tables_, name_hash_);
  inos_.Start(PFS_TRY(reader.MetaNumber(meta_key::kNextIno)));
  Result<std::string> pool = reader.Meta(meta_key::kPoolUuid);
  if (pool.ok()) {
    lineage_.pool_uuid = std::move(*pool);
  } else if (!pool.status().Is(Code::kNotFound)) {
    return pool.status();
  }
  if (Result<Inode> root = reader.Get(kRootIno); !root.ok()) {
    return {Code::kCorrupt, "index: no root: " + root.status().ToString()};
  }
  for (auto& [id, text] : PFS_TRY(reader.Models())) models->emplace(std::move(text), id);
  return Ok();
}

Status IndexImpl::SetPoolUuid(std::string_view uuid) {
  const std::string text(uuid);
  return Update([&text](IndexTxn& txn) {
    return static_cast<IndexTxnImpl&>(txn).PutMeta(meta_key::kPoolUuid, text);
  });
}

Result<Inode> IndexImpl::Get(Ino ino) const {
  const ReadTxn txn = PFS_TRY(env_->BeginRead());
  return TableReader(txn.get(), tables_, name_hash_).Get(ino);
}

Result<Inode> IndexImpl::Lookup(Ino parent, std::string_view name) const {
  const ReadTxn txn = PFS_TRY(env_->BeginRead());
  return TableReader(txn.get(), tables_, name_hash_).Lookup(parent, name);
}

Result<std::vector<Inode>> IndexImpl::List(Ino parent, Ino after, size_t max) const {
  const ReadTxn txn = PFS_TRY(env_->BeginRead());
  return TableReader(txn.get(), tables_, name_hash_).List(parent, after, max);
}

Result<std::vector<Inode>> IndexImpl::FindByHash(std::string_view hash, size_t max) const {
  const ReadTxn txn = PFS_TRY(env_->BeginRead());
  return TableReader(txn.get(), tables_, name_hash_).FindByHash(hash, max);
}

Status IndexImpl::ScanAll(RecordDecoder decode,
                          const std::function<bool(const Inode&)>& visit) const {
  Ino next = 0;
  for (;;) {
    std::vector<Inode> piece;
    Status end;
    {
      const ReadTxn txn = PFS_TRY(env_->BeginRead());
      piece = TableReader(txn.get(), tables_, name_hash_).Scan(next, kScanPiece, decode, &end);
    }
    for (const Inode& inode : piece) {
      if (!visit(inode)) return Ok();
    }
    PFS_TRY(end);
    if (piece.size() < kScanPiece) return Ok();
    next = piece.back().ino + 1;
  }
}

Result<std::vector<Inode>> IndexImpl::Scan(Ino after, size_t max) const {
  if (after == UINT64_MAX) return std::vector<Inode>();
  const ReadTxn txn = PFS_TRY(env_->BeginRead());
  Status end;
  std::vector<Inode> inodes =
      TableReader(txn.get(), tables_, name_hash_).Scan(after + 1, max, DecodeRecord, &end);
  if (inodes.empty()) PFS_TRY(end);
  return inodes;
}

Result<std::vector<TrashEntry>> IndexImpl::Trash() const {
  const ReadTxn txn = PFS_TRY(env_->BeginRead());
  return TableReader(txn.get(), tables_, name_hash_).Trash();
}

Result<std::vector<std::pair<uint32_t, std::string>>> IndexImpl::Models() const {
  const ReadTxn txn = PFS_TRY(env_->BeginRead());
  return TableReader(txn.get(), tables_, name_hash_).Models();
}

// Other threads' changes share the commit, so none may unwind through it.
Status IndexImpl::Update(const std::function<Status(IndexTxn&)>& change) {
  const Waiting waiting(Wait::kIndex);
  return commits_->Run([&change](IndexTxn& txn) -> Status {
    try {
      return change(txn);
    } catch (const std::bad_alloc&) {
      return Code::kNoMemory;
    }
  });
}

Result<Ino> IndexImpl::NextIno() {
  for (;;) {
    if (const auto ino = inos_.Next()) return *ino;
    // An extension made inside the change that needs it could be rolled back with it.
    if (commits_->InsideChange()) {
      return {Code::kRejected, "index: one batch used up the reserved inode numbers"};
    }
    // Any commit extends a reservation that is low.
    PFS_TRY(commits_->Run([](IndexTxn&) { return Ok(); }));
  }
}

Status IndexImpl::RaiseIno(Ino floor) {
  if (floor >= kMaxIno) return {Code::kInvalid, "index: inode number out of range"};
  inos_.RaiseAbove(floor);
  return commits_->Run([](IndexTxn&) { return Ok(); });
}

Status IndexImpl::Close() {
  // What was reserved and not given is given next time.
  PFS_TRY(Update([this](IndexTxn& txn) {
    return static_cast<IndexTxnImpl&>(txn).PutMeta(meta_key::kNextIno, Key().Number(inos_.next()));
  }));
  PFS_TRY(env_->Sync());
  if (stale_) return Ok();
  // Closed already, should reading a very large file take longer than this process is given.
  // Without a digest the next start checks everything.
  PFS_TRY(WriteIndexState(directory_.get(), {CurrentBootId(), true, {}}));
  Result<std::string> digest = DigestOfData(directory_.get());
  if (!digest.ok()) return Ok();
  return WriteIndexState(directory_.get(), {CurrentBootId(), true, *digest});
}

uint64_t IndexImpl::AllocatedBytes() const {
  uint64_t bytes = 0;
  for (const char* name : {"data.mdb", "lock.mdb", "STATE", "LOCK"}) {
    struct stat st {};
    if (::fstatat(directory_.get(), name, &st, 0) == 0) {
      bytes += static_cast<uint64_t>(st.st_blocks) * 512;
    }
  }
  return bytes;
}

}  // namespace prefixfs
