// Blocks that go because of what they are: orphans under temporary names, members of a group.
#include "tests/cache/cache_fixture.h"

namespace prefixfs {
namespace {

class LeftoversTest : public CacheFixture {
 protected:
  void SetUp() override {
    config_.index_sync_ms = 5;  // one tick after the other
    config_.orphan_grace_ms = 50;
    CacheFixture::SetUp();
  }
  // Closed under a temporary name, and so published when somebody else looks.
  void PutTemporary(const std::string& name) {
    Put(name, "never renamed");
    EXPECT_NE(Find(name, Stranger()), 0u);
  }
  void AwaitGone(const std::string& name) {
    for (int i = 0; i < 5000 && Find(name, Stranger()) != 0; ++i) ::usleep(1000);
    EXPECT_EQ(Find(name, Stranger()), 0u);
  }
};

TEST_F(LeftoversTest, ATemporaryThatNobodyRenamesGoesAfterItsGrace) {
  PutTemporary("a.tmp");
  Put("kept", "block");
  AwaitGone("a.tmp");
  EXPECT_EQ(cache_->counters().orphans.load(), 1u);
  EXPECT_EQ(Read("kept"), "block");
  // Its bytes too.
  EXPECT_EQ(cache_->MakeReport().blocks, 1u);
}

TEST_F(LeftoversTest, OneThatIsOpenOrRenamedStays) {
  PutTemporary("open.tmp");
  PutTemporary("renamed.tmp");
  Result<HandlePtr> handle = Open("open.tmp", O_RDONLY, Stranger());
  ASSERT_TRUE(handle.ok());
  ASSERT_TRUE(cache_->Rename(kRootIno, "renamed.tmp", kRootIno, "renamed", 0, Self()).ok());
  ::usleep(200'000);
  EXPECT_NE(Find("open.tmp", Stranger()), 0u);
  EXPECT_EQ(Read("renamed"), "never renamed");
  cache_->Release(std::move(handle).value());
  AwaitGone("open.tmp");
}

TEST_F(LeftoversTest, WhatAnEarlierDaemonLeftGoesToo) {
  config_.orphan_grace_ms = 3'600'000;
  Restart();
  PutTemporary("old.tmp");
  AwaitChecksums();
  config_.orphan_grace_ms = 50;
  Restart();
  AwaitGone("old.tmp");
}

class GroupTest : public CacheFixture {
 protected:
  void SetUp() override {
    config_.index_sync_ms = 5;  // a tick brings the time of the last open into the index
    CacheFixture::SetUp();
  }
  static constexpr char kHash[] =
      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

  // So many that the budget (64 MiB) is used up more than once.
  void Flood() {
    for (int i = 0; i < 80; ++i) Put("filler-" + std::to_string(i), std::string(1 << 20, 'f'));
  }
  bool Has(const std::string& name, Ino parent = kRootIno) {
    return Find(name, Stranger(), parent) != 0;
  }
};

TEST_F(GroupTest, HalvesOfAPageGoTogether) {
  const std::string k = std::string(kHash) + "_model_0_1_k",
                    v = std::string(kHash) + "_model_0_1_v";
  Put(k, "keys");
  Put("between", std::string(1 << 20, 'b'));
  Put(v, "values");
  Flood();
  EXPECT_FALSE(Has(k));
  EXPECT_FALSE(Has(v));
}

TEST_F(GroupTest, AGroupStaysAsLongAsOneOfItIsOpen) {
  const std::string data = "k.kvcache.safetensors", metadata = data + ".metadata";
  Put(data, "data");
  Put(metadata, "metadata");
  Result<HandlePtr> handle = Open(data, O_RDONLY, Stranger());
  ASSERT_TRUE(handle.ok());
  Flood();
  EXPECT_TRUE(Has(metadata));
  EXPECT_EQ(Read(metadata), "metadata");
  cache_->Release(std::move(handle).value());
}

TEST_F(GroupTest, TheMemberThatWasUsedLastDecides) {
  const std::string data = "k.kvcache.safetensors", metadata = data + ".metadata";
  Put(metadata, "metadata");
  Put(data, "data");
  for (int i = 0; i < 80; ++i) {
    Put("filler-" + std::to_string(i), std::string(1 << 20, 'f'));
    EXPECT_EQ(Read(data), "data") << i;
    ::usleep(10'000);
  }
  EXPECT_TRUE(Has(metadata)) << "it goes with its data, which is in use";
}

class FolderTest : public GroupTest {
 protected:
  static constexpr int kLayers = 4;

  void SetUp() override {
    GroupTest::SetUp();
    Result<Entry> folder =
        cache_->MakeNode(kRootIno, std::string(kHash, 40), S_IFDIR | 0755, "", Self());
    ASSERT_TRUE(folder.ok());
    folder_ = folder->inode.ino;
  }
  void PutLayers() {
    for (int layer = 0; layer < kLayers; ++layer) {
      Put(Layer(layer), "layer", folder_);
      Put("between-" + std::to_string(layer), std::string(1 << 20, 'b'));
    }
    Restart();  // whoever made the folder holds its lease
  }
  static std::string Layer(int number) {
    return "layer." + std::to_string(number) + ".safetensors";
  }
  int Layers() {
    int left = 0;
    for (int layer = 0; layer < kLayers; ++layer) left += Has(Layer(layer), folder_) ? 1 : 0;
    return left;
  }
  bool HasFolder() { return Has(std::string(kHash, 40)); }

  Ino folder_ = 0;
};

TEST_F(FolderTest, LayersGoTogetherAndTheirFolderWithThem) {
  PutLayers();
  ASSERT_TRUE(cache_->MakeNode(folder_, "parent", S_IFLNK | 0777, "../elsewhere", Self()).ok());
  Restart();
  // Until there is space for which the first layer alone would do.
  for (int i = 0; i < 80 && Layers() == kLayers; ++i)
    Put("filler-" + std::to_string(i), std::string(1 << 20, 'f'));
  EXPECT_EQ(Layers(), 0);
  EXPECT_FALSE(HasFolder()) << "clients ask only for the folder";
}

TEST_F(FolderTest, AFolderThatHasSomethingElseStays) {
  ASSERT_TRUE(cache_->MakeNode(folder_, "sub", S_IFDIR | 0755, "", Self()).ok());
  PutLayers();
  for (int i = 0; i < 80 && Layers() == kLayers; ++i)
    Put("filler-" + std::to_string(i), std::string(1 << 20, 'f'));
  EXPECT_EQ(Layers(), 0);
  EXPECT_TRUE(Has("sub", folder_));
}

TEST_F(FolderTest, AFolderThatIsBeingFilledStays) {
  PutLayers();
  Result<Created> writer = Create("layer.9.safetensors", O_WRONLY | O_EXCL, folder_);
  ASSERT_TRUE(writer.ok());
  Flood();
  EXPECT_EQ(Layers(), kLayers);
  CloseFile(std::move(writer->handle));
}

TEST_F(FolderTest, WhoHasSeenTheFolderFindsItsLayers) {
  config_.lease_ms = 600'000;
  config_.space_wait_ms = 10'000;
  PutLayers();
  ASSERT_TRUE(HasFolder());
  Flood();
  EXPECT_EQ(Layers(), kLayers);
}

}  // namespace
}  // namespace prefixfs
