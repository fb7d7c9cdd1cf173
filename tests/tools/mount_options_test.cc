#include "tools/mount_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace prefixfs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class MountOptionsTest : public testing::Test {
 protected:
  MountOptionsTest() {
    char name[] = "/tmp/prefixfs-options-XXXXXX";
    directory_ = ::mkdtemp(name);
    back_ = std::filesystem::current_path();
    std::filesystem::current_path(directory_);
  }
  ~MountOptionsTest() override {
    std::filesystem::current_path(back_);
    std::filesystem::remove_all(directory_);
  }

  static Result<MountOptions> Parse(std::vector<std::string> words) {
    words.insert(words.begin(), "prefixfsd");
    std::vector<char*> pointers;
    for (auto& word : words) pointers.push_back(word.data());
    return ParseMountOptions(static_cast<int>(pointers.size()), pointers.data(), "prefixfsd");
  }
  std::string File(const std::string& text) {
    std::ofstream(directory_ / "p.toml") << text;
    return "p.toml";
  }

  std::filesystem::path directory_, back_;
};

TEST_F(MountOptionsTest, ARepeatedDriveDoesNotSwallowTheMountPoint) {
  const auto options = Parse({"--nvme", "/a", "--nvme", "/b", "/mnt"});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_THAT(options->config.nvme, ElementsAre("/a", "/b"));
  EXPECT_EQ(options->mount_point, "/mnt");
  EXPECT_FALSE(options->foreground);
  EXPECT_EQ(options->ready_fd, -1);
}

TEST_F(MountOptionsTest, TheFileIsOverriddenByOptionsAndTheseBySet) {
  const std::string file = File("nvme = [\"/file\"]\ncapacity = \"1G\"\nlease = \"1s\"\n");
  auto options = Parse({"-c", file, "/mnt"});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_THAT(options->config.nvme, ElementsAre("/file"));
  EXPECT_EQ(options->config.capacity.bytes, 1ull << 30);
  options =
      Parse({"-c", file, "--nvme", "/typed", "--capacity", "2G", "/mnt", "--set", "lease=2s"});
  EXPECT_THAT(options->config.nvme, ElementsAre("/typed"));
  EXPECT_EQ(options->config.capacity.bytes, 2ull << 30);
  EXPECT_EQ(options->config.lease_ms, 2000);
  options = Parse(
      {"--capacity", "2G", "--nvme", "/x", "--set", "capacity=3G", "--set", "nvme=/set", "/mnt"});
  EXPECT_THAT(options->config.nvme, ElementsAre("/set"));
  EXPECT_EQ(options->config.capacity.bytes, 3ull << 30);
}

TEST_F(MountOptionsTest, SetTakesListsWithCommasAndBrackets) {
  const auto options = Parse({"--set", "nvme=[\"/a\", \"/b,c\"]", "/mnt"});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_THAT(options->config.nvme, ElementsAre("/a", "/b,c"));
}

TEST_F(MountOptionsTest, RelativePathsAndLinksBecomeAbsolute) {
  std::filesystem::create_directory("real");
  std::filesystem::create_symlink("real", "link");
  const auto options = Parse({"--nvme", "link/new", "--nvme", "./other/", "link/mnt/"});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_THAT(options->config.nvme, ElementsAre(directory_ / "real/new", directory_ / "other"));
  EXPECT_EQ(options->mount_point, directory_ / "real/mnt");
}

TEST_F(MountOptionsTest, TheSameDriveThroughALinkIsRefused) {
  std::filesystem::create_directory("real");
  std::filesystem::create_symlink("real", "link");
  EXPECT_THAT(Parse({"--nvme", "link", "--nvme", "real", "/mnt"}).status().message(),
              HasSubstr("given twice"));
}

TEST_F(MountOptionsTest, ErrorsSayWhereTheyAre) {
  EXPECT_THAT(Parse({"/mnt"}).status().message(), HasSubstr("--nvme DIR"));
  EXPECT_THAT(Parse({"--nvme", "/a", "--capacity", "alot", "/mnt"}).status().message(),
              HasSubstr("--capacity: \"alot\""));
  EXPECT_THAT(Parse({"--nvme", "/a", "-c", File("\nlaese = 1"), "/mnt"}).status().message(),
              HasSubstr("p.toml:2: laese: unknown key; did you mean 'lease'?"));
  EXPECT_THAT(Parse({"--nvme", "/a", "-c", "absent.toml", "/mnt"}).status().message(),
              HasSubstr("absent.toml: No such file"));
}

TEST_F(MountOptionsTest, TheSourceIsTheWholeConfigurationInForce) {
  const auto options = Parse({"--nvme", "/a", "--set", "lease=7s", "/mnt"});
  ASSERT_TRUE(options.ok());
  const auto again = ParseConfig(options->config.source, "source");
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->lease_ms, 7000);
  EXPECT_THAT(again->nvme, ElementsAre("/a"));
}

TEST_F(MountOptionsTest, WhatIsHandedOnComesToTheSameElsewhere) {
  MountArguments typed;
  typed.config_file = File("log_level = \"debug\"\n");
  typed.nvme = {"drive", "/abs"};
  typed.capacity = "5G";
  typed.set = {"lease=3s", "rule=[{match=\"a,b\",policy=\"keep\"}]"};
  typed.mount_point = "mnt";
  typed.ready_fd = 7;
  typed.foreground = true;
  typed.stop_wait = "3m";
  const auto here = BuildMountOptions(typed);
  ASSERT_TRUE(here.ok()) << here.status().ToString();
  const auto words = ToArguments(typed);
  std::filesystem::current_path("/");
  const auto there = Parse(words);
  ASSERT_TRUE(there.ok()) << there.status().ToString();
  EXPECT_EQ(there->config.source, here->config.source);
  EXPECT_EQ(there->mount_point, here->mount_point);
  EXPECT_EQ(there->ready_fd, 7);
  EXPECT_TRUE(there->foreground);
  EXPECT_EQ(there->stop_wait_ms, 180'000);
}

TEST_F(MountOptionsTest, AUsageErrorExitsWithTwoAndHelpWithZero) {
  EXPECT_EXIT((void)Parse({"--nonsense", "/mnt"}).ok(), testing::ExitedWithCode(2), "nonsense");
  EXPECT_EXIT((void)Parse({}).ok(), testing::ExitedWithCode(2), "MOUNT");
  EXPECT_EXIT((void)Parse({"--help"}).ok(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace prefixfs
