#include "cache/base/units.h"

#include <gtest/gtest.h>

#include <limits>

#include "cache/base/config.h"

namespace prefixfs {
namespace {

uint64_t Bytes(std::string_view text) {
  const auto size = ParseSize(text);
  EXPECT_TRUE(size.ok()) << text << ": " << size.status().ToString();
  if (!size.ok()) return 0;
  EXPECT_EQ(size->fraction, 0) << text;
  return size->bytes;
}

int64_t Ms(std::string_view text) {
  const auto ms = ParseDurationMs(text);
  EXPECT_TRUE(ms.ok()) << text << ": " << ms.status().ToString();
  return ms.ok() ? *ms : -1;
}

TEST(ParseSize, ReadsPlainBytesAndPowersOf1024) {
  EXPECT_EQ(Bytes("0"), 0u);
  EXPECT_EQ(Bytes("1124352"), 1124352u);
  EXPECT_EQ(Bytes("12B"), 12u);
  EXPECT_EQ(Bytes("1K"), 1024u);
  EXPECT_EQ(Bytes("1k"), 1024u);
  EXPECT_EQ(Bytes("3M"), 3u << 20);
  EXPECT_EQ(Bytes("100G"), 100ull << 30);
  EXPECT_EQ(Bytes("2T"), 2ull << 40);
}

TEST(ParseSize, TakesAnOptionalBOrIBAfterTheUnit) {
  EXPECT_EQ(Bytes("4KB"), 4096u);
  EXPECT_EQ(Bytes("4KiB"), 4096u);
  EXPECT_EQ(Bytes("1GiB"), 1ull << 30);
}

TEST(ParseSize, TakesAFractionOfAUnitButNotOfAByte) {
  EXPECT_EQ(Bytes("1.5G"), 3ull << 29);
  EXPECT_EQ(Bytes("0.5K"), 512u);
  EXPECT_TRUE(ParseSize("1.5").status().Is(Code::kInvalid));
  EXPECT_TRUE(ParseSize("1.5B").status().Is(Code::kInvalid));
}

TEST(ParseSize, KeepsEveryBitOfALargeWholeNumber) {
  EXPECT_EQ(Bytes("9007199254740993"), 9007199254740993ull);  // 2^53 + 1
}

TEST(ParseSize, ReadsAShareWithoutKnowingOfWhat) {
  const auto share = ParseSize("80%");
  ASSERT_TRUE(share.ok());
  EXPECT_DOUBLE_EQ(share->fraction, 0.8);
  EXPECT_EQ(share->Of(1000), 800u);
  EXPECT_DOUBLE_EQ(ParseSize("12.5%")->fraction, 0.125);
  EXPECT_DOUBLE_EQ(ParseSize("100%")->fraction, 1.0);
  EXPECT_EQ(ParseSize("0%")->Of(1000), 0u);
}

TEST(ParseSize, RefusesWhatIsNoSizeAndSaysWhatItRead) {
  for (const char* text : {"",         "G",
                           "%",        "-1",
                           "+1",       " 1G",
                           "1G ",      "1 G",
                           "1E",       "1P",
                           "1GG",      "1GBB",
                           "1iB",      "0x10",
                           "1e3",      "1..5G",
                           ".5G",      "1.",
                           "1.2.3K",   "abc",
                           "101%",     "99999999999999999999",
                           "9000000T", "9223372036854775808"}) {
    const auto size = ParseSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_TRUE(size.status().Is(Code::kInvalid)) << text;
    EXPECT_NE(size.status().message().find("\"" + std::string(text) + "\""), std::string::npos)
        << size.status().message();
  }
}

TEST(ParseDuration, ReadsEveryUnit) {
  EXPECT_EQ(Ms("200ms"), 200);
  EXPECT_EQ(Ms("10s"), 10'000);
  EXPECT_EQ(Ms("5m"), 300'000);
  EXPECT_EQ(Ms("2h"), 7'200'000);
  EXPECT_EQ(Ms("0s"), 0);
  EXPECT_EQ(Ms("1.5s"), 1500);
}

TEST(ParseDuration, RefusesAPlainNumberAndProposesSeconds) {
  const auto ms = ParseDurationMs("10");
  ASSERT_TRUE(ms.status().Is(Code::kInvalid));
  EXPECT_NE(ms.status().message().find("10s"), std::string::npos);
}

TEST(ParseDuration, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "s", "-1s", "1 s", "1S", "1M", "1d", "0.5ms", "1.0001s", "1e3s",
                           "ms10", "99999999999999h", "9999999999999999999999s"}) {
    EXPECT_TRUE(ParseDurationMs(text).status().Is(Code::kInvalid)) << text;
  }
}

TEST(SizeText, IsReadBackExactly) {
  for (const uint64_t bytes : {0ull, 1ull, 1000ull, 1024ull, 1536ull, 8ull << 20, 100ull << 30,
                               (1ull << 40) + 1, 5ull << 40, 3000ull << 40}) {
    EXPECT_EQ(Bytes(SizeText(bytes)), bytes) << SizeText(bytes);
  }
  EXPECT_EQ(SizeText(8u << 20), "8M");
  EXPECT_EQ(SizeText(1000), "1000");
}

TEST(DurationText, IsReadBackExactly) {
  for (const int64_t ms : {0ll, 1ll, 999ll, 1000ll, 1500ll, 60'000ll, 90'000ll, 7'200'000ll}) {
    EXPECT_EQ(Ms(DurationText(ms)), ms) << DurationText(ms);
  }
  EXPECT_EQ(DurationText(600'000), "10m");
}

TEST(HumanBytes, ShowsThreeDigitsAndNeverFourOfAUnit) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.00 KiB");
  EXPECT_EQ(HumanBytes(1536), "1.50 KiB");
  EXPECT_EQ(HumanBytes((1ull << 30) - 1), "1.00 GiB");
  EXPECT_EQ(HumanBytes(80ull << 30), "80.0 GiB");
  EXPECT_EQ(HumanBytes(800ull << 30), "800 GiB");
  EXPECT_EQ(HumanBytes(std::numeric_limits<uint64_t>::max()), "16.0 EiB");
}

}  // namespace
}  // namespace prefixfs
