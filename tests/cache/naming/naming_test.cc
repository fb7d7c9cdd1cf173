#include "cache/naming/naming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace prefixfs {
namespace {

using ::testing::HasSubstr;

// 64, 40, 32 and 16 digits. k64 begins with 3f3f3, as a vLLM path repeats it.
constexpr char k64[] = "3f3f3a5c9e0d1b2c3d4e5f60718293a4b5c6d7e8f90112233445566778899aab";
constexpr char k40[] = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
constexpr char k32[] = "d41d8cd98f00b204e9800998ecf8427e";
constexpr char k16[] = "00112233aabbccdd";

std::string H64() { return k64; }

struct Row {
  std::string path;
  std::string profile;
  std::string hash;  // as text
  std::string model;
  int32_t rank = -1;
};

// Every client of the engine contract whose names say something; final and temporary names.
std::vector<Row> Blocks() {
  const std::string vllm = "m_0a1b2c3d4e5f_r3/3f3/f3_g0/" + H64() + ".bin";
  const std::string gds =
      "12/34/org%2FModel-8B%408%401%40" + std::string(k16) + "%40bfloat16.kvcache.safetensors";
  const std::string uuid = "0123456789abcdef0123456789abcdef";
  return {
      {vllm, "vllm-fs", k64, "m_0a1b2c3d4e5f", 3},
      {vllm + "_12345.tmp", "vllm-fs", k64, "m_0a1b2c3d4e5f", 3},
      {vllm + "_4294967295.tmp", "vllm-fs", k64, "m_0a1b2c3d4e5f", 3},
      {"tenant/a/" + vllm, "vllm-fs", k64, "m_0a1b2c3d4e5f", 3},
      {std::string(k32) + "/model.layers.0.self_attn.attn.safetensors", "vllm-example", k32, "",
       -1},
      {std::string(k32) + "/.tmp1234", "vllm-example", k32, "", -1},
      {std::string(k32) + "/model.layers.0.self_attn.attn.safetensors.tmp-9", "vllm-example", k32,
       "", -1},
      {H64() + "_org-Model-8B_0_8.bin", "sglang-file", k64, "org-Model-8B", 0},
      {H64() + "_org-Model-8B_5_8.bin.tmp.123.456." + uuid, "sglang-file", k64, "org-Model-8B", 5},
      {H64() + "_Qwen_3_8B_1_2.bin", "sglang-file", k64, "Qwen_3_8B", 1},
      {H64() + "_deepseek-v3.bin", "sglang-file", k64, "deepseek-v3", -1},
      {H64() + ".mamba_org-Model-8B_2_8_4_1.bin", "sglang-file", k64, "org-Model-8B", 2},
      {"5c/" + H64() + "_model_0_8_k", "sglang-nixl", k64, "model", 0},
      {"5c/" + H64() + "_model_7_8_v", "sglang-nixl", k64, "model", 7},
      {"5c/" + H64() + "_model", "sglang-nixl", k64, "model", -1},
      {"org-Model-8B@8@0@" + H64() + "@bfloat16.pt", "lmcache-disk", k64, "org-Model-8B", 0},
      {"org-Model-8B@8@6@-1a2b3c4d5e6f708@half.pt", "lmcache-disk", "-1a2b3c4d5e6f708",
       "org-Model-8B", 6},
      {"org-Model-8B@8@6@a2b3c4d5e6f7081.pt", "lmcache-disk", "a2b3c4d5e6f7081", "org-Model-8B", 6},
      {"org-SEP-Model-8B@8@1@" + H64() + "@bfloat16.data", "lmcache-fs", k64, "org/Model-8B", 1},
      {"org-SEP-Model-8B@8@1@" + H64() + "@bfloat16.tmp", "lmcache-fs", k64, "org/Model-8B", 1},
      {"org-SEP-Model@0x01000100@" + std::string(k16) + ".data", "lmcache-fs", k16, "org/Model", 0},
      {"org-SEP-Model@0x01000100@" + std::string(k16) + ".data.tmp", "lmcache-fs", k16, "org/Model",
       0},
      {"org-SEP-Model@0x01000100@" + std::string(k16) + ".tmp", "lmcache-fs", k16, "org/Model", 0},
      {"org-SEP-Model@0x08050805@7@" + H64() + "@tenant-a.data", "lmcache-fs", k64, "org/Model", 5},
      {"a-SEP-b-SEP-c@08020802@" + H64() + ".data", "lmcache-fs", k64, "a/b/c", 2},
      {gds, "lmcache-gds", k16, "org/Model-8B", 1},
      {gds + ".tmp0a1b2c3d", "lmcache-gds", k16, "org/Model-8B", 1},
      {gds + ".metadata", "lmcache-gds", k16, "org/Model-8B", 1},
      {gds + ".metadata.tmp0a1b2c3d", "lmcache-gds", k16, "org/Model-8B", 1},
      {"00/ff/Model@8@1@" + std::string(k16) + "@half.weka1", "lmcache-gds", k16, "Model", 1},
      {"org--Model-8B_08030803_0_" + H64() + ".bin", "lmcache-nixl", k64, "org--Model-8B", 3},
      {"org--Model-8B_08030803_" + H64() + "_tenant.bin", "lmcache-nixl", k64, "org--Model-8B", 3},
      {"c/k/" + H64() + "_2_k", "mooncake", k64, "", 2},
      {"c/k/" + H64() + "_k", "mooncake", k64, "", -1},
      {"cluster/c/k/org_Model@8@4@" + H64() + "@bfloat16", "mooncake", k64, "org_Model", 4},
      {"c/k/org_Model@pcp0@dcp0@head_or_tp_rank_0@" + H64(), "mooncake", k64, "org_Model", -1},
      {"c/k/org-Model-8B_" + H64(), "mooncake", k64, "org-Model-8B", -1},
      {std::string(k40) + "/_data.safetensors", "vua", k40, "", -1},
      {std::string(k40) + "/_tokens.safetensors", "vua", k40, "", -1},
      {std::string(k40) + "/parent", "vua", k40, "", -1},
      {std::string(k40) + ".tmp/_data.safetensors", "vua", k40, "", -1},
  };
}

// Files that a client manages itself: slots, pools, buckets, descriptions.
std::vector<std::string> Pools() {
  return {
      "obj_7_9c1e.bin",
      "pool/obj_0_00ff.bin",
      "dynamo-kvbm-disk-cache-a1B2c3",
      "block_12_pool_0.bin",
      "run/block_12_pool_3.bin",
      "123.bucket",
      "123.bucket.meta",
      "123.meta",
      "123.bucket.meta.tmp",
      "store/kv_cache.data",
      "config.json",
      "m_0a1b2c3d4e5f/config.json",
      "m_0a1b2c3d4e5f/config.json_123.tmp",
      "m_0a1b2c3d4e5f_r0/.o_direct_probe_1234",
  };
}

// Names that say nothing: NIXL's and llama.cpp's are whatever the user likes.
std::vector<std::string> Opaque() {
  return {
      "chat-7.bin",
      "slot0",
      "a/b/c/d",
      "x",
      "prompt cache @ home.pt",
      "nixl_0123456789abcdef01234567",
      H64() + ".bin",
      "config.jsonl",
      "notes.meta",
      "my.buckets",
      "obj_x_y.bin",
      "block_a_pool_b.bin",
      "m_r0/3f3/f3_g0/short.bin",
      "org@x@y@zz@bfloat16.pt",
      "5c/" + H64(),
  };
}

class NamingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto naming = Naming::Make({}, {});
    ASSERT_TRUE(naming.ok());
    naming_ = std::move(naming).value();
  }
  std::unique_ptr<Naming> naming_;
};

TEST_F(NamingTest, ReadsHashModelAndRankOfEveryClient) {
  for (const Row& row : Blocks()) {
    const BlockName name = naming_->Parse(row.path);
    EXPECT_EQ(name.profile, row.profile) << row.path;
    EXPECT_EQ(Naming::HashToText(name.hash), row.hash) << row.path;
    EXPECT_EQ(name.model, row.model) << row.path;
    EXPECT_EQ(name.rank, row.rank) << row.path;
  }
}

TEST_F(NamingTest, ReadsTheSameBelowADirectoryOfTheMount) {
  for (const Row& row : Blocks()) {
    const BlockName name = naming_->Parse("some/where/" + row.path);
    EXPECT_EQ(name.profile, row.profile) << row.path;
    EXPECT_EQ(Naming::HashToText(name.hash), row.hash) << row.path;
  }
}

TEST_F(NamingTest, HexHashesBecomeRawBytes) {
  EXPECT_EQ(naming_->Parse(H64() + "_m_0_8.bin").hash.size(), 32u);
  EXPECT_EQ(naming_->Parse("m@8@0@00ff@half.pt").hash, std::string("\x00\xff", 2));
}

TEST_F(NamingTest, ReadsNothingOutOfOpaqueNamesAndPools) {
  std::vector<std::string> paths = Opaque();
  for (const std::string& pool : Pools()) paths.push_back(pool);
  for (const std::string& path : paths) {
    const BlockName name = naming_->Parse(path);
    EXPECT_EQ(name.profile, "") << path;
    EXPECT_EQ(name.hash, "") << path;
    EXPECT_EQ(name.model, "") << path;
    EXPECT_EQ(name.rank, -1) << path;
  }
}

TEST_F(NamingTest, BlocksOfEveryClientAreBlocks) {
  for (const Row& row : Blocks()) {
    EXPECT_EQ(naming_->PolicyOf(row.path, false), PathPolicy::kBlock) << row.path;
  }
  for (const std::string& path : Opaque()) {
    EXPECT_EQ(naming_->PolicyOf(path, false), PathPolicy::kBlock) << path;
  }
}

TEST_F(NamingTest, PoolsSlotsAndDescriptionsAreOrdinaryFiles) {
  for (const std::string& path : Pools()) {
    EXPECT_EQ(naming_->PolicyOf(path, false), PathPolicy::kPosix) << path;
    EXPECT_EQ(naming_->PolicyOf("deep/er/" + path, false), PathPolicy::kPosix) << path;
    EXPECT_EQ(naming_->PolicyOf(path, true), PathPolicy::kBlock) << path << " as a directory";
  }
}

TEST_F(NamingTest, KnowsTheTemporariesOfEveryClient) {
  for (const char* name :
       {"3f3f.bin_17.tmp", "3f3f_model_0_8.bin.tmp.17.18.3f3f3f3f", "model@1@0@3f3f.data.tmp",
        "key.tmp", "m%408%400%403f.kvcache.safetensors.tmp0a1b2c3d", "k.metadata.tmp123"})
    EXPECT_TRUE(naming_->IsTemporary(name)) << name;
  for (const char* name : {"3f3f.bin", "tmp", "tmp.bin", "a.tmp b", "3f3f.bin_17", ""})
    EXPECT_FALSE(naming_->IsTemporary(name)) << name;
}

TEST_F(NamingTest, BucketDirectoriesAreKept) {
  for (const char* path : {"5c", "00", "12/34", "sglang/ff", "a/12/34"}) {
    EXPECT_EQ(naming_->PolicyOf(path, true), PathPolicy::kKeep) << path;
    EXPECT_EQ(naming_->PolicyOf(path, false), PathPolicy::kBlock) << path << " as a file";
  }
}

TEST_F(NamingTest, DirectoriesThatHoldAFewBlocksAreNotKept) {
  for (const char* path :
       {"3f3", "3f3/f3_g0", "m/3f3/f3", "m_0a1b2c3d4e5f_r0", "c/k", "5C", "5cd", "x5c"}) {
    EXPECT_EQ(naming_->PolicyOf(path, true), PathPolicy::kBlock) << path;
  }
}

TEST(NamingRulesTest, ConfiguredRulesComeFirstAndTheFirstMatchWins) {
  const auto naming = Naming::Make({}, {{"pool/*", PathPolicy::kPosix},
                                        {"pool/x", PathPolicy::kBlock},
                                        {"*/config.json", PathPolicy::kBlock},
                                        {"keep*", PathPolicy::kKeep},
                                        {"5c", PathPolicy::kBlock}});
  ASSERT_TRUE(naming.ok());
  const Naming& names = **naming;
  EXPECT_EQ(names.PolicyOf("pool/x", false), PathPolicy::kPosix);
  EXPECT_EQ(names.PolicyOf("pool/deep/er", false), PathPolicy::kPosix) << "* crosses /";
  EXPECT_EQ(names.PolicyOf("pool/sub", true), PathPolicy::kPosix);
  EXPECT_EQ(names.PolicyOf("m/config.json", false), PathPolicy::kBlock);
  EXPECT_EQ(names.PolicyOf("config.json", false), PathPolicy::kPosix) << "the built-in rule stays";
  EXPECT_EQ(names.PolicyOf("keeper", true), PathPolicy::kKeep);
  EXPECT_EQ(names.PolicyOf("keeper", false), PathPolicy::kBlock) << "only directories are kept";
  EXPECT_EQ(names.PolicyOf("5c", true), PathPolicy::kBlock);
}

TEST(NamingProfilesTest, ConfiguredProfilesComeFirst) {
  const auto naming = Naming::Make({{"mine", "kv-(?P<hash>[^/.]+)\\.(?P<rank>[0-9]+)$"},
                                    {"all", "^(?P<model>[^/]+)/(?P<hash>[0-9a-f]{64})_"}},
                                   {});
  ASSERT_TRUE(naming.ok());
  BlockName name = (*naming)->Parse("x/kv-chunk:12.7");
  EXPECT_EQ(name.profile, "mine");
  EXPECT_EQ(name.hash, "chunk:12");
  EXPECT_EQ(name.rank, 7);
  name = (*naming)->Parse("mymodel/" + H64() + "_org_0_8.bin");
  EXPECT_EQ(name.profile, "all");
  EXPECT_EQ(name.model, "mymodel");
  EXPECT_EQ((*naming)->Parse(H64() + "_org_0_8.bin").profile, "sglang-file");
}

TEST(NamingProfilesTest, AHashThatIsEmptyOrTooLongIsNoMatch) {
  const auto naming = Naming::Make({{"any", "^h(?P<hash>.*)$"}}, {});
  ASSERT_TRUE(naming.ok());
  EXPECT_EQ((*naming)->Parse("h").profile, "");
  EXPECT_EQ((*naming)->Parse("h" + std::string(64, 'x')).hash, std::string(64, 'x'));
  EXPECT_EQ((*naming)->Parse("h" + std::string(65, 'x')).profile, "");
  EXPECT_EQ((*naming)->Parse("h" + std::string(128, 'f')).hash, std::string(64, '\xff'));
}

TEST(NamingProfilesTest, ARankThatIsNoNumberIsUnknown) {
  const auto naming = Naming::Make({{"any", "^(?P<hash>[a-z]+)-(?P<rank>.*)$"}}, {});
  ASSERT_TRUE(naming.ok());
  EXPECT_EQ((*naming)->Parse("x-12").rank, 12);
  for (const char* path : {"x-", "x-1z", "x-99999999999", "x-4294967295", "x--1"}) {
    EXPECT_EQ((*naming)->Parse(path).rank, -1) << path;
  }
}

TEST(NamingProfilesTest, RefusesPatternsThatCannotWorkAndNamesThem) {
  const std::pair<const char*, const char*> bad[] = {
      {"(?P<hash>[", "does not compile"},
      {"(?P<model>x)", "no group (?P<hash>"},
      {"(?P<hash>x)()()()()()()()()()()()()()()()()", "more than 16 groups"},
  };
  for (const auto& [pattern, why] : bad) {
    const auto naming = Naming::Make({{"broken one", pattern}}, {});
    EXPECT_EQ(naming.status().code(), Code::kInvalid) << pattern;
    EXPECT_THAT(naming.status().message(), HasSubstr("broken one"));
    EXPECT_THAT(naming.status().message(), HasSubstr(why));
  }
}

TEST(HashTextTest, HexTextIsRawBytesAndAnythingElseStays) {
  EXPECT_EQ(Naming::HashFromText("00FFab"), std::string("\x00\xff\xab", 3));
  EXPECT_EQ(Naming::HashFromText("abc"), "abc");
  EXPECT_EQ(Naming::HashFromText("-abc"), "-abc");
  EXPECT_EQ(Naming::HashFromText("chunk-12"), "chunk-12");
  EXPECT_EQ(Naming::HashFromText(""), "");
}

TEST(HashTextTest, TextFromAHashGivesTheHashBack) {
  const std::string hashes[] = {"",
                                "abc",
                                "-1a2b",
                                "-",
                                "a",
                                "AB",
                                "chunk-12",
                                std::string("\0\x01", 2),
                                Naming::HashFromText(k64),
                                "1a2b3",
                                "ABC",
                                "\xff\xfe"};
  for (const std::string& hash : hashes) {
    EXPECT_EQ(Naming::HashFromText(Naming::HashToText(hash)), hash) << Naming::HashToText(hash);
  }
}

TEST(HashTextTest, ShowsHexAsTheClientWroteIt) {
  for (const char* text : {k64, k16, "1a2b3", "-1a2b", "-1a2b3"}) {
    EXPECT_EQ(Naming::HashToText(Naming::HashFromText(text)), text);
  }
}

}  // namespace
}  // namespace prefixfs
