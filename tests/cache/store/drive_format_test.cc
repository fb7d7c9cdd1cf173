#include "cache/store/drive_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace prefixfs {
namespace {

using ::testing::HasSubstr;

constexpr char kUuid[] = "01234567-89ab-cdef-0123-456789abcdef";
constexpr char kPool[] = "fedcba98-7654-3210-fedc-ba9876543210";

DriveFormat Full() {
  return {.uuid = kUuid, .pool_uuid = kPool, .slot = 65535, .slots_given = 65536};
}

TEST(DriveFormatTest, ReadsBackWhatItWrote) {
  for (const DriveFormat& format :
       {Full(), DriveFormat{.uuid = kUuid, .pool_uuid = "", .slot = -1, .slots_given = 0},
        DriveFormat{.uuid = kUuid, .pool_uuid = kPool, .slot = 0, .slots_given = 1}}) {
    const Result<DriveFormat> back = FormatFromText(FormatToText(format));
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_EQ(back.value().uuid, format.uuid);
    EXPECT_EQ(back.value().pool_uuid, format.pool_uuid);
    EXPECT_EQ(back.value().slot, format.slot);
    EXPECT_EQ(back.value().slots_given, format.slots_given);
  }
}

TEST(DriveFormatTest, TheFormOnDiskIsFixed) {
  EXPECT_THAT(FormatToText(Full()),
              ::testing::StartsWith("prefixfs-drive 1\n"
                                    "uuid 01234567-89ab-cdef-0123-456789abcdef\n"
                                    "pool fedcba98-7654-3210-fedc-ba9876543210\n"
                                    "slot 65535\n"
                                    "slots 65536\n"
                                    "digest "));
}

TEST(DriveFormatTest, AnyChangedByteIsNoticed) {
  const std::string good = FormatToText(Full());
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {0x01, 0x20, 0x80}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      EXPECT_FALSE(FormatFromText(bad).ok()) << "byte " << at << " ^ " << flip;
    }
  }
}

TEST(DriveFormatTest, AnyTruncationOrAdditionIsNoticed) {
  const std::string good = FormatToText(Full());
  // Without the last newline nothing is lost.
  for (size_t size = 0; size + 1 < good.size(); ++size) {
    EXPECT_FALSE(FormatFromText(good.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(FormatFromText(good + "slot 1\n").ok());
  EXPECT_FALSE(FormatFromText(good + good).ok());
}

TEST(DriveFormatTest, SaysWhetherItIsForeignTooNewOrDamaged) {
  EXPECT_EQ(FormatFromText("something else\n").status().code(), Code::kInvalid);
  EXPECT_EQ(FormatFromText("").status().code(), Code::kCorrupt);
  const Status newer = FormatFromText("prefixfs-drive 2\nwhatever it has\n").status();
  EXPECT_EQ(newer.code(), Code::kInvalid);
  EXPECT_THAT(newer.message(), HasSubstr("version 2"));
}

TEST(DriveFormatTest, UuidsAreWellFormedAndDiffer) {
  EXPECT_TRUE(IsUuid(NewUuid()));
  EXPECT_NE(NewUuid(), NewUuid());
  for (const char* text :
       {"", "0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcdeg",
        "01234567-89AB-cdef-0123-456789abcdef", "01234567-89ab-cdef-0123-456789abcdef0"}) {
    EXPECT_FALSE(IsUuid(text)) << text;
  }
}

}  // namespace
}  // namespace prefixfs
