// SIGKILL in the middle of updates: what was acknowledged is there, and the index is whole.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "cache/base/fd.h"
#include "cache/index/index.h"
#include "tests/cache/index/index_test_util.h"

namespace prefixfs {
namespace {

constexpr int kWriters = 3;
constexpr Ino kStride = 1'000'000;

// What the child tells after the index has acknowledged it; less than PIPE_BUF, so whole or not at
// all.
struct Acknowledged {
  Ino ino;
  bool removed;
};

void WriteForEver(Index& index, int fd, Ino first) {
  for (Ino ino = first;; ++ino) {
    const Inode block = MakeBlock(ino, kRootIno, "b" + std::to_string(ino), "hash");
    if (!InsertOne(index, block).ok()) ::_exit(3);
    const Acknowledged added{ino, false};
    if (::write(fd, &added, sizeof(added)) != sizeof(added)) ::_exit(4);
    if (ino % 2 != 0) continue;
    // Removed for sure only once told; if killed between, either is right.
    const Acknowledged removing{ino, true};
    if (::write(fd, &removing, sizeof(removing)) != sizeof(removing)) ::_exit(4);
    if (!index.Update([&](IndexTxn& txn) { return txn.Remove(ino); }).ok()) ::_exit(5);
  }
}

[[noreturn]] void RunChild(const std::string& directory, int fd, int round) {
  IndexOptions options;
  options.directory = directory;
  options.initial_map = 1 << 20;
  Result<std::unique_ptr<Index>> index = Index::Open(options);
  if (!index.ok() || !(*index)->RaiseIno(100 * kWriters * kStride).ok()) ::_exit(2);
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    const Ino first = static_cast<Ino>(w + 1) * kStride + static_cast<Ino>(round) * 10'000;
    writers.emplace_back([&, first] { WriteForEver(**index, fd, first); });
  }
  for (std::thread& writer : writers) writer.join();
  ::_exit(6);
}

// Lets a child write until it has acknowledged `until` things, kills it, and returns all it told.
std::vector<Acknowledged> KillMidway(const std::string& directory, int round, size_t until) {
  std::vector<Acknowledged> told;
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) RunChild(directory, write_end.get(), round);
  write_end.Reset();
  Acknowledged one{};
  while (::read(read_end.get(), &one, sizeof(one)) == sizeof(one)) {
    told.push_back(one);
    if (told.size() == until) ::kill(child, SIGKILL);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
  return told;
}

TEST(IndexCrash, KillLosesNothingAcknowledged) {
  TempDir dir;
  std::set<Ino> present;
  for (int round = 0; round < 100; ++round) {
    std::set<Ino> removing;
    for (const Acknowledged& one : KillMidway(dir.path(), round, 20 + round % 37)) {
      if (one.removed) {
        removing.insert(one.ino);
        present.erase(one.ino);
      } else {
        present.insert(one.ino);
      }
    }
    const Status check = CheckIndex(dir.path(), 60'000);
    ASSERT_TRUE(check.ok()) << "round " << round << ": " << check.ToString();
    std::unique_ptr<Index> index = OpenIndex(dir.path());
    ASSERT_NE(index, nullptr);
    EXPECT_FALSE(index->lineage().closed_clean);
    EXPECT_EQ(index->lineage().boot_id, CurrentBootId());
    for (Ino ino : present) {
      Result<Inode> inode = index->Lookup(kRootIno, "b" + std::to_string(ino));
      ASSERT_TRUE(inode.ok()) << "round " << round << ", inode " << ino;
      ASSERT_EQ(AsBytes(*inode), AsBytes(MakeBlock(ino, kRootIno, inode->name, "hash")));
    }
    // At most the last of each writer may not have come back from its removal or told of its
    // insert.
    size_t others = 0;
    ASSERT_OK(index->ForEach([&](const Inode& inode) {
      if (inode.ino != kRootIno && present.count(inode.ino) == 0) {
        ++others;
        present.insert(inode.ino);
      }
      return true;
    }));
    ASSERT_LE(others, static_cast<size_t>(kWriters)) << "round " << round;
  }
}

}  // namespace
}  // namespace prefixfs
