// The programs' own words, without a mount: help, usage errors, errors that come before anything is
// started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace prefixfs::support {
namespace {

using testing::HasSubstr;

RunResult Tool(std::vector<std::string> words) {
  words.insert(words.begin(), ToolPath("prefixfs"));
  return Run(words);
}

RunResult Helper(std::vector<std::string> words) {
  words.insert(words.begin(), ToolPath("mount.prefixfs"));
  return Run(words);
}

TEST(CommandLine, EveryHelpTellsTheExitCodes) {
  for (const std::string command : {"", "mount", "umount", "stat", "locate", "fsck"}) {
    std::vector<std::string> words{"--help"};
    if (!command.empty()) words.insert(words.begin(), command);
    const RunResult result = Tool(words);
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_THAT(result.out, HasSubstr("Exit codes: 0")) << command;
  }
  EXPECT_THAT(Helper({"--help"}).out, HasSubstr("Exit codes: 0"));
}

TEST(CommandLine, TheHelpOfMountListsTheKeysWithTheirDefaults) {
  const RunResult result = Tool({"mount", "--help"});
  EXPECT_THAT(result.out, HasSubstr("lease = \"10s\""));
  EXPECT_THAT(result.out, HasSubstr("--nvme"));
}

TEST(CommandLine, WrongUsageIsExitCodeTwo) {
  EXPECT_EQ(Tool({}).exit_code, 2);
  EXPECT_EQ(Tool({"nonsense"}).exit_code, 2);
  EXPECT_EQ(Tool({"mount"}).exit_code, 2);
  EXPECT_EQ(Tool({"mount", "--nvme", "/x", "/mnt", "--timeout", "10"}).exit_code, 2);
  EXPECT_EQ(Tool({"umount", "/mnt", "--wait", "soon"}).exit_code, 2);
  EXPECT_EQ(Tool({"stat"}).exit_code, 2);
  EXPECT_EQ(Tool({"locate", "a", "b"}).exit_code, 2);
  EXPECT_EQ(Helper({}).exit_code, 2);
  EXPECT_EQ(Helper({"none", "/mnt", "-Z"}).exit_code, 2);
}

TEST(CommandLine, TheVersionIsPrinted) {
  EXPECT_THAT(Tool({"--version"}).out, HasSubstr("prefixfs " PREFIXFS_VERSION));
}

TEST(CommandLine, WhatIsNotMountedCannotBeUnmountedOrAsked) {
  const TempDir directory;
  RunResult result = Tool({"umount", directory.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr(directory.path() + ": is not mounted"));
  result = Tool({"umount", "/proc"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("type proc"));
  result = Tool({"stat", directory.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("not on a PrefixFS mount"));
  result = Tool({"locate", directory.path()});
  EXPECT_EQ(result.exit_code, 1);
}

TEST(MountHelper, TakesKeysAndGenericOptionsAndTheSourceAsAFirstDrive) {
  const TempDir drive;
  const RunResult result = Helper({drive.path(), "/mnt", "-f", "-o",
                                   "rw,nofail,_netdev,x-systemd.automount,noatime,nvme=/other,"
                                   "capacity=80%,lease=3s,namespace.m.policy=posix"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(MountHelper, TakesAFileAsTheSource) {
  const TempDir directory;
  const std::string file = directory / "p.toml";
  std::ofstream(file) << "nvme = [\"/a\"]\n";
  EXPECT_EQ(Helper({file, "/mnt", "-fv", "-o", "defaults"}).exit_code, 0);
  std::ofstream(file) << "nvme = [\"/a\"]\nlaese = 1\n";
  const RunResult result = Helper({file, "/mnt", "-f"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr(file + ":2: laese"));
}

TEST(MountHelper, RefusesWhatItDoesNotKnowUnlessToldToBeSloppy) {
  RunResult result = Helper({"none", "/mnt", "-f", "-o", "nvme=/a,laese=1s"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("option laese: unknown key; did you mean 'lease'?"));
  EXPECT_EQ(Helper({"none", "/mnt", "-sf", "-o", "nvme=/a,laese=1s"}).exit_code, 0);
  EXPECT_THAT(Helper({"none", "/mnt", "-f", "-o", "nvme=/a,lease"}).err,
              HasSubstr("needs a value"));
  EXPECT_THAT(Helper({"/absent/dir", "/mnt", "-f"}).err, HasSubstr("neither"));
}

TEST(MountHelper, RefusesAReadOnlyMountAndSaysWhy) {
  const RunResult result = Helper({"none", "/mnt", "-f", "-o", "nvme=/a,ro"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot be read-only"));
}

}  // namespace
}  // namespace prefixfs::support
