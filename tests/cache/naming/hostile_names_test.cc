// Names are chosen by whoever may write to the mount: any byte but NUL and '/', at any length.
#include <gtest/gtest.h>

#include <random>

#include "cache/index/record.h"
#include "cache/naming/naming.h"

namespace prefixfs {
namespace {

constexpr char kHash[] = "3f3f3a5c9e0d1b2c3d4e5f60718293a4b5c6d7e8f90112233445566778899aab";

class HostileNamesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto naming = Naming::Make({{"user", "^u/(?P<hash>.+)\\.x$"}}, {{"pool/*", PathPolicy::kPosix},
                                                                    {"*.k\xff"
                                                                     "ep",
                                                                     PathPolicy::kKeep}});
    ASSERT_TRUE(naming.ok());
    naming_ = std::move(naming).value();
  }

  // Whatever the name, the answer keeps the limits of the index.
  void CheckAnswer(const std::string& path) {
    const BlockName name = naming_->Parse(path);
    ASSERT_LE(name.hash.size(), kMaxHash) << path;
    ASSERT_EQ(name.profile.empty(), name.hash.empty()) << path;
    ASSERT_LE(name.model.size(), path.size()) << path;
    ASSERT_GE(name.rank, -1) << path;
    ASSERT_EQ(Naming::HashFromText(Naming::HashToText(name.hash)), name.hash) << path;
    (void)naming_->PolicyOf(path, false);
    (void)naming_->PolicyOf(path, true);
  }

  std::unique_ptr<Naming> naming_;
};

std::string EveryByte() {
  std::string bytes;
  for (int byte = 1; byte < 256; ++byte) {
    if (byte != '/') bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

TEST_F(HostileNamesTest, EveryByteAloneAndInsideAModel) {
  for (const char byte : EveryByte()) {
    CheckAnswer(std::string(1, byte));
    const std::string model = "a" + std::string(1, byte) + "b";
    const BlockName name = naming_->Parse(kHash + ("_" + model) + "_0_8.bin");
    EXPECT_EQ(name.profile, "sglang-file") << static_cast<int>(static_cast<uint8_t>(byte));
    EXPECT_EQ(name.model, model);
  }
}

TEST_F(HostileNamesTest, BytesThatAreNoUtf8AreKept) {
  const std::string model = "\xff\xfe\xc0\x80\xed\xa0\x80";
  EXPECT_EQ(naming_->Parse(kHash + ("_" + model) + "_0_8.bin").model, model);
  EXPECT_EQ(naming_->Parse("u/\xc3\x28.x").hash, "\xc3\x28");
  EXPECT_EQ(naming_->PolicyOf("pool/\xff\x80\n", false), PathPolicy::kPosix);
  EXPECT_EQ(naming_->PolicyOf("d\x80.k\xff"
                              "ep",
                              true),
            PathPolicy::kKeep);
}

TEST_F(HostileNamesTest, ANewlineDoesNotEndAName) {
  EXPECT_EQ(naming_->Parse(std::string(kHash) + "_m_0_8.bin\n").profile, "");
  EXPECT_EQ(naming_->Parse(std::string("x\n") + kHash + "_m_0_8.bin").profile, "");
  EXPECT_EQ(naming_->PolicyOf("config.json\n", false), PathPolicy::kBlock);
  EXPECT_EQ(naming_->PolicyOf("x\nconfig.json", false), PathPolicy::kBlock);
}

TEST_F(HostileNamesTest, TheLongestNames) {
  CheckAnswer(EveryByte().substr(0, 255));
  const std::string tail = "_0_8.bin";
  const std::string model(255 - 64 - 1 - tail.size(), 'm');
  const BlockName name = naming_->Parse(kHash + ("_" + model) + tail);
  EXPECT_EQ(name.model, model);
  EXPECT_EQ(name.rank, 0);
  for (const char byte : {'a', '_', '@', '%', '.', '-', '0', '\xff'})
    CheckAnswer(std::string(255, byte));
}

TEST_F(HostileNamesTest, DeepPaths) {
  std::string deep;
  while (deep.size() + 2 < 4096 - 128) deep += "a/";
  CheckAnswer(deep);
  EXPECT_EQ(naming_->Parse(deep + kHash + "_m_0_8.bin").profile, "sglang-file");
  EXPECT_EQ(naming_->PolicyOf(deep + "config.json", false), PathPolicy::kPosix);
  CheckAnswer("");
  CheckAnswer("/");
  CheckAnswer("///");
}

TEST_F(HostileNamesTest, NumbersBeyondAnyRange) {
  const std::string digits(180, '9');
  CheckAnswer(kHash + ("_m_" + digits) + "_8.bin");
  EXPECT_EQ(naming_->Parse(kHash + ("_m_" + digits) + "_8.bin").rank, -1);
  CheckAnswer("m@" + digits + "@" + digits + "@ff@half.pt");
  CheckAnswer("m@8@0@" + std::string(129, 'f') + "@half.pt");
  CheckAnswer("m@8@0@-@half.pt");
}

TEST_F(HostileNamesTest, QuotedModelsThatDoNotUnquote) {
  for (const char* quoted : {"%", "%4", "%zz", "%00", "a%2", "%25%32%46"}) {
    CheckAnswer(std::string("12/34/") + quoted + "%408%401%40ff%40half.kvcache.safetensors");
  }
}

// Pieces of real names put together at random, then bytes of them changed.
TEST_F(HostileNamesTest, RandomNames) {
  const std::string pieces[] = {kHash,
                                "_",
                                "@",
                                "/",
                                ".",
                                "-SEP-",
                                "%40",
                                "%2F",
                                "0x01000100",
                                "8",
                                "0",
                                ".bin",
                                ".tmp",
                                ".data",
                                ".pt",
                                ".kvcache.safetensors",
                                ".metadata",
                                "5c",
                                "3f3",
                                "f3_g0",
                                "m_r0",
                                "c",
                                "k",
                                "\xff",
                                "\n",
                                "obj_7_9c1e.bin",
                                "parent",
                                "config.json",
                                "-1a2b",
                                "bfloat16",
                                "_data.safetensors",
                                "\x80",
                                " "};
  std::mt19937_64 random(7);
  for (int round = 0; round < 30'000; ++round) {
    std::string path;
    for (uint64_t n = random() % 10; n > 0; --n) path += pieces[random() % std::size(pieces)];
    for (uint64_t n = random() % 3; n > 0 && !path.empty(); --n) {
      path[random() % path.size()] = static_cast<char>(1 + random() % 255);
    }
    CheckAnswer(path);
  }
}

}  // namespace
}  // namespace prefixfs
