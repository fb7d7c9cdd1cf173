#include "cache/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "cache/base/config_keys.h"

namespace prefixfs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Config Parsed(std::string_view toml) {
  auto config = ParseConfig(toml, "t.toml");
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : Config();
}

std::string Error(std::string_view toml) {
  const auto config = ParseConfig(toml, "t.toml");
  EXPECT_TRUE(config.status().Is(Code::kInvalid)) << toml << ": " << config.status().ToString();
  return config.status().message();
}

Config Overridden(std::string_view assignment, Config config = {}) {
  const Status status = ApplyOverride(config, assignment);
  EXPECT_TRUE(status.ok()) << assignment << ": " << status.ToString();
  return config;
}

std::string OverrideError(std::string_view assignment) {
  Config config;
  const Status status = ApplyOverride(config, assignment);
  EXPECT_TRUE(status.Is(Code::kInvalid)) << assignment << ": " << status.ToString();
  EXPECT_EQ(FormatConfig(config), FormatConfig(Config())) << "a refused override changed something";
  return status.message();
}

std::string Rules(const Config& config) {
  std::string text;
  for (const auto& rule : config.rules) {
    text += rule.match + ":" + std::to_string(static_cast<int>(rule.policy)) + " ";
  }
  return text;
}

TEST(ParseConfig, AnEmptyTextGivesTheDefaults) {
  EXPECT_EQ(FormatConfig(Parsed("")), FormatConfig(Config()));
}

TEST(ParseConfig, ReadsEveryKey) {
  const Config c = Parsed(R"(
nvme = ["/a", "/b"]
capacity = "100G"
min_free = "5%"
high_watermark = 0.9
low_watermark = "85%"
reserve_initial = 65536
account_interval = "20ms"
space_wait = "3s"
eviction = "arc"
verify = "never"
lease = "1m"
negative_timeout = "0s"
passthrough = "off"
io_uring = true
max_threads = 3
max_workers = 4
max_backing = 5
empty_dir_grace = "2h"
index_sync = "500ms"
log = "/var/log/p.log"
log_level = "debug"
[[naming]]
name = "mine"
pattern = '(?P<hash>[0-9a-f]+)\.kv'
[[rule]]
match = "pool/*"
policy = "posix"
[namespace.llama]
policy = "keep"
)");
  EXPECT_THAT(c.nvme, ElementsAre("/a", "/b"));
  EXPECT_EQ(c.capacity.bytes, 100ull << 30);
  EXPECT_EQ(c.capacity.fraction, 0);
  EXPECT_DOUBLE_EQ(c.min_free.fraction, 0.05);
  EXPECT_DOUBLE_EQ(c.high_watermark, 0.9);
  EXPECT_DOUBLE_EQ(c.low_watermark, 0.85);
  EXPECT_EQ(c.reserve_initial, 65536u);
  EXPECT_EQ(c.account_interval_ms, 20);
  EXPECT_EQ(c.space_wait_ms, 3000);
  EXPECT_EQ(c.eviction, "arc");
  EXPECT_EQ(c.verify, "never");
  EXPECT_EQ(c.lease_ms, 60'000);
  EXPECT_EQ(c.negative_timeout_ms, 0);
  EXPECT_EQ(c.passthrough, Toggle::kOff);
  EXPECT_EQ(c.io_uring, Toggle::kOn);
  EXPECT_EQ(c.max_threads, 3u);
  EXPECT_EQ(c.max_workers, 4u);
  EXPECT_EQ(c.max_backing, 5u);
  EXPECT_EQ(c.empty_dir_grace_ms, 7'200'000);
  EXPECT_EQ(c.index_sync_ms, 500);
  EXPECT_EQ(c.log, "/var/log/p.log");
  EXPECT_EQ(c.log_level, "debug");
  ASSERT_EQ(c.naming.size(), 1u);
  EXPECT_EQ(c.naming[0].name, "mine");
  EXPECT_EQ(c.naming[0].pattern, R"((?P<hash>[0-9a-f]+)\.kv)");
  EXPECT_EQ(Rules(c), "pool/*:1 llama:2 llama/*:2 ");
}

// A wrong value of each key of the table; a key without a row here fails the test.
TEST(ParseConfig, EveryKeyRefusesWrongTypesAndRangesNamingLineAndKey) {
  const std::map<std::string_view, std::vector<std::string>> wrong = {
      {"nvme", {"1", "[1]", "[\"\"]", "{}"}},
      {"capacity", {"\"lots\"", "-1", "0", "true", "1.5", "\"0%\"", "\"101%\"", "[]"}},
      {"min_free", {"\"x\"", "-1", "\"100%\"", "false"}},
      {"high_watermark", {"0", "1.1", "-0.5", "nan", "\"0%\"", "\"10G\"", "true"}},
      {"low_watermark", {"0", "1.1", "inf", "\"x\""}},
      {"reserve_initial", {"\"10%\"", "1", "\"2T\"", "0.5"}},
      {"account_interval", {"10", "\"0ms\"", "\"11s\"", "\"10\"", "true"}},
      {"max_inodes", {"15", "0", "\"1M\""}},
      {"space_wait", {"1", "\"11m\"", "\"-1s\""}},
      {"lookup_wait", {"5", "\"0ms\"", "\"2m\""}},
      {"deadline", {"10", "\"9ms\"", "\"2h\""}},
      {"request_limit", {"5", "\"9ms\"", "\"2h\""}},
      {"eviction", {"1", "\"\""}},
      {"verify", {"\"sometimes\"", "true", "1"}},
      {"lease", {"10", "\"2h\"", "1.5"}},
      {"negative_timeout", {"1", "\"2m\""}},
      {"passthrough", {"\"yes\"", "1"}},
      {"io_uring", {"\"maybe\"", "0"}},
      {"io_uring_depth", {"0", "4097", "true"}},
      {"o_direct", {"\"on\"", "\"\"", "true"}},
      {"max_threads", {"0", "1025", "\"8\"", "1.5", "-1"}},
      {"max_workers", {"0", "1025"}},
      {"max_backing", {"0", "16777217"}},
      {"empty_dir_grace", {"600", "\"721h\""}},
      {"index_sync", {"\"0s\"", "\"61s\""}},
      {"scrub_rate", {"\"10%\"", "-1", "\"2T\"", "0.5"}},
      {"scrub_interval", {"\"0s\"", "5"}},
      {"quarantine", {"\"10%\"", "-1", "\"1025T\""}},
      {"orphan_grace", {"\"-1s\"", "5"}},
      {"log", {"\"\"", "\"relative.log\"", "1"}},
      {"log_level", {"\"loud\"", "3"}},
      {"naming",
       {"1", "[1]", "{}", "[{name = \"x\"}]", "[{name = 1, pattern = \"x\"}]",
        "[{name = \"x\", pattern = \"\"}]", "[{name = \"x\", pattern = \"y\", z = 1}]"}},
      {"rule",
       {"1", "[[]]", "[{match = \"x\"}]", "[{match = \"x\", policy = \"other\"}]",
        "[{match = \"x\", policy = \"keep\", z = 1}]"}},
      {"namespace",
       {"1", "[]", "{a = 1}", "{a = {}}", "{a = {policy = \"x\"}}", "{a = {o_direct = \"x\"}}",
        "{a = {o_direct = 1, policy = \"keep\"}}", "{a = {policy = \"keep\", quota = 1}}",
        "{\"a/b\" = {policy = \"keep\"}}"}},
  };
  for (const auto& key : ConfigKeys()) {
    const auto values = wrong.find(key.name);
    ASSERT_NE(values, wrong.end()) << key.name << " has no wrong values here";
    for (const auto& value : values->second) {
      const std::string message = Error("\n\n" + std::string(key.name) + " = " + value + "\n");
      EXPECT_THAT(message, HasSubstr("t.toml:3: " + std::string(key.name))) << value;
    }
  }
}

TEST(ParseConfig, AnUnknownKeyIsRefusedAndTheNearestIsProposed) {
  EXPECT_EQ(Error("lease = \"1s\"\ncapcity = \"1G\""),
            "t.toml:2: capcity: unknown key; did you mean 'capacity'?");
  EXPECT_THAT(Error("nvem = [\"/a\"]"), HasSubstr("'nvme'"));
  EXPECT_THAT(Error("low_watermrak = 0.5"), HasSubstr("'low_watermark'"));
  EXPECT_THAT(Error("zzzzzz = 1"), HasSubstr("docs/CONFIGURATION.md"));
}

TEST(ParseConfig, ASyntaxErrorNamesItsLine) {
  EXPECT_THAT(Error("lease = \"1s\"\nlog = = 1"), HasSubstr("t.toml:2"));
  EXPECT_THAT(Error("lease = \"1s\"\nlease = \"2s\""), HasSubstr("t.toml:2"));
}

TEST(ParseConfig, GlobCharactersInTheNameOfANamespaceStandForThemselves) {
  EXPECT_EQ(Rules(Parsed("[namespace.'a*[b]?\\']\npolicy = \"posix\"")),
            "a\\*\\[b]\\?\\\\:1 a\\*\\[b]\\?\\\\/*:1 ");
}

std::string DirectRules(const Config& config) {
  std::string text;
  for (const auto& rule : config.o_direct_rules) text += rule.name + ":" + rule.mode + " ";
  return text;
}

TEST(ParseConfig, ANamespaceMaySayHowDirectHandlesAreServedWithOrWithoutAPolicy) {
  const Config c = Parsed(
      "o_direct = \"native\"\n[namespace.a]\no_direct = \"any\"\n"
      "[namespace.b]\no_direct = \"auto\"\npolicy = \"keep\"\n");
  EXPECT_EQ(c.o_direct, "native");
  EXPECT_EQ(DirectRules(c), "a:any b:auto ");
  EXPECT_EQ(Rules(c), "b:2 b/*:2 ");
}

TEST(ParseConfig, KeepsTheTextItCameFrom) {
  EXPECT_EQ(Parsed("lease = \"7s\"").source, "lease = \"7s\"");
}

TEST(FormatConfig, IsReadBackToTheSame) {
  Config config = Parsed("capacity = 1048577\nhigh_watermark = 0.12345\nlow_watermark = 0.1\n");
  config.nvme = {"/with \"quotes\"", "/back\\slash", "/new\nline"};
  config.naming = {{"n", "(?P<hash>\\d+)\x01"}};
  config.rules = {{"a*", PathPolicy::kBlock}, {"b", PathPolicy::kPosix}, {"c/", PathPolicy::kKeep}};
  config.o_direct_rules = {{"new \"one\"", "any"}, {"new \"one\"", "native"}, {"b", "auto"}};
  const std::string text = FormatConfig(config);
  const Config again = Parsed(text);
  EXPECT_EQ(FormatConfig(again), text);
  EXPECT_EQ(DirectRules(again), "b:auto new \"one\":any ");
  EXPECT_EQ(again.nvme, config.nvme);
  EXPECT_EQ(again.naming[0].pattern, config.naming[0].pattern);
  EXPECT_EQ(again.capacity.bytes, 1048577u);
}

// Shares that a percentage has in full, however small or long.
TEST(FormatConfig, GivesEveryShareAndRatioBackExactly) {
  for (const char* share : {"0.00000001%", "33.333333333333336%", "0.57%", "99.9999999999%"}) {
    const Result<SizeSpec> size = ParseSize(share);
    ASSERT_TRUE(size.ok()) << share;
    Config config;
    config.capacity = *size;
    config.high_watermark = size->fraction;
    const Result<Config> again = ParseConfig(FormatConfig(config), "again");
    ASSERT_TRUE(again.ok()) << share << ": " << again.status().ToString();
    EXPECT_EQ(again->capacity.fraction, size->fraction) << share;
    EXPECT_EQ(again->high_watermark, size->fraction) << share;
  }
  Config plain;
  plain.capacity.fraction = 0.57;
  EXPECT_NE(FormatConfig(plain).find("capacity = \"57%\""), std::string::npos);
}

// toml++ asserts on some of these.
TEST(ParseConfig, RefusesBrokenSyntaxInEveryBuild) {
  for (const std::string& text : {std::string("[\0", 2), std::string("[\xc3\xa9]"),
                                  std::string("nvme = [\"/a\", '/b\nx'c]d = 1"),
                                  std::string("lease = \xcb\x89"), std::string("\xcb\x89 = 1")}) {
    const Result<Config> config = ParseConfig(text, "broken.toml");
    EXPECT_EQ(config.status().code(), Code::kInvalid) << text;
  }
}

TEST(ApplyOverride, TakesABareWordForAString) {
  EXPECT_EQ(Overridden("lease=3s").lease_ms, 3000);
  EXPECT_DOUBLE_EQ(Overridden("capacity=70%").capacity.fraction, 0.7);
  EXPECT_EQ(Overridden("log=/tmp/a \"b\"\\c").log, "/tmp/a \"b\"\\c");
  EXPECT_EQ(Overridden("log_level=off").log_level, "off");
  EXPECT_EQ(Overridden("io_uring=on").io_uring, Toggle::kOn);
  EXPECT_THAT(Overridden("nvme=/one").nvme, ElementsAre("/one"));
}

TEST(ApplyOverride, TakesTomlForWhatItIs) {
  EXPECT_EQ(Overridden("lease=\"3s\"").lease_ms, 3000);
  EXPECT_EQ(Overridden("max_threads=5").max_threads, 5u);
  EXPECT_EQ(Overridden("passthrough=false").passthrough, Toggle::kOff);
  EXPECT_THAT(Overridden("nvme=[\"/a\", \"/b\"]").nvme, ElementsAre("/a", "/b"));
  EXPECT_EQ(Rules(Overridden("rule=[{match=\"x\",policy=\"keep\"}]")), "x:2 ");
}

TEST(ApplyOverride, DottedKeysReachIntoTablesAndGoBeforeTheRulesOfTheFile) {
  const Config file = Parsed("[[rule]]\nmatch = \"*\"\npolicy = \"block\"");
  EXPECT_EQ(Rules(Overridden("namespace.m.policy=posix", file)), "m:1 m/*:1 *:0 ");
  EXPECT_EQ(Rules(Overridden("namespace.\"a=b\".policy=posix")), "a=b:1 a=b/*:1 ");
}

TEST(ApplyOverride, RefusesWhatIsNotOneAssignment) {
  EXPECT_THAT(OverrideError("lease"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(OverrideError("=1"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(OverrideError(""), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(OverrideError("lease=\"1s\"\nlog=\"stderr\""), HasSubstr("one line"));
}

TEST(ApplyOverride, RefusesLikeTheFileDoesAndNamesTheOption) {
  EXPECT_THAT(OverrideError("leese=1s"),
              HasSubstr("--set leese=1s: leese: unknown key; did you mean 'lease'?"));
  EXPECT_THAT(OverrideError("lease=10"), HasSubstr("lease: has no unit"));
  EXPECT_THAT(OverrideError("max_threads=many"), HasSubstr("whole number"));
  EXPECT_THAT(OverrideError("nvme=[\"/a\""), HasSubstr("--set"));
  EXPECT_THAT(OverrideError("lease.x=1"), HasSubstr("lease"));
  EXPECT_THAT(OverrideError("namespace.m.quota=1"), HasSubstr("namespace.m.quota"));
}

TEST(ValidateConfig, WantsADrive) {
  EXPECT_THAT(ValidateConfig(Config()).message(), HasSubstr("--nvme"));
}

TEST(ValidateConfig, RefusesADriveGivenTwice) {
  EXPECT_THAT(ValidateConfig(Parsed("nvme = [\"/a\", \"/b\", \"/a\"]")).message(),
              HasSubstr("/a is given twice"));
}

TEST(ValidateConfig, WantsTheWatermarksInOrder) {
  EXPECT_THAT(ValidateConfig(Parsed("nvme = \"/a\"\nlow_watermark = 0.95")).message(),
              HasSubstr("low_watermark"));
}

TEST(ValidateConfig, AcceptsTheDefaultsWithOneDrive) {
  EXPECT_TRUE(ValidateConfig(Parsed("nvme = [\"/a\"]")).ok());
}

class LoadConfigTest : public testing::Test {
 protected:
  LoadConfigTest() {
    char name[] = "/tmp/prefixfs-config-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~LoadConfigTest() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(LoadConfigTest, ReadsAFileAndNamesItInErrors) {
  const std::string path = directory_ + "/p.toml";
  std::ofstream(path) << "lease = \"4s\"\n";
  const auto config = LoadConfig(path);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->lease_ms, 4000);
  std::ofstream(path) << "\nlease = 4\n";
  EXPECT_THAT(LoadConfig(path).status().message(), HasSubstr(path + ":2: lease: "));
}

TEST_F(LoadConfigTest, SaysWhyAFileCannotBeRead) {
  EXPECT_TRUE(LoadConfig(directory_ + "/absent").status().Is(Code::kNotFound));
  EXPECT_FALSE(LoadConfig(directory_).ok());
}

TEST_F(LoadConfigTest, RefusesAFileThatIsNoConfigurationByItsSize) {
  const std::string path = directory_ + "/big";
  std::ofstream(path) << std::string(5 << 20, '#');
  EXPECT_THAT(LoadConfig(path).status().message(), HasSubstr("too large"));
}

}  // namespace
}  // namespace prefixfs
