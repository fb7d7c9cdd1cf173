// Many threads on one index whose map begins tiny, so that it grows underneath them again and
// again.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "cache/index/index.h"
#include "tests/cache/index/index_test_util.h"

namespace prefixfs {
namespace {

constexpr int kThreads = 8;
constexpr int64_t kCheckMs = 120'000;

// Runs `job(thread number)` on every thread and waits for all.
template <typename Job>
void OnThreads(const Job& job) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(job, t);
  for (std::thread& thread : threads) thread.join();
}

std::string NameOf(int thread, int i) {
  return std::string(120, 'x') + std::to_string(thread) + "_" + std::to_string(i);
}

TEST(IndexConcurrency, UpdatesLookupsAndListsWhileTheMapGrows) {
  constexpr int kEach = 1500;
  TempDir dir;
  {
    std::unique_ptr<Index> index = OpenIndex(dir.path(), 1 << 20);
    std::atomic<int> wrong{0};
    OnThreads([&](int t) {
      for (int i = 0; i < kEach; ++i) {
        Result<Ino> ino = index->NextIno();
        if (!ino.ok()) ++wrong;
        const Inode block = MakeBlock(*ino, kRootIno, NameOf(t, i), std::string(32, 'h'));
        if (!InsertOne(*index, block).ok()) ++wrong;
        // What was acknowledged is seen at once.
        Result<Inode> found = index->Lookup(kRootIno, block.name);
        if (!found.ok() || AsBytes(*found) != AsBytes(block)) ++wrong;
        if (i % 3 == 0) {
          if (!index->Update([&](IndexTxn& txn) { return txn.Remove(*ino); }).ok()) ++wrong;
          if (!index->Lookup(kRootIno, block.name).status().Is(Code::kNotFound)) ++wrong;
        }
        if (i % 50 == 0) {
          if (!index->List(kRootIno, 0, 50).ok() || !index->FindByHash(block.hash, 5).ok()) ++wrong;
        }
      }
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(index->AllocatedBytes(), 4u << 20);  // so the map did grow
    int found = 0;
    ASSERT_OK(index->ForEach([&](const Inode&) { return ++found, true; }));
    EXPECT_EQ(found, 1 + kThreads * (kEach - kEach / 3));
  }
  EXPECT_CODE(CheckIndex(dir.path(), kCheckMs), Code::kOk);
}

TEST(IndexConcurrency, ListIsCompleteUnderInsertsAndRemovals) {
  constexpr int kStable = 2000;
  TempDir dir;
  std::unique_ptr<Index> index = OpenIndex(dir.path());
  ASSERT_OK(index->Update([](IndexTxn& txn) -> Status {
    // Odd numbers stay, even ones come and go.
    for (int i = 0; i < kStable; ++i) {
      PFS_TRY(txn.Insert(MakeBlock(100 + 2 * i + 1, kRootIno, "s" + std::to_string(i))));
    }
    return Ok();
  }));
  ASSERT_OK(index->RaiseIno(100 + 2 * kStable + 1));
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread churn([&] {
    for (int i = 0; !stop; i = (i + 1) % kStable) {
      const Ino ino = static_cast<Ino>(100 + 2 * i);
      if (!InsertOne(*index, MakeBlock(ino, kRootIno, "c" + std::to_string(i))).ok()) ++wrong;
      if (i % 2 == 0) (void)index->Update([&](IndexTxn& txn) { return txn.Remove(ino - 2); });
      if (i == kStable - 1) {
        (void)index->Update([&](IndexTxn& txn) {
          for (Ino n = 100; n <= ino; n += 2) (void)(txn.Get(n).ok() && txn.Remove(n).ok());
          return Ok();
        });
      }
    }
  });
  for (int round = 0; round < 20; ++round) {
    std::set<Ino> seen;
    for (Ino after = 0;;) {
      Result<std::vector<Inode>> page = index->List(kRootIno, after, 97);
      if (!page.ok() || page->empty()) {
        EXPECT_TRUE(page.ok()) << page.status().ToString();
        break;
      }
      for (const Inode& inode : *page) EXPECT_TRUE(seen.insert(inode.ino).second);
      after = page->back().ino;
    }
    for (int i = 0; i < kStable; ++i) ASSERT_TRUE(seen.count(100 + 2 * i + 1)) << i;
  }
  stop = true;
  churn.join();
  EXPECT_EQ(wrong, 0);
}

TEST(IndexConcurrency, NumbersDifferAcrossThreads) {
  TempDir dir;
  std::unique_ptr<Index> index = OpenIndex(dir.path());
  constexpr int kEach = 20'000;  // more than one reservation together
  std::vector<std::vector<Ino>> taken(kThreads);
  OnThreads([&](int t) {
    for (int i = 0; i < kEach; ++i) taken[t].push_back(*index->NextIno());
  });
  std::set<Ino> all;
  for (const auto& each : taken) all.insert(each.begin(), each.end());
  EXPECT_EQ(all.size(), static_cast<size_t>(kThreads) * kEach);
}

TEST(IndexConcurrency, FailedChangesDoNotHarmTheirBatch) {
  TempDir dir;
  {
    std::unique_ptr<Index> index = OpenIndex(dir.path());
    std::atomic<int> wrong{0};
    OnThreads([&](int t) {
      for (int i = 0; i < 300; ++i) {
        const Ino ino = static_cast<Ino>(1000 + t * 1000 + i);
        const Inode block = MakeBlock(ino, kRootIno, NameOf(t, i));
        const Status status = index->Update([&](IndexTxn& txn) -> Status {
          PFS_TRY(txn.Insert(block));
          // After it wrote: the whole batch has to run again without this one.
          return t % 2 == 0 ? Ok() : Status(Code::kDenied, "no");
        });
        if (status.code() != (t % 2 == 0 ? Code::kOk : Code::kDenied)) ++wrong;
        if (index->Get(ino).ok() != (t % 2 == 0)) ++wrong;
      }
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(index->List(kRootIno, 0, 10'000)->size(), 300u * kThreads / 2);
    ASSERT_OK(index->RaiseIno(100'000));
  }
  EXPECT_CODE(CheckIndex(dir.path(), kCheckMs), Code::kOk);
}

TEST(IndexConcurrency, ModelIdsAgreeAcrossThreads) {
  TempDir dir;
  std::unique_ptr<Index> index = OpenIndex(dir.path());
  std::vector<std::vector<uint32_t>> ids(kThreads, std::vector<uint32_t>(20));
  OnThreads([&](int t) {
    for (size_t m = 0; m < 20; ++m) {
      (void)index->Update([&](IndexTxn& txn) -> Status {
        ids[t][m] = PFS_TRY(txn.InternModel("model-" + std::to_string(m)));
        return Ok();
      });
    }
  });
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(ids[t], ids[0]);
  EXPECT_EQ(index->Models()->size(), 20u);
}

}  // namespace
}  // namespace prefixfs
