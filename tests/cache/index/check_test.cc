// Damage to the index's file: CheckIndex finds it, and this process lives on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "cache/index/index.h"
#include "cache/index/index_check.h"
#include "cache/index/index_impl.h"
#include "tests/cache/index/index_test_util.h"

namespace prefixfs {
namespace {

constexpr int64_t kCheckMs = 60'000;
constexpr size_t kPage = 4096;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The value on its own: a range-for over *Result would outlive the Result.
template <typename T>
T ValueOf(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? std::move(result).value() : T{};
}

// Everything that can be read from an index, as text.
std::string Dump(const Index& index) {
  std::string all = index.lineage().pool_uuid + ";";
  EXPECT_TRUE(index
                  .ForEach([&](const Inode& inode) {
                    all += AsBytes(inode);
                    Result<Inode> by_name =
                        inode.ino == kRootIno ? inode : index.Lookup(inode.parent, inode.name);
                    EXPECT_TRUE(by_name.ok());
                    if (by_name.ok()) all += std::to_string(by_name->ino);
                    for (const Inode& child : ValueOf(index.List(inode.ino, 0, 100'000)))
                      all += child.name + ",";
                    for (const Inode& peer : ValueOf(index.FindByHash(inode.hash, 100)))
                      all += std::to_string(peer.ino);
                    return true;
                  })
                  .ok());
  for (const auto& [id, text] : ValueOf(index.Models())) all += std::to_string(id) + text;
  for (const TrashEntry& entry : ValueOf(index.Trash())) all += ToHex(entry.block);
  return all;
}

void Fill(Index& index) {
  ASSERT_OK(index.SetPoolUuid("pool"));
  for (Ino d = 2; d < 12; ++d) {
    ASSERT_OK(InsertOne(index, MakeDirectory(d, kRootIno, "dir" + std::to_string(d))));
  }
  for (Ino ino = 100; ino < 700; ++ino) {
    const std::string name = "block" + std::to_string(ino);
    const std::string hash = "hash" + std::to_string(ino / 4);
    ASSERT_OK(InsertOne(index, MakeBlock(ino, 2 + ino % 10, name, hash)));
  }
  Inode link = MakeDirectory(50, kRootIno, "link");
  link.mode = S_IFLNK | 0777;
  link.target = std::string(kMaxTarget, 't');  // lies in pages of its own
  ASSERT_OK(InsertOne(index, link));
  for (Ino ino = 100; ino < 700; ino += 3) {
    ASSERT_OK(index.Update([&](IndexTxn& txn) -> Status {
      PFS_TRY(txn.InternModel("model" + std::to_string(ino % 7)));
      PFS_TRY(txn.AddTrash({txn.Get(ino)->block, 1}));
      return txn.Remove(ino);
    }));
  }
  ASSERT_OK(index.RaiseIno(1000));
}

class CheckTest : public testing::Test {
 protected:
  void SetUp() override {
    {
      std::unique_ptr<Index> index = OpenIndex(dir_.path());
      ASSERT_NE(index, nullptr);
      ASSERT_NO_FATAL_FAILURE(Fill(*index));
    }
    // A second life, because Open also changes the file.
    std::unique_ptr<Index> index = OpenIndex(dir_.path());
    good_ = Dump(*index);
    index.reset();
    bytes_ = ReadFile(data());
    ASSERT_EQ(bytes_.size() % kPage, 0u);
    ASSERT_OK(Check());
  }

  std::string data() const { return dir_.path() + "/data.mdb"; }
  Status Check() const { return CheckIndex(dir_.path(), kCheckMs); }

  // With `bytes` for the file: whether the check finds fault. If not, everything must read as
  // before and go on to work.
  bool Finds(const std::string& bytes, const std::string& what) {
    WriteFile(data(), bytes);
    const Status status = Check();
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kCorrupt) << what << ": " << status.ToString();
      EXPECT_FALSE(status.message().empty());
      return true;
    }
    std::unique_ptr<Index> index = OpenIndex(dir_.path());
    if (index == nullptr) return false;
    EXPECT_EQ(Dump(*index), good_) << what;
    for (Ino ino = 10'000; ino < 10'005; ++ino) {
      EXPECT_TRUE(InsertOne(*index, MakeBlock(ino, kRootIno, std::to_string(ino))).ok()) << what;
    }
    EXPECT_TRUE(index->RaiseIno(20'000).ok());
    index.reset();
    EXPECT_EQ(Check().code(), Code::kOk) << what;
    return false;
  }

  TempDir dir_{FastBase()};
  std::string bytes_, good_;
};

TEST_F(CheckTest, AbsentIndexIsNotFound) {
  TempDir empty;
  EXPECT_CODE(CheckIndex(empty.path(), kCheckMs), Code::kNotFound);
  EXPECT_CODE(CheckIndex(empty.path() + "/none", kCheckMs), Code::kNotFound);
  WriteFile(empty.path() + "/data.mdb", "");
  EXPECT_CODE(CheckIndex(empty.path(), kCheckMs), Code::kNotFound);
}

TEST_F(CheckTest, FlippedBytesAreFoundOrHarmless) {
  int found = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::string bytes = bytes_;
    // From one bit to a burst.
    const size_t count = seed % 4 == 0 ? 1 : 1 + random() % 16;
    const size_t start = random() % bytes.size();
    for (size_t i = 0; i < count; ++i) {
      const size_t at = seed % 2 == 0 ? random() % bytes.size() : (start + i) % bytes.size();
      bytes[at] = static_cast<char>(bytes[at] ^ (seed % 4 == 0 ? 1u << random() % 8 : random()));
    }
    found += Finds(bytes, "seed " + std::to_string(seed));
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(found, 20);
}

// The metas are where damage leads LMDB astray at once, so every byte of them has its turn.
TEST_F(CheckTest, DamagedMetasAreFoundOrHarmless) {
  constexpr size_t kMetaEnd = 16 + 136;
  constexpr unsigned kFlips[] = {0x01, 0x02, 0x80, 0xff};
  for (size_t offset = 0; offset < kMetaEnd; ++offset) {
    const size_t page = offset / 4 % 2;
    std::string bytes = bytes_;
    char& byte = bytes[page * kPage + offset];
    byte = static_cast<char>(byte ^ kFlips[offset % 4]);
    Finds(bytes, "meta " + std::to_string(page) + " byte " + std::to_string(offset));
    if (HasFailure()) return;
  }
}

TEST_F(CheckTest, DamagedPageHeadsAreFoundOrHarmless) {
  std::mt19937 random(7);
  for (size_t page = 2; page < bytes_.size() / kPage; ++page) {
    std::string bytes = bytes_;
    char& byte = bytes[page * kPage + random() % 32];
    byte = static_cast<char>(byte ^ (1u << random() % 8));
    Finds(bytes, "page " + std::to_string(page));
    if (HasFailure()) return;
  }
}

TEST_F(CheckTest, TruncatedFileIsFoundOrHarmless) {
  for (size_t size : {size_t{1}, size_t{100}, kPage - 1, kPage, 2 * kPage, 2 * kPage + 1, 3 * kPage,
                      bytes_.size() / 2, bytes_.size() - kPage, bytes_.size() - 1}) {
    const bool found = Finds(bytes_.substr(0, size), "cut to " + std::to_string(size));
    EXPECT_TRUE(found || size >= bytes_.size() - kPage) << size;
    if (HasFailure()) return;
  }
}

TEST_F(CheckTest, ZeroedPagesAreFoundOrHarmless) {
  int found = 0;
  for (size_t page = 0; page < bytes_.size() / kPage; ++page) {
    std::string bytes = bytes_;
    bytes.replace(page * kPage, kPage, kPage, '\0');
    found += Finds(bytes, "page " + std::to_string(page));
    if (HasFailure()) return;
  }
  EXPECT_GT(found, 10);
  EXPECT_TRUE(Finds(std::string(bytes_.size(), '\0'), "all"));
}

TEST_F(CheckTest, SwappedPagesAreFoundOrHarmless) {
  std::mt19937 random(3);
  const size_t pages = bytes_.size() / kPage;
  for (int round = 0; round < 40; ++round) {
    const size_t a = random() % pages, b = random() % pages;
    std::string bytes = bytes_;
    bytes.replace(a * kPage, kPage, bytes_.substr(b * kPage, kPage));
    Finds(bytes, std::to_string(b) + " over " + std::to_string(a));
    if (HasFailure()) return;
  }
}

// An older state of the index must not pass for the newest.
TEST_F(CheckTest, OldMetaDressedUpAsNewIsFound) {
  constexpr size_t kTxnAt = 16 + 128;
  uint64_t txn[2];
  for (size_t page : {0, 1}) std::memcpy(&txn[page], &bytes_[page * kPage + kTxnAt], 8);
  const size_t old_page = txn[0] < txn[1] ? 0 : 1;
  std::string newer = bytes_;
  const uint64_t raised = txn[old_page] + 2;
  std::memcpy(&newer[old_page * kPage + kTxnAt], &raised, 8);
  EXPECT_TRUE(Finds(newer, "raised"));
  std::string older = bytes_;
  const uint64_t lowered = txn[1 - old_page] - 2;
  std::memcpy(&older[(1 - old_page) * kPage + kTxnAt], &lowered, 8);
  EXPECT_TRUE(Finds(older, "lowered"));
}

// Closed, so that its state has the digest of the file.
class ClosedTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    ASSERT_NO_FATAL_FAILURE(CloseIndex());
    bytes_ = ReadFile(data());
    state_ = ReadFile(state());
  }
  void CloseIndex() {
    std::unique_ptr<Index> index = OpenIndex(dir_.path());
    ASSERT_NE(index, nullptr);
    ASSERT_OK(index->Close());
  }
  std::string state() const { return dir_.path() + "/STATE"; }
  bool FindsClosed(const std::string& bytes, const std::string& what) {
    WriteFile(state(), state_);
    return Finds(bytes, what);
  }
  std::string state_;
};

TEST_F(ClosedTest, UntouchedFileIsFineAndDamageIsFoundOrHarmless) {
  EXPECT_FALSE(FindsClosed(bytes_, "untouched"));
  int found = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::string bytes = bytes_;
    char& byte = bytes[random() % bytes.size()];
    byte = static_cast<char>(byte ^ (1u << random() % 8));
    found += FindsClosed(bytes, "seed " + std::to_string(seed));
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(found, 20);
  EXPECT_TRUE(FindsClosed(bytes_.substr(0, bytes_.size() / 2), "cut"));
}

// What only the check of tables against each other would find: whoever wrote it closed it so.
TEST_F(ClosedTest, TheSameFileIsTakenAsItWasClosed) {
  {
    auto env = std::move(LmdbEnv::Open(dir_.path(), 1 << 20, 1 << 30)).value();
    auto txn = std::move(env->BeginWrite()).value();
    const Tables tables = *Tables::Open(txn.get(), false);
    const Inode block = MakeBlock(101, 2 + 101 % 10, "block101", "hash25");
    const Key child = ChildKey(block.parent, block.ino);
    MDB_val key = ToVal(child);
    ASSERT_EQ(mdb_del(txn.get(), tables.children, &key, nullptr), 0);
    const std::string id = Seal(meta_key::kTxn, Key().Number(mdb_txn_id(txn.get())));
    MDB_val txn_key = ToVal(meta_key::kTxn), value = ToVal(id);
    ASSERT_EQ(mdb_put(txn.get(), tables.main, &txn_key, &value, 0), 0);
    ASSERT_EQ(txn.Commit(), 0);
  }
  EXPECT_CODE(Check(), Code::kCorrupt);  // not the file that was closed
  ASSERT_NO_FATAL_FAILURE(CloseIndex());
  EXPECT_CODE(Check(), Code::kOk);
  // In use again, nothing is taken for granted.
  ASSERT_NE(OpenIndex(dir_.path()), nullptr);
  EXPECT_CODE(Check(), Code::kCorrupt);
}

TEST_F(ClosedTest, StateWithoutDigestOrWithAnotherMeansTheWholeCheck) {
  const size_t digest = state_.find("digest ");
  ASSERT_NE(digest, std::string::npos);
  std::string bytes = bytes_;
  bytes.replace(2 * kPage, std::string::npos, bytes.size() - 2 * kPage, '\0');
  for (const std::string& state :
       {state_.substr(0, digest), state_.substr(0, digest) + "digest 5 00\n"}) {
    WriteFile(data(), bytes_);
    WriteFile(this->state(), state);
    EXPECT_CODE(Check(), Code::kOk);
    WriteFile(data(), bytes);
    EXPECT_CODE(Check(), Code::kCorrupt);
  }
}

// Tables that disagree, though every page and record is whole.
class DisagreeTest : public CheckTest {
 protected:
  // Runs `damage` on the tables themselves and expects the check to object.
  template <typename Damage>
  void ExpectFound(const Damage& damage) {
    WriteFile(data(), bytes_);
    {
      auto env = std::move(LmdbEnv::Open(dir_.path(), 1 << 20, 1 << 30)).value();
      auto txn = std::move(env->BeginWrite()).value();
      const Tables tables = *Tables::Open(txn.get(), false);
      damage(txn.get(), tables);
      const std::string id = Seal(meta_key::kTxn, Key().Number(mdb_txn_id(txn.get())));
      Put(txn.get(), tables.main, meta_key::kTxn, id);
      ASSERT_EQ(txn.Commit(), 0);
    }
    EXPECT_CODE(Check(), Code::kCorrupt);
  }
  static void Put(MDB_txn* txn, MDB_dbi table, std::string_view key, std::string_view value) {
    MDB_val k = ToVal(key), v = ToVal(value);
    ASSERT_EQ(mdb_put(txn, table, &k, &v, 0), 0);
  }
  static void Delete(MDB_txn* txn, MDB_dbi table, std::string_view key) {
    MDB_val k = ToVal(key);
    ASSERT_EQ(mdb_del(txn, table, &k, nullptr), 0);
  }
};

TEST_F(DisagreeTest, EveryMissingOrSurplusEntryIsFound) {
  const Inode block = MakeBlock(101, 2 + 101 % 10, "block101", "hash25");
  const Key dentry = DentryKey(block.parent, DefaultNameHash(block.name), block.ino);
  const Key child = ChildKey(block.parent, block.ino);
  const Key hash = HashKey(block.hash, block.ino);
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Delete(txn, t.dentries, dentry); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Delete(txn, t.children, child); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Delete(txn, t.hashes, hash); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Delete(txn, t.inodes, InodeKey(101)); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Delete(txn, t.inodes, InodeKey(kRootIno)); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Put(txn, t.dentries, DentryKey(3, 4, 5), ""); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Put(txn, t.children, ChildKey(3, 4), "\x08"); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Put(txn, t.hashes, HashKey("x", 5), ""); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Put(txn, t.children, child, "\x04"); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Put(txn, t.models, ModelKey(1), "text"); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Put(txn, t.trash, Key().Number(1), ""); });
  ExpectFound([&](MDB_txn* txn, const Tables& t) { Delete(txn, t.main, meta_key::kNextIno); });
}

TEST_F(DisagreeTest, RecordsThatContradictTheTablesAreFound) {
  const auto put = [](const Inode& inode) {
    return [inode](MDB_txn* txn, const Tables& t) {
      Put(txn, t.inodes, InodeKey(inode.ino), AsBytes(inode));
    };
  };
  ExpectFound(put(MakeBlock(101, 2 + 101 % 10, "other name", "hash25")));
  ExpectFound(put(MakeBlock(101, 2, "block101", "hash25")));
  ExpectFound(put(MakeBlock(101, 2 + 101 % 10, "block101", "other")));
  ExpectFound(put(MakeBlock(101, 999, "block101", "hash25")));
  ExpectFound([&](MDB_txn* txn, const Tables& t) {
    Put(txn, t.inodes, InodeKey(101), AsBytes(MakeBlock(104, 2 + 104 % 10, "block104", "hash26")));
  });
  ExpectFound([&](MDB_txn* txn, const Tables& t) {
    Put(txn, t.main, meta_key::kNextIno, Seal(meta_key::kNextIno, Key().Number(200)));
  });
}

Status Crash(const std::string&, NameHash) {
  ::raise(SIGSEGV);
  return Ok();
}
Status Abort(const std::string&, NameHash) { ::abort(); }
Status Exit(const std::string&, NameHash) { ::_exit(0); }
Status Hang(const std::string&, NameHash) {
  for (;;) ::pause();
}
Status Fine(const std::string&, NameHash) { return Ok(); }

TEST(RunInChild, ChildThatDiesOrHangsIsCorrupt) {
  EXPECT_CODE(RunInChild(Fine, "", DefaultNameHash, kCheckMs), Code::kOk);
  EXPECT_CODE(RunInChild(Crash, "", DefaultNameHash, kCheckMs), Code::kCorrupt);
  EXPECT_CODE(RunInChild(Abort, "", DefaultNameHash, kCheckMs), Code::kCorrupt);
  EXPECT_CODE(RunInChild(Exit, "", DefaultNameHash, kCheckMs), Code::kCorrupt);
  EXPECT_CODE(RunInChild(Hang, "", DefaultNameHash, 100), Code::kCorrupt);
}

TEST(RunInChild, WorksWhereChildrenAreReapedAutomatically) {
  auto* before = ::signal(SIGCHLD, SIG_IGN);
  EXPECT_CODE(RunInChild(Fine, "", DefaultNameHash, kCheckMs), Code::kOk);
  EXPECT_CODE(RunInChild(Crash, "", DefaultNameHash, kCheckMs), Code::kCorrupt);
  ::signal(SIGCHLD, before);
}

}  // namespace
}  // namespace prefixfs
