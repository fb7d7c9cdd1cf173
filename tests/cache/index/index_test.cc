#include "cache/index/index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <new>

#include "tests/cache/index/index_test_util.h"

namespace prefixfs {
namespace {

constexpr int64_t kCheckMs = 60'000;

class IndexTest : public testing::Test {
 protected:
  void SetUp() override {
    index_ = OpenIndex(dir_.path());
    ASSERT_NE(index_, nullptr);
  }
  void Reopen() {
    index_.reset();
    index_ = OpenIndex(dir_.path());
    ASSERT_NE(index_, nullptr);
  }
  Status CheckClosed() {
    index_.reset();
    return CheckIndex(dir_.path(), kCheckMs);
  }
  std::vector<std::string> Names(Result<std::vector<Inode>> inodes) {
    std::vector<std::string> names;
    EXPECT_TRUE(inodes.ok()) << inodes.status().ToString();
    if (inodes.ok()) {
      for (const Inode& inode : *inodes) names.push_back(inode.name);
    }
    return names;
  }

  TempDir dir_;
  std::unique_ptr<Index> index_;
};

using Strings = std::vector<std::string>;

TEST_F(IndexTest, FreshOneHoldsOnlyTheRoot) {
  EXPECT_TRUE(index_->lineage().fresh);
  EXPECT_EQ(index_->lineage().boot_id, "");
  Result<Inode> root = index_->Get(kRootIno);
  ASSERT_OK(root.status());
  EXPECT_EQ(root->mode, static_cast<uint32_t>(S_IFDIR | 0755));
  EXPECT_EQ(root->uid, 0u);
  int inodes = 0;
  ASSERT_OK(index_->ForEach([&](const Inode&) { return ++inodes, true; }));
  EXPECT_EQ(inodes, 1);
  EXPECT_CODE(CheckClosed(), Code::kOk);
}

TEST_F(IndexTest, InsertedInodeIsFoundByNumberNameAndHash) {
  const Inode block = MakeBlock(10, kRootIno, "a.bin", "hash");
  ASSERT_OK(InsertOne(*index_, block));
  Reopen();
  EXPECT_EQ(AsBytes(*index_->Get(10)), AsBytes(block));
  EXPECT_EQ(AsBytes(*index_->Lookup(kRootIno, "a.bin")), AsBytes(block));
  EXPECT_EQ(Names(index_->FindByHash("hash", 10)), Strings{"a.bin"});
  EXPECT_EQ(Names(index_->List(kRootIno, 0, 10)), Strings{"a.bin"});
  EXPECT_CODE(index_->Get(11).status(), Code::kNotFound);
  EXPECT_CODE(index_->Lookup(kRootIno, "a.bi").status(), Code::kNotFound);
  EXPECT_CODE(index_->Lookup(10, "a.bin").status(), Code::kNotFound);
}

TEST_F(IndexTest, InsertRefusesWhatIsTakenOrHasNoParent) {
  ASSERT_OK(InsertOne(*index_, MakeBlock(10, kRootIno, "a")));
  EXPECT_CODE(InsertOne(*index_, MakeBlock(11, kRootIno, "a")), Code::kExists);
  EXPECT_CODE(InsertOne(*index_, MakeBlock(10, kRootIno, "b")), Code::kExists);
  EXPECT_CODE(InsertOne(*index_, MakeBlock(12, 99, "c")), Code::kNotFound);
  EXPECT_CODE(InsertOne(*index_, MakeBlock(12, 10, "c")), Code::kNotDirectory);
  EXPECT_CODE(InsertOne(*index_, MakeBlock(12, kRootIno, "x/y")), Code::kInvalid);
  EXPECT_CODE(InsertOne(*index_, MakeBlock(12, kRootIno, std::string(256, 'x'))), Code::kTooLong);
  EXPECT_EQ(Names(index_->List(kRootIno, 0, 10)), Strings{"a"});
  EXPECT_CODE(CheckClosed(), Code::kOk);
}

TEST_F(IndexTest, NamesOfAnyBytesAreKept) {
  std::string name;
  for (int c = 1; c < 256; ++c) {
    if (c != '/') name.push_back(static_cast<char>(c));
  }
  ASSERT_OK(InsertOne(*index_, MakeBlock(10, kRootIno, name)));
  EXPECT_EQ(index_->Lookup(kRootIno, name)->ino, 10u);
}

TEST_F(IndexTest, PutReplacesTheRecordAndMovesTheHash) {
  ASSERT_OK(InsertOne(*index_, MakeBlock(10, kRootIno, "a", "old")));
  Inode changed = MakeBlock(10, kRootIno, "a", "new");
  changed.size = 77;
  ASSERT_OK(index_->Update([&](IndexTxn& txn) { return txn.Put(changed); }));
  EXPECT_EQ(index_->Get(10)->size, 77u);
  EXPECT_TRUE(Names(index_->FindByHash("old", 10)).empty());
  EXPECT_EQ(Names(index_->FindByHash("new", 10)), Strings{"a"});
  changed.hash.clear();
  ASSERT_OK(index_->Update([&](IndexTxn& txn) { return txn.Put(changed); }));
  EXPECT_TRUE(Names(index_->FindByHash("new", 10)).empty());

  Inode renamed = changed;
  renamed.name = "b";
  EXPECT_CODE(index_->Update([&](IndexTxn& txn) { return txn.Put(renamed); }), Code::kInvalid);
  EXPECT_CODE(index_->Update([&](IndexTxn& txn) { return txn.Put(MakeBlock(11, 1, "c")); }),
              Code::kNotFound);
  EXPECT_CODE(index_->Update([&](IndexTxn& txn) { return txn.Put(MakeDirectory(10, 1, "a")); }),
              Code::kInvalid);
  EXPECT_CODE(CheckClosed(), Code::kOk);
}

TEST_F(IndexTest, MoveChangesNameAndParentOnly) {
  ASSERT_OK(InsertOne(*index_, MakeDirectory(2, kRootIno, "d")));
  ASSERT_OK(InsertOne(*index_, MakeBlock(10, kRootIno, "a", "h")));
  ASSERT_OK(InsertOne(*index_, MakeBlock(11, 2, "taken")));
  EXPECT_CODE(index_->Update([](IndexTxn& txn) { return txn.Move(10, 2, "taken"); }),
              Code::kExists);
  EXPECT_CODE(index_->Update([](IndexTxn& txn) { return txn.Move(12, 2, "x"); }), Code::kNotFound);
  EXPECT_CODE(index_->Update([](IndexTxn& txn) { return txn.Move(10, 11, "x"); }),
              Code::kNotDirectory);
  ASSERT_OK(index_->Update([](IndexTxn& txn) { return txn.Move(10, 2, "b"); }));
  EXPECT_CODE(index_->Lookup(kRootIno, "a").status(), Code::kNotFound);
  EXPECT_EQ(AsBytes(*index_->Lookup(2, "b")), AsBytes(MakeBlock(10, 2, "b", "h")));
  EXPECT_EQ(Names(index_->List(2, 0, 10)), (Strings{"b", "taken"}));
  EXPECT_CODE(CheckClosed(), Code::kOk);
}

TEST_F(IndexTest, DirectoryNeverMovesBelowItself) {
  ASSERT_OK(InsertOne(*index_, MakeDirectory(2, kRootIno, "a")));
  ASSERT_OK(InsertOne(*index_, MakeDirectory(3, 2, "b")));
  EXPECT_CODE(index_->Update([](IndexTxn& txn) { return txn.Move(2, 3, "x"); }), Code::kInvalid);
  EXPECT_CODE(index_->Update([](IndexTxn& txn) { return txn.Move(2, 2, "x"); }), Code::kInvalid);
  ASSERT_OK(index_->Update([](IndexTxn& txn) { return txn.Move(3, kRootIno, "x"); }));
}

TEST_F(IndexTest, RemoveTakesEveryTraceAway) {
  ASSERT_OK(InsertOne(*index_, MakeBlock(10, kRootIno, "a", "h")));
  ASSERT_OK(index_->Update([](IndexTxn& txn) { return txn.Remove(10); }));
  EXPECT_CODE(index_->Get(10).status(), Code::kNotFound);
  EXPECT_CODE(index_->Lookup(kRootIno, "a").status(), Code::kNotFound);
  EXPECT_TRUE(Names(index_->List(kRootIno, 0, 10)).empty());
  EXPECT_TRUE(Names(index_->FindByHash("h", 10)).empty());
  EXPECT_CODE(index_->Update([](IndexTxn& txn) { return txn.Remove(10); }), Code::kNotFound);
  EXPECT_CODE(CheckClosed(), Code::kOk);
}

TEST_F(IndexTest, RootCanBeChangedButNeitherMovedNorRemoved) {
  Inode root = *index_->Get(kRootIno);
  root.mode = S_IFDIR | 0700;
  ASSERT_OK(index_->Update([&](IndexTxn& txn) { return txn.Put(root); }));
  EXPECT_EQ(index_->Get(kRootIno)->mode, static_cast<uint32_t>(S_IFDIR | 0700));
  EXPECT_CODE(index_->Update([](IndexTxn& txn) { return txn.Remove(kRootIno); }), Code::kInvalid);
  EXPECT_CODE(index_->Update([](IndexTxn& txn) { return txn.Move(kRootIno, kRootIno, "x"); }),
              Code::kInvalid);
}

TEST_F(IndexTest, ChangeSeesWhatItDidSoFar) {
  ASSERT_OK(index_->Update([](IndexTxn& txn) -> Status {
    PFS_TRY(txn.Insert(MakeDirectory(2, kRootIno, "d")));
    EXPECT_FALSE(*txn.HasChildren(2));
    PFS_TRY(txn.Insert(MakeBlock(3, 2, "a")));
    EXPECT_EQ(*txn.Lookup(2, "a"), 3u);
    EXPECT_TRUE(*txn.HasChildren(2));
    PFS_TRY(txn.Move(3, 2, "b"));
    EXPECT_EQ(txn.Get(3)->name, "b");
    EXPECT_EQ(txn.Lookup(2, "a").status().code(), Code::kNotFound);
    return Ok();
  }));
}

TEST_F(IndexTest, FailedChangeLeavesNothing) {
  // It ought to check before it writes; even if not, nothing stays.
  EXPECT_CODE(index_->Update([](IndexTxn& txn) -> Status {
    PFS_TRY(txn.Insert(MakeBlock(10, kRootIno, "a")));
    return {Code::kDenied, "late"};
  }),
              Code::kDenied);
  EXPECT_CODE(index_->Get(10).status(), Code::kNotFound);
  EXPECT_CODE(CheckClosed(), Code::kOk);
}

TEST_F(IndexTest, SeveralInodesShareAHash) {
  for (Ino ino = 10; ino < 18; ++ino) {
    ASSERT_OK(InsertOne(*index_, MakeBlock(ino, kRootIno, "r" + std::to_string(ino), "hash")));
  }
  // A longer hash that begins the same is another hash.
  ASSERT_OK(InsertOne(*index_, MakeBlock(20, kRootIno, "other", "hash" + std::string(8, '\0'))));
  EXPECT_EQ(index_->FindByHash("hash", 100)->size(), 8u);
  EXPECT_EQ(index_->FindByHash("hash", 3)->size(), 3u);
  EXPECT_EQ(index_->FindByHash("has", 3)->size(), 0u);
  EXPECT_EQ(index_->FindByHash("", 3)->size(), 0u);
  EXPECT_EQ(index_->FindByHash(std::string(65, 'x'), 3)->size(), 0u);
}

TEST_F(IndexTest, ListGoesOnAfterACookie) {
  for (Ino ino = 30; ino > 10; --ino) {
    ASSERT_OK(InsertOne(*index_, MakeBlock(ino, kRootIno, "n" + std::to_string(ino))));
  }
  std::vector<Ino> seen;
  for (Ino after = 0;;) {
    Result<std::vector<Inode>> page = index_->List(kRootIno, after, 7);
    ASSERT_OK(page.status());
    for (const Inode& inode : *page) seen.push_back(inode.ino);
    if (page->empty()) break;
    after = page->back().ino;
  }
  ASSERT_EQ(seen.size(), 20u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_TRUE(index_->List(kRootIno, UINT64_MAX, 7)->empty());
}

TEST_F(IndexTest, ForEachGoesInOrderAndStopsWhenTold) {
  for (Ino ino = 2; ino < 700; ++ino) {
    ASSERT_OK(InsertOne(*index_, MakeBlock(ino, kRootIno, std::to_string(ino))));
  }
  Ino last = 0;
  ASSERT_OK(index_->ForEach([&](const Inode& inode) {
    EXPECT_EQ(inode.ino, last + 1);
    last = inode.ino;
    // The visitor may use the index.
    return index_->Get(inode.ino).ok() && last < 600;
  }));
  EXPECT_EQ(last, 600u);
}

TEST_F(IndexTest, ForEachNumbersLeavesTheTextsOut) {
  ASSERT_OK(InsertOne(*index_, MakeBlock(7, kRootIno, "block", "hash")));
  Inode found;
  ASSERT_OK(index_->ForEachNumbers([&](const Inode& inode) {
    found = inode;
    return true;
  }));
  EXPECT_EQ(found.ino, 7u);
  EXPECT_EQ(found.name, "");
  EXPECT_EQ(found.allocated, MakeBlock(7, kRootIno, "block").allocated);
}

TEST_F(IndexTest, TrashIsKeptUntilForgotten) {
  const TrashEntry a{RandomBlockId(), 1}, b{RandomBlockId(), 2};
  ASSERT_OK(index_->Update([&](IndexTxn& txn) -> Status {
    PFS_TRY(txn.AddTrash(a));
    PFS_TRY(txn.AddTrash(b));
    return txn.AddTrash(a);
  }));
  Reopen();
  ASSERT_EQ(index_->Trash()->size(), 2u);
  ASSERT_OK(index_->Update([&](IndexTxn& txn) { return txn.RemoveTrash(a); }));
  ASSERT_OK(index_->Update([&](IndexTxn& txn) { return txn.RemoveTrash(a); }));
  ASSERT_EQ(index_->Trash()->size(), 1u);
  EXPECT_EQ(index_->Trash()->at(0).block, b.block);
  EXPECT_EQ(index_->Trash()->at(0).drive, 2);
  EXPECT_CODE(CheckClosed(), Code::kOk);
}

TEST_F(IndexTest, ModelsKeepTheirIds) {
  std::map<std::string, uint32_t> ids;
  const auto intern = [&](const std::string& text) {
    uint32_t id = 0;
    EXPECT_TRUE(index_
                    ->Update([&](IndexTxn& txn) -> Status {
                      id = PFS_TRY(txn.InternModel(text));
                      return Ok();
                    })
                    .ok());
    return id;
  };
  EXPECT_EQ(intern("org/A"), 1u);
  EXPECT_EQ(intern("org/B"), 2u);
  EXPECT_EQ(intern("org/A"), 1u);
  // An id whose change failed is free again.
  EXPECT_FALSE(index_
                   ->Update([&](IndexTxn& txn) -> Status {
                     EXPECT_EQ(*txn.InternModel("org/C"), 3u);
                     return {Code::kDenied, ""};
                   })
                   .ok());
  EXPECT_EQ(intern("org/D"), 3u);
  Reopen();
  EXPECT_EQ(intern("org/D"), 3u);
  EXPECT_EQ(intern("org/C"), 4u);
  EXPECT_EQ(index_->Models()->size(), 4u);
  EXPECT_EQ(index_->Models()->at(2).second, "org/D");
}

TEST_F(IndexTest, ChangeWithinAChangeIsRefused) {
  Status inner;
  ASSERT_OK(index_->Update([&](IndexTxn&) {
    inner = index_->Update([](IndexTxn&) { return Ok(); });
    return Ok();
  }));
  EXPECT_CODE(inner, Code::kInvalid);
}

TEST_F(IndexTest, LineageTellsHowItWasLeft) {
  index_.reset();
  std::filesystem::remove_all(dir_.path());
  {
    BootId boot("boot-1");
    Reopen();
    ASSERT_OK(index_->SetPoolUuid("pool-a"));
    index_.reset();
    index_ = OpenIndex(dir_.path());
    EXPECT_FALSE(index_->lineage().fresh);
    EXPECT_FALSE(index_->lineage().closed_clean);
    EXPECT_EQ(index_->lineage().pool_uuid, "pool-a");
    ASSERT_OK(index_->Close());
  }
  BootId boot("boot-2");
  Reopen();
  EXPECT_TRUE(index_->lineage().closed_clean);
  Reopen();
  EXPECT_FALSE(index_->lineage().closed_clean);
  EXPECT_EQ(index_->lineage().boot_id, "boot-2");
}

TEST_F(IndexTest, StaleIndexStaysStaleUntilItIsReplaced) {
  index_.reset();
  std::filesystem::remove_all(dir_.path());
  {
    BootId boot("boot-1");
    index_ = OpenIndex(dir_.path());
    index_.reset();
  }
  BootId boot("boot-2");
  for (int start = 0; start < 3; ++start) {
    Reopen();
    EXPECT_FALSE(index_->lineage().closed_clean);
    EXPECT_EQ(index_->lineage().boot_id, "boot-1");
    ASSERT_OK(index_->Close());
  }
}

TEST_F(IndexTest, DirectoryMayBeRenamedWhileInUse) {
  const std::string other = dir_.path() + "-renamed";
  ASSERT_OK(InsertOne(*index_, MakeBlock(10, kRootIno, "a")));
  std::filesystem::rename(dir_.path(), other);
  ASSERT_OK(InsertOne(*index_, MakeBlock(11, kRootIno, "b")));
  EXPECT_GT(index_->AllocatedBytes(), 0u);
  ASSERT_OK(index_->Close());
  index_.reset();
  std::filesystem::rename(other, dir_.path());
  Reopen();
  EXPECT_TRUE(index_->lineage().closed_clean);
  EXPECT_EQ(index_->List(kRootIno, 0, 10)->size(), 2u);
}

TEST_F(IndexTest, SecondUserIsRefused) {
  IndexOptions options;
  options.directory = dir_.path();
  EXPECT_CODE(Index::Open(options).status(), Code::kRejected);
  EXPECT_CODE(CheckIndex(dir_.path(), kCheckMs), Code::kRejected);
}

TEST_F(IndexTest, GarbageForAFileIsCorrupt) {
  index_.reset();
  std::ofstream(dir_.path() + "/data.mdb", std::ios::trunc) << std::string(100'000, 'x');
  IndexOptions options;
  options.directory = dir_.path();
  EXPECT_CODE(Index::Open(options).status(), Code::kCorrupt);
}

TEST_F(IndexTest, AChangeThatRunsOutOfMemoryIsRefusedAndLeavesNothing) {
  const Inode inode = MakeBlock(10, kRootIno, "half");
  const Status status = index_->Update([&](IndexTxn& txn) -> Status {
    EXPECT_TRUE(txn.Insert(inode).ok());
    throw std::bad_alloc();
  });
  EXPECT_EQ(status.code(), Code::kNoMemory);
  EXPECT_EQ(index_->Lookup(kRootIno, "half").status().code(), Code::kNotFound);
  EXPECT_TRUE(index_->Update([&](IndexTxn& txn) { return txn.Insert(inode); }).ok());
}

}  // namespace
}  // namespace prefixfs
