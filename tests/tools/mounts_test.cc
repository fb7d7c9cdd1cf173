#include "tools/mounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace prefixfs {
namespace {

constexpr std::string_view kText =
    "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
    "23 22 0:21 / /proc rw,nosuid - proc proc rw\n"
    "40 22 0:51 / /mnt/kv rw,nosuid,nodev shared:7 master:3 - fuse.prefixfs /nvme0/tier "
    "rw,user_id=0\n"
    "41 22 0:52 / /mnt/with\\040space\\011and\\134 rw - fuse.prefixfs /a\\012b rw\n"
    "42 40 0:53 /sub /mnt/kv/below rw - tmpfs tmpfs rw\n"
    "43 22 0:54 / /mnt/kv2 rw - fuse.prefixfs /nvme2 rw\n"
    "44 22 0:55 / /mnt/kv2 rw - xfs /dev/sdb rw\n";

TEST(ParseMounts, ReadsEveryFieldWithAndWithoutOptionalOnes) {
  const auto mounts = ParseMounts(kText);
  ASSERT_EQ(mounts.size(), 7u);
  EXPECT_EQ(mounts[0].major, 259u);
  EXPECT_EQ(mounts[0].minor, 2u);
  EXPECT_EQ(mounts[2].id, 40u);
  EXPECT_EQ(mounts[2].point, "/mnt/kv");
  EXPECT_EQ(mounts[2].source, "/nvme0/tier");
  EXPECT_TRUE(mounts[2].IsPrefixFs());
  EXPECT_FALSE(mounts[1].IsPrefixFs());
  EXPECT_EQ(mounts[4].root, "/sub");
}

TEST(ParseMounts, GivesBackTheBytesOfEscapedNames) {
  const auto mounts = ParseMounts(kText);
  EXPECT_EQ(mounts[3].point, "/mnt/with space\tand\\");
  EXPECT_EQ(mounts[3].source, "/a\nb");
}

TEST(ParseMounts, LeavesOutLinesThatAreCutShort) {
  EXPECT_TRUE(ParseMounts("").empty());
  EXPECT_TRUE(ParseMounts("\n\n").empty());
  EXPECT_TRUE(ParseMounts("40 22 0:51 / /mnt rw shared:7").empty());
  EXPECT_TRUE(ParseMounts("40 22 0:51 / /mnt rw - fuse").empty());
  EXPECT_TRUE(ParseMounts("40 22 051 / /mnt rw - fuse src rw").empty());
  EXPECT_TRUE(ParseMounts("x 22 0:51 / /mnt rw - fuse src rw").empty());
}

TEST(MountAt, GivesTheTopmostMountOfExactlyThatPoint) {
  const auto mounts = ParseMounts(kText);
  EXPECT_EQ(MountAt(mounts, "/mnt/kv")->id, 40u);
  EXPECT_EQ(MountAt(mounts, "/mnt/kv2")->id, 44u);
  EXPECT_EQ(MountAt(mounts, "/mnt"), nullptr);
  EXPECT_EQ(MountAt(mounts, "/mnt/kv/x"), nullptr);
}

TEST(MountOf, GivesTheDeepestMountAroundAPath) {
  const auto mounts = ParseMounts(kText);
  EXPECT_EQ(MountOf(mounts, "/mnt/kv/a/b")->id, 40u);
  EXPECT_EQ(MountOf(mounts, "/mnt/kv")->id, 40u);
  EXPECT_EQ(MountOf(mounts, "/mnt/kv/below/x")->id, 42u);
  EXPECT_EQ(MountOf(mounts, "/mnt/kv3")->id, 22u);
  EXPECT_EQ(MountOf(mounts, "relative"), nullptr);
}

TEST(ReadMounts, FindsTheProcOfThisMachine) {
  const auto mounts = ReadMounts();
  ASSERT_TRUE(mounts.ok()) << mounts.status().ToString();
  const Mount* proc = MountAt(*mounts, "/proc");
  ASSERT_NE(proc, nullptr);
  EXPECT_EQ(proc->type, "proc");
  EXPECT_TRUE(ReadMounts("/proc/self/absent").status().Is(Code::kNotFound));
}

TEST(ResolveMountPoint, FollowsALinkToTheMountPoint) {
  char name[] = "/tmp/prefixfs-mounts-XXXXXX";
  const std::filesystem::path directory = ::mkdtemp(name);
  std::filesystem::create_directory(directory / "real");
  std::filesystem::create_symlink("real", directory / "link");
  EXPECT_EQ(ResolveMountPoint({}, directory / "link/"), directory / "real");
  EXPECT_EQ(ResolveMountPoint({}, directory / "real/../absent"), directory / "absent");
  std::filesystem::remove_all(directory);
}

TEST(ResolveMountPoint, DoesNotLookBehindANameThatIsMounted) {
  // /proc/self is a link; as a mount point it stands for itself.
  Mount mount;
  mount.point = "/proc/self";
  EXPECT_EQ(ResolveMountPoint({mount}, "/proc/self"), "/proc/self");
}

}  // namespace
}  // namespace prefixfs
