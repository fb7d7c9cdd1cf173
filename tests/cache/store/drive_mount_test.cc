// Drives on filesystems of their own, which are taken away under them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include <cerrno>

#include "cache/store/drive_set.h"
#include "tests/cache/store/drive_fixture.h"
#include "tests/support/loop_fs.h"

namespace prefixfs {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

class XfsDriveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    fs_ = std::make_unique<support::LoopFs>("xfs", 512 * kMiB);
    dir_ = fs_->path() + "/drive";
  }
  std::unique_ptr<support::LoopFs> fs_;
  std::string dir_;
};

// Opens what is behind a descriptor anew, as the kernel does for a passthrough file.
int Reopen(int fd, int flags) {
  const Fd again(open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags | O_CLOEXEC));
  return again.valid() ? 0 : errno;
}

TEST_F(XfsDriveTest, ASealedBlockCannotBeOpenedForWriting) {
  const auto drive = MustOpen(dir_);
  Store(*drive, Block(1), "kv");
  const Result<Fd> sealed = drive->OpenSealed(Block(1));
  ASSERT_TRUE(sealed.ok());
  const int fd = sealed.value().get();
  EXPECT_EQ(Reopen(fd, O_RDONLY), 0);
  EXPECT_EQ(Reopen(fd, O_RDWR), EROFS);
  EXPECT_EQ(Reopen(fd, O_WRONLY | O_TRUNC), EROFS);
  EXPECT_EQ(fchmod(fd, 0777), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(mmap(nullptr, 2, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  const Result<Fd> writable = drive->OpenWritable(Block(1));
  ASSERT_TRUE(writable.ok());
  EXPECT_EQ(Reopen(writable.value().get(), O_RDWR), 0);
}

TEST_F(XfsDriveTest, BlocksPublishedAfterTheOpenAreSeenThroughTheReadOnlyClone) {
  const auto drive = MustOpen(dir_);
  for (int first = 0; first < 256; first += 5) {
    Store(*drive, Block(static_cast<uint8_t>(first)), std::to_string(first));
    const Result<Fd> sealed = drive->OpenSealed(Block(static_cast<uint8_t>(first)));
    ASSERT_TRUE(sealed.ok());
    EXPECT_EQ(ReadFd(sealed.value().get()), std::to_string(first));
  }
}

TEST_F(XfsDriveTest, AClosedDriveLetsItsFilesystemGo) {
  auto drive = MustOpen(dir_);
  Store(*drive, Block(1), "kv");
  drive.reset();
  fs_->Remount();  // fails while anything is held
  drive = MustOpen(dir_);
  EXPECT_TRUE(drive->OpenSealed(Block(1)).ok());
}

TEST_F(XfsDriveTest, ClonesShareTheirExtentsUntilWrittenTo) {
  const auto drive = MustOpen(dir_);
  ASSERT_TRUE(drive->supports_reflink());
  Store(*drive, Block(1), std::string(8192, 'a'));
  const Result<Fd> source = drive->OpenSealed(Block(1));
  ASSERT_TRUE(source.ok());
  const Result<Fd> clone = drive->Clone(source.value().get(), Block(2));
  ASSERT_TRUE(clone.ok()) << clone.status().ToString();
  ASSERT_EQ(pwrite(clone.value().get(), "b", 1, 0), 1);
  EXPECT_EQ(ReadFd(source.value().get()), std::string(8192, 'a'));
  EXPECT_EQ(ReadFd(clone.value().get()), "b" + std::string(8191, 'a'));
  EXPECT_EQ(drive->Clone(source.value().get(), Block(2)).status().code(), Code::kExists);
}

TEST_F(XfsDriveTest, AHeaderStaysBesideManyUserXattrs) {
  const auto drive = MustOpen(dir_);
  const Result<Fd> file = drive->Create(Block(1));
  ASSERT_TRUE(file.ok());
  const int fd = file.value().get();
  ASSERT_TRUE(drive->WriteHeader(fd, FileInode(Block(1))).ok());
  const std::string value(4000, 'v');
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(fsetxattr(fd, ("user.k" + std::to_string(i)).c_str(), value.data(), value.size(), 0),
              0);
  }
  ASSERT_TRUE(drive->WriteHeader(fd, FileInode(Block(1))).ok());
  EXPECT_EQ(Drive::ReadHeader(fd).value().size, FileInode(Block(1)).size);
}

TEST_F(XfsDriveTest, AShutDownFilesystemFailsTheDriveAtTheNextCall) {
  const auto drive = MustOpen(dir_);
  Store(*drive, Block(1), "kv");
  const Result<Fd> held = drive->OpenSealed(Block(1));
  ASSERT_TRUE(held.ok());
  fs_->ShutDown();
  EXPECT_FALSE(drive->failed()) << "nobody has asked it yet";
  EXPECT_FALSE(drive->Create(Block(2)).ok());
  EXPECT_TRUE(drive->failed());
  // From now on every call answers by itself, without touching the device.
  EXPECT_EQ(drive->Create(Block(3)).status().code(), Code::kUnavailable);
  EXPECT_EQ(drive->Publish(Block(1)).code(), Code::kUnavailable);
  EXPECT_EQ(drive->OpenSealed(Block(1)).status().code(), Code::kUnavailable);
  EXPECT_EQ(drive->OpenWritable(Block(1)).status().code(), Code::kUnavailable);
  EXPECT_EQ(drive->Unlink(Block(1), true).code(), Code::kUnavailable);
  EXPECT_EQ(drive->WriteHeader(held.value().get(), FileInode(Block(1))).code(), Code::kUnavailable);
  EXPECT_EQ(drive->PutRecord(DirectoryInode(2)).code(), Code::kUnavailable);
  EXPECT_EQ(drive->OpenRecord(2).status().code(), Code::kUnavailable);
  EXPECT_EQ(drive->Incoming().status().code(), Code::kUnavailable);
  EXPECT_EQ(drive->Space().status().code(), Code::kUnavailable);
  EXPECT_FALSE(drive->ForEachBlock([](const BlockId&, Result<Inode>, const struct stat&) {}).ok());
  EXPECT_FALSE(drive->ForEachRecord([](Result<Inode>) {}).ok());
}

TEST_F(XfsDriveTest, EveryCallNoticesAShutDownByItself) {
  using Call = std::function<bool(Drive&, int fd)>;
  const Call calls[] = {
      [](Drive& drive, int) { return drive.Create(Block(2)).ok(); },
      [](Drive& drive, int) { return drive.Unlink(Block(1), true).ok(); },
      [](Drive& drive, int fd) { return drive.WriteHeader(fd, FileInode(Block(1))).ok(); },
      [](Drive& drive, int) { return drive.PutRecord(DirectoryInode(9)).ok(); },
      [](Drive& drive, int) { return drive.Space().ok(); },
      [](Drive& drive, int) {
        return drive.ForEachBlock([](const BlockId&, Result<Inode>, const struct stat&) {}).ok();
      },
  };
  for (size_t i = 0; i < std::size(calls); ++i) {
    auto drive = MustOpen(dir_ + std::to_string(i));
    Store(*drive, Block(1), "kv");
    {
      const Result<Fd> file = drive->OpenWritable(Block(1));
      ASSERT_TRUE(file.ok());
      fs_->ShutDown();
      EXPECT_FALSE(calls[i](*drive, file.value().get())) << i;
      EXPECT_TRUE(drive->failed()) << i;
    }
    drive.reset();
    fs_->Remount();
  }
}

TEST_F(XfsDriveTest, AReadOnlyFilesystemFailsTheDrive) {
  const auto drive = MustOpen(dir_);
  Store(*drive, Block(1), "kv");
  fs_->RemountReadOnly();
  EXPECT_EQ(drive->Space().status().code(), Code::kUnavailable) << "the timer notices";
  EXPECT_TRUE(drive->failed());
}

TEST_F(XfsDriveTest, AWriteToAReadOnlyFilesystemFailsTheDrive) {
  const auto drive = MustOpen(dir_);
  fs_->RemountReadOnly();
  EXPECT_EQ(drive->Create(Block(1)).status().code(), Code::kUnavailable);
  EXPECT_TRUE(drive->failed());
}

TEST_F(XfsDriveTest, AFullFilesystemIsNoFailureAndCanBeOpenedAgain) {
  auto drive = MustOpen(dir_);
  Store(*drive, Block(1), "kv");
  {
    const Fd filler(open((fs_->path() + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string zeros(kMiB, '\0');
    while (write(filler.get(), zeros.data(), zeros.size()) > 0) {
    }
    ASSERT_EQ(errno, ENOSPC);
  }
  Status status;
  for (uint8_t i = 2; status.ok() && i < 255; ++i) {
    Result<Fd> file = drive->Create(Block(i));
    status = file.status();
    const std::string data(kMiB, 'x');
    if (file.ok() && write(file->get(), data.data(), data.size()) < 0) {
      status = drive->Note(Status::FromErrno(errno, "write"));
    }
  }
  EXPECT_EQ(status.code(), Code::kNoSpace);
  EXPECT_FALSE(drive->failed());
  drive.reset();
  drive = MustOpen(dir_);
  ASSERT_TRUE(drive);
  EXPECT_TRUE(drive->supports_reflink());
  EXPECT_TRUE(drive->OpenSealed(Block(1)).ok());
  EXPECT_TRUE(drive->Unlink(Block(1), true).ok());
}

TEST_F(XfsDriveTest, AnImmutableBlockIsAnErrorOfThatBlockOnly) {
  const auto drive = MustOpen(dir_);
  Store(*drive, Block(1), "kv");
  Result<Fd> file = drive->OpenWritable(Block(1));
  ASSERT_TRUE(file.ok());
  int flags = FS_IMMUTABLE_FL;
  ASSERT_EQ(ioctl(file->get(), FS_IOC_SETFLAGS, &flags), 0);
  EXPECT_EQ(drive->Unlink(Block(1), true).code(), Code::kDenied);
  EXPECT_FALSE(drive->failed());
  flags = 0;
  ASSERT_EQ(ioctl(file->get(), FS_IOC_SETFLAGS, &flags), 0);
  EXPECT_TRUE(drive->Unlink(Block(1), true).ok());
}

TEST_F(XfsDriveTest, ASetLeavesOutADriveWhoseDeviceIsGoneAndGoesOnWithTheRest) {
  const support::LoopFs other("xfs", 512 * kMiB);
  const std::string healthy = other.path() + "/drive";
  {
    const auto set = DriveSet::Open({dir_, healthy});
    ASSERT_TRUE(set.ok()) << set.status().ToString();
  }
  fs_->ShutDown();
  const auto set = DriveSet::Open({dir_, healthy});
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  EXPECT_EQ(set.value()->drives().size(), 1u);
  EXPECT_EQ(set.value()->Find(0), nullptr);
  EXPECT_EQ(set.value()->Find(1)->path(), healthy);
  EXPECT_FALSE(DriveSet::Open({dir_}).ok()) << "none is left";
}

TEST_F(XfsDriveTest, ASetPlacesBlocksWhereTheFreeSpaceIs) {
  const support::LoopFs larger("xfs", 2048 * kMiB);
  const auto opened = DriveSet::Open({dir_, larger.path() + "/drive"});
  ASSERT_TRUE(opened.ok());
  DriveSet& set = *opened.value();
  uint64_t placed[2] = {};
  for (int i = 0; i < 100; ++i) {
    const uint16_t slot = set.Place(kMiB).value()->slot();
    placed[slot] += 1;
    set.AddQueued(slot, kMiB);
  }
  EXPECT_GT(placed[0], 5u);
  EXPECT_GT(placed[1], 2 * placed[0]);
}

TEST(Ext4DriveTest, HeadersAndLongRecordsFitDefaultInodes) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const support::LoopFs fs("ext4", 600 * kMiB);  // mkfs gives smaller ones 1 KiB blocks
  const auto drive = MustOpen(fs.path());        // with lost+found beside
  ASSERT_TRUE(drive);
  EXPECT_FALSE(drive->supports_reflink());
  Store(*drive, Block(1), "kv");
  const Result<Fd> file = drive->OpenWritable(Block(1));
  ASSERT_TRUE(file.ok());
  const std::string value(3700, 'v');
  ASSERT_EQ(fsetxattr(file.value().get(), "user.large", value.data(), value.size(), 0), 0);
  Inode longer = FileInode(Block(1));
  longer.name = std::string(kMaxName, 'n');
  EXPECT_EQ(drive->WriteHeader(file.value().get(), longer).code(), Code::kNoSpace)
      << "it does not fit beside what the client put there";
  EXPECT_TRUE(Drive::ReadHeader(file.value().get()).ok()) << "and the old header stays whole";
  Inode link = DirectoryInode(5);
  link.mode = S_IFLNK | 0777;
  link.target = std::string(kMaxTarget, 't');
  const Status put = drive->PutRecord(link);
  ASSERT_TRUE(put.ok()) << put.ToString();
  std::string target;
  ASSERT_TRUE(
      drive->ForEachRecord([&](Result<Inode> inode) { target = inode.value().target; }).ok());
  EXPECT_EQ(target, link.target);
  EXPECT_FALSE(drive->failed());
}

}  // namespace
}  // namespace prefixfs
