// What the index does at its limits: numbers, a full map, a full disk, names whose hashes collide.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/index/index.h"
#include "cache/index/index_check.h"
#include "cache/index/index_impl.h"
#include "tests/cache/index/index_test_util.h"

namespace prefixfs {
namespace {

constexpr int64_t kCheckMs = 60'000;

TEST(IndexNumbers, NumbersAreNeverGivenTwice) {
  TempDir dir;
  std::unique_ptr<Index> index = OpenIndex(dir.path());
  const Ino first = *index->NextIno();
  EXPECT_GT(first, kRootIno);
  Ino last = first;
  for (uint64_t i = 0; i < InoSource::kReservation + 10; ++i) {
    const Ino ino = *index->NextIno();
    ASSERT_GT(ino, last);
    last = ino;
  }
  index.reset();  // as after a kill: not closed
  index = OpenIndex(dir.path());
  EXPECT_GT(*index->NextIno(), last);
  ASSERT_OK(index->RaiseIno(1'000'000'000));
  EXPECT_EQ(*index->NextIno(), 1'000'000'001u);
  ASSERT_OK(index->RaiseIno(5));
  EXPECT_EQ(*index->NextIno(), 1'000'000'002u);
  ASSERT_OK(index->Close());
  index.reset();
  index = OpenIndex(dir.path());
  EXPECT_EQ(*index->NextIno(), 1'000'000'003u);
}

TEST(IndexNumbers, NumbersCanBeTakenInsideAChange) {
  TempDir dir;
  std::unique_ptr<Index> index = OpenIndex(dir.path());
  ASSERT_OK(index->Update([&](IndexTxn& txn) -> Status {
    const Ino ino = PFS_TRY(index->NextIno());
    return txn.Insert(MakeBlock(ino, kRootIno, "a"));
  }));
  // More than are reserved: refused, not stuck.
  EXPECT_CODE(index->Update([&](IndexTxn&) -> Status {
    for (uint64_t i = 0; i < 3 * InoSource::kReservation; ++i) PFS_TRY(index->NextIno());
    return Ok();
  }),
              Code::kRejected);
  EXPECT_TRUE(index->NextIno().ok());
}

TEST(IndexFullMap, FullMapGrowsToItsLimitThenRefusesButStillRemoves) {
  TempDir dir;
  IndexOptions options;
  options.directory = dir.path();
  options.initial_map = 256 << 10;
  options.max_map = 1 << 20;
  auto index = std::move(Index::Open(options)).value();
  Ino ino = 2;
  Status status;
  while (status.ok()) {
    status = InsertOne(*index, MakeBlock(ino, kRootIno, std::to_string(ino)));
    if (status.ok()) ++ino;
  }
  EXPECT_CODE(status, Code::kNoSpace);
  EXPECT_NE(status.message().find("1048576"), std::string::npos) << status.message();
  EXPECT_GT(ino, 1000u);
  EXPECT_CODE(index->Get(ino).status(), Code::kNotFound);
  for (Ino gone = 2; gone < 500; ++gone) {
    ASSERT_OK(index->Update([&](IndexTxn& txn) { return txn.Remove(gone); }));
  }
  ASSERT_OK(InsertOne(*index, MakeBlock(ino, kRootIno, std::to_string(ino))));
  EXPECT_EQ(index->List(kRootIno, 0, 1'000'000)->size(), ino - 499);
  index.reset();
  EXPECT_CODE(CheckIndex(dir.path(), kCheckMs), Code::kOk);
}

// Three values for all names: nearly every name collides with others.
uint64_t PoorHash(std::string_view name) { return name.size() % 3; }

TEST(IndexCollisions, NamesWithOneHashAreToldApart) {
  TempDir dir;
  IndexOptions options;
  options.directory = dir.path();
  {
    auto index = std::move(IndexImpl::Open(options, PoorHash)).value();
    for (Ino ino = 10; ino < 110; ++ino) {
      ASSERT_OK(InsertOne(*index, MakeBlock(ino, kRootIno, "n" + std::to_string(ino))));
    }
    EXPECT_CODE(InsertOne(*index, MakeBlock(200, kRootIno, "n50")), Code::kExists);
    ASSERT_OK(index->Update([](IndexTxn& txn) { return txn.Remove(50); }));
    ASSERT_OK(index->Update([](IndexTxn& txn) { return txn.Move(51, kRootIno, "n50"); }));
    for (Ino ino = 10; ino < 110; ++ino) {
      Result<Inode> inode = index->Lookup(kRootIno, "n" + std::to_string(ino));
      if (ino == 51) {
        EXPECT_CODE(inode.status(), Code::kNotFound);
      } else {
        ASSERT_OK(inode.status());
        EXPECT_EQ(inode->ino, ino == 50 ? 51 : ino);
      }
    }
  }
  EXPECT_CODE(CheckIndexWith(dir.path(), kCheckMs, PoorHash), Code::kOk);
  // And a check with another hash sees that the entries are not where they belong.
  EXPECT_CODE(CheckIndex(dir.path(), kCheckMs), Code::kCorrupt);
}

// Fills a small filesystem with changes; the exit code says what was wrong.
int FillSmallDisk(const std::string& directory) {
  if (::mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=2m") != 0) return 77;
  IndexOptions options;
  options.directory = directory + "/index";
  Ino acknowledged = 1;
  {
    auto index = Index::Open(options);
    if (!index.ok()) return 1;
    Status status;
    while (status.ok()) {
      const Ino ino = acknowledged + 1;
      status = InsertOne(**index, MakeBlock(ino, kRootIno, std::to_string(ino)));
      if (status.ok()) acknowledged = ino;
    }
    if (!status.Is(Code::kNoSpace)) return 2;
    if (!(*index)->Get(acknowledged).ok()) return 3;
    if ((*index)->Get(acknowledged + 1).ok()) return 4;
    // Room comes back, and so does service.
    const Status removed = (*index)->Update([](IndexTxn& txn) { return txn.Remove(2); });
    if (!removed.ok() && !removed.Is(Code::kNoSpace)) return 5;
    if (::mount("tmpfs", directory.c_str(), "tmpfs", MS_REMOUNT, "size=4m") != 0) return 6;
    if (!InsertOne(**index, MakeBlock(acknowledged + 1, kRootIno, "more")).ok()) return 7;
  }
  if (!CheckIndex(options.directory, kCheckMs).ok()) return 8;
  auto index = Index::Open(options);
  if (!index.ok()) return 9;
  for (Ino ino = 3; ino <= acknowledged; ++ino) {
    if (!(*index)->Get(ino).ok()) return 10;
  }
  return (*index)->Lookup(kRootIno, "more").ok() ? 0 : 11;
}

TEST(IndexFullDisk, FailsTheChangeAndLosesNothingAcknowledged) {
  TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    // The mount is gone with the namespace.
    if (::unshare(CLONE_NEWNS) != 0) ::_exit(77);
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
    ::_exit(FillSmallDisk(dir.path()));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs the right to mount";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace prefixfs
