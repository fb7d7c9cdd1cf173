#include "cache/store/drive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/xattr.h>

#include <map>
#include <set>

#include "tests/cache/store/drive_fixture.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

namespace prefixfs {
namespace {

using ::testing::HasSubstr;

constexpr char kPool[] = "fedcba98-7654-3210-fedc-ba9876543210";
constexpr char kOtherPool[] = "00000000-7654-3210-fedc-ba9876543210";

// On ext4 or whatever /tmp is, and on tmpfs.
class DriveTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "trusted extended attributes need root";
  }
  support::TempDir temp_{GetParam()};
  std::string dir_ = temp_ / "drive";
};

INSTANTIATE_TEST_SUITE_P(Filesystems, DriveTest, ::testing::Values("/tmp", "/dev/shm"),
                         [](const auto& test) {
                           return std::string(test.param) == "/tmp" ? "Tmp" : "Tmpfs";
                         });

TEST_P(DriveTest, MakesTheLayoutInAnAbsentDirectoryWhateverTheUmask) {
  const mode_t old = umask(077);
  const auto drive = MustOpen(dir_ + "/deep/er");
  umask(old);
  ASSERT_TRUE(drive);
  EXPECT_EQ(ModeOf(dir_ + "/deep/er/PREFIXFS"), 0600u);
  for (const char* name : {"incoming", "blocks", "records"}) {
    EXPECT_EQ(ModeOf(dir_ + "/deep/er/" + name), 0711u) << name;
  }
  EXPECT_EQ(drive->uuid().size(), 36u);
  EXPECT_EQ(drive->pool_uuid(), "");
  EXPECT_FALSE(drive->has_slot());
  EXPECT_FALSE(drive->failed());
}

TEST_P(DriveTest, ADriveKeepsItsIdentity) {
  std::string uuid;
  {
    const auto drive = MustOpen(dir_);
    uuid = drive->uuid();
    ASSERT_TRUE(drive->Assign(kPool, 7, 9).ok());
  }
  const auto drive = MustOpen(dir_);
  EXPECT_EQ(drive->uuid(), uuid);
  EXPECT_EQ(drive->pool_uuid(), kPool);
  ASSERT_TRUE(drive->has_slot());
  EXPECT_EQ(drive->slot(), 7);
  EXPECT_EQ(drive->slots_given(), 9u);
}

TEST_P(DriveTest, TakesAnEmptyDirectoryAndAFreshExt4) {
  ASSERT_EQ(mkdir(dir_.c_str(), 0755), 0);
  ASSERT_EQ(mkdir((dir_ + "/lost+found").c_str(), 0700), 0);
  EXPECT_TRUE(MustOpen(dir_));
}

TEST_P(DriveTest, RefusesAForeignDirectoryAndLeavesItAlone) {
  ASSERT_EQ(mkdir(dir_.c_str(), 0755), 0);
  WriteFile(dir_ + "/thesis.tex", "years of work");
  const Status refused = Drive::Open(dir_, "").status();
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr("thesis.tex"));
  EXPECT_THAT(refused.message(), HasSubstr(dir_));
  EXPECT_FALSE(Exists(dir_ + "/blocks"));
  EXPECT_FALSE(Exists(dir_ + "/PREFIXFS"));
}

TEST_P(DriveTest, RefusesWhatIsNoDirectory) {
  WriteFile(dir_, "x");
  EXPECT_EQ(Drive::Open(dir_, "").status().code(), Code::kNotDirectory);
}

TEST_P(DriveTest, RefusesAnotherPoolAndTakesItsOwn) {
  ASSERT_TRUE(MustOpen(dir_)->Assign(kPool, 0).ok());
  const Status refused = Drive::Open(dir_, kOtherPool).status();
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr(kPool));
  EXPECT_TRUE(Drive::Open(dir_, kPool).ok());
}

TEST_P(DriveTest, RefusesADamagedOrNewerFormat) {
  MustOpen(dir_).reset();
  WriteFile(dir_ + "/PREFIXFS", "prefixfs-drive 2\n");
  EXPECT_EQ(Drive::Open(dir_, "").status().code(), Code::kInvalid);
  WriteFile(dir_ + "/PREFIXFS", "");
  EXPECT_EQ(Drive::Open(dir_, "").status().code(), Code::kCorrupt);
  WriteFile(dir_ + "/PREFIXFS", std::string(1 << 20, 'x'));
  EXPECT_EQ(Drive::Open(dir_, "").status().code(), Code::kCorrupt);
}

TEST_P(DriveTest, FollowsNoSymlinkInsideTheDrive) {
  MustOpen(dir_).reset();
  ASSERT_EQ(rename((dir_ + "/blocks").c_str(), (temp_ / "elsewhere").c_str()), 0);
  ASSERT_EQ(symlink((temp_ / "elsewhere").c_str(), (dir_ + "/blocks").c_str()), 0);
  EXPECT_FALSE(Drive::Open(dir_, "").ok());
}

TEST_P(DriveTest, ASecondOpenIsRejectedAndNamesTheHolder) {
  support::Channel channel;
  support::Child holder([&] {
    const auto drive = Drive::Open(dir_, "");
    channel.SendToA(drive.ok() ? "open" : drive.status().ToString());
    (void)channel.ReceiveAtB();
  });
  ASSERT_EQ(channel.ReceiveAtA(), "open");
  const Status refused = Drive::Open(dir_, "").status();
  EXPECT_EQ(refused.code(), Code::kRejected);
  EXPECT_THAT(refused.message(),
              HasSubstr("process " + std::to_string(holder.pid()) + " (drive_test"));
  channel.SendToB("go");
  holder.Join();
  EXPECT_TRUE(MustOpen(dir_)) << "the lock goes with its holder";
}

TEST_P(DriveTest, OneProcessCannotOpenADriveTwiceEither) {
  const auto drive = MustOpen(dir_);
  ASSERT_TRUE(drive->Assign(kPool, 0).ok());  // replaces the lock file
  const Status refused = Drive::Open(dir_, "").status();
  EXPECT_EQ(refused.code(), Code::kRejected);
  EXPECT_THAT(refused.message(), HasSubstr("process " + std::to_string(getpid())));
}

TEST_P(DriveTest, TheFormatFileIsLockedAlsoAfterItWasReplaced) {
  const auto drive = MustOpen(dir_);
  for (int round = 0; round < 2; ++round) {
    const Fd file(open((dir_ + "/PREFIXFS").c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(flock(file.get(), LOCK_EX | LOCK_NB), -1);
    EXPECT_EQ(errno, EWOULDBLOCK);
    ASSERT_TRUE(drive->Assign(kPool, 3).ok());
  }
}

TEST_P(DriveTest, ABlockIsWrittenPublishedAndRead) {
  const auto drive = MustOpen(dir_);
  const BlockId block = Block(0xab);
  const std::string hex = ToHex(block),
                    published = dir_ + "/blocks/" + hex.substr(0, 2) + "/" + hex;
  {
    const Result<Fd> file = drive->Create(block);
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(write(file.value().get(), "kv", 2), 2);
  }
  EXPECT_EQ(ModeOf(dir_ + "/incoming/" + hex), 0600u);
  {
    const Result<Fd> sealed = drive->OpenSealed(block);
    ASSERT_TRUE(sealed.ok()) << "a block is found also before it is moved";
    EXPECT_EQ(ReadFd(sealed.value().get()), "kv");
    EXPECT_EQ(write(sealed.value().get(), "x", 1), -1);
  }
  EXPECT_TRUE(drive->OpenWritable(block).ok());

  ASSERT_TRUE(drive->Publish(block).ok());
  EXPECT_TRUE(drive->Publish(block).ok()) << "publishing again changes nothing";
  EXPECT_FALSE(Exists(dir_ + "/incoming/" + hex));
  EXPECT_TRUE(Exists(published));
  EXPECT_EQ(ModeOf(dir_ + "/blocks/" + hex.substr(0, 2)), 0711u);
  const Result<Fd> sealed = drive->OpenSealed(block);
  ASSERT_TRUE(sealed.ok());
  EXPECT_EQ(ReadFd(sealed.value().get()), "kv");
  EXPECT_EQ(write(sealed.value().get(), "x", 1), -1);
  EXPECT_TRUE(drive->OpenWritable(block).ok());

  EXPECT_TRUE(drive->Unlink(block, true).ok());
  EXPECT_TRUE(drive->Unlink(block, true).ok()) << "gone already is fine";
  EXPECT_FALSE(Exists(published));
  EXPECT_FALSE(drive->failed());
}

TEST_P(DriveTest, DescriptorsAreNotInherited) {
  const auto drive = MustOpen(dir_);
  const Result<Fd> file = drive->Create(Block(1));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(fcntl(file.value().get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_P(DriveTest, ABlockIsMadeOnce) {
  const auto drive = MustOpen(dir_);
  ASSERT_TRUE(drive->Create(Block(1)).ok());
  EXPECT_EQ(drive->Create(Block(1)).status().code(), Code::kExists);
  EXPECT_EQ(drive->Publish(Block(2)).code(), Code::kNotFound);
  EXPECT_FALSE(drive->failed());
}

TEST_P(DriveTest, AnUnpublishedBlockIsRemoved) {
  const auto drive = MustOpen(dir_);
  ASSERT_TRUE(drive->Create(Block(1)).ok());
  EXPECT_TRUE(drive->Unlink(Block(1), false).ok());
  EXPECT_EQ(drive->OpenWritable(Block(1)).status().code(), Code::kNotFound);
  ASSERT_TRUE(drive->Create(Block(2)).ok());
  EXPECT_TRUE(drive->Unlink(Block(2), true).ok()) << "published, but not moved yet";
  EXPECT_EQ(drive->OpenWritable(Block(2)).status().code(), Code::kNotFound);
}

TEST_P(DriveTest, ASymlinkInPlaceOfABlockIsNotFollowedAndNoFailureOfTheDrive) {
  const auto drive = MustOpen(dir_);
  WriteFile(temp_ / "secret", "secret");
  ASSERT_EQ(symlink((temp_ / "secret").c_str(), (dir_ + "/incoming/" + ToHex(Block(1))).c_str()),
            0);
  EXPECT_EQ(drive->OpenWritable(Block(1)).status().code(), Code::kCorrupt);
  EXPECT_FALSE(drive->failed());
}

TEST_P(DriveTest, AHeaderIsReadBackBesideTheClientsXattrs) {
  const auto drive = MustOpen(dir_);
  const BlockId block = Block(9);
  const Result<Fd> file = drive->Create(block);
  ASSERT_TRUE(file.ok());
  const int fd = file.value().get();
  EXPECT_EQ(Drive::ReadHeader(fd).status().code(), Code::kNotFound);
  // tmpfs has user xattrs only since Linux 6.6.
  const bool user = fsetxattr(fd, "user.engine.note", "hello", 5, 0) == 0;
  ASSERT_TRUE(drive->WriteHeader(fd, FileInode(block)).ok());
  const Result<Inode> back = Drive::ReadHeader(fd);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back.value().name, FileInode(block).name);
  EXPECT_EQ(back.value().size, 1'124'352u);
  EXPECT_EQ(back.value().block, block);
  EXPECT_EQ(back.value().rank, 3);
  char value[8] = {};
  if (user) {
    EXPECT_EQ(fgetxattr(fd, "user.engine.note", value, sizeof value), 5);
  }
  Inode renamed = FileInode(block);
  renamed.name = "another";
  ASSERT_TRUE(drive->WriteHeader(fd, renamed).ok());
  EXPECT_EQ(Drive::ReadHeader(fd).value().name, "another");
}

TEST_P(DriveTest, AHeaderThatDoesNotHoldIsCorrupt) {
  const auto drive = MustOpen(dir_);
  const Result<Fd> file = drive->Create(Block(9));
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(fsetxattr(file.value().get(), "trusted.prefixfs", "garbage", 7, 0), 0);
  EXPECT_EQ(Drive::ReadHeader(file.value().get()).status().code(), Code::kCorrupt);
}

TEST_P(DriveTest, WritingAHeaderThroughASealedDescriptorIsRefusedAndNoFailureOfTheDrive) {
  const auto drive = MustOpen(dir_);
  Store(*drive, Block(9), "x");
  const Result<Fd> sealed = drive->OpenSealed(Block(9));
  ASSERT_TRUE(sealed.ok());
  // Where the kernel has no read-only clone, the header can be written.
  const Status written = drive->WriteHeader(sealed.value().get(), FileInode(Block(9)));
  EXPECT_TRUE(written.ok() || written.Is(Code::kInvalid)) << written.ToString();
  EXPECT_FALSE(drive->failed());
}

TEST_P(DriveTest, TheWalkSeesEveryBlockAndSurvivesWhateverElseIsThere) {
  const auto drive = MustOpen(dir_);
  for (const int first : {0x01, 0x02, 0xff})
    Store(*drive, Block(static_cast<uint8_t>(first)), "kv");
  const std::string blocks = dir_ + "/blocks/";
  // A block without a header, one with another's header, and a directory and a symlink under
  // blocks' names.
  ASSERT_TRUE(drive->Create(Block(3)).ok() && drive->Publish(Block(3)).ok());
  {
    const Result<Fd> file = drive->Create(Block(4));
    ASSERT_TRUE(drive->WriteHeader(file.value().get(), FileInode(Block(1))).ok());
    ASSERT_TRUE(drive->Publish(Block(4)).ok());
  }
  ASSERT_EQ(mkdir((blocks + "01/" + ToHex(Block(1)).replace(31, 1, "0")).c_str(), 0700), 0);
  ASSERT_EQ(symlink("/etc/passwd", (blocks + "01/" + ToHex(Block(1)).replace(31, 1, "1")).c_str()),
            0);
  // Foreign names: beside the fan-out, inside it, in the wrong place, and files that cannot be
  // entered.
  WriteFile(blocks + "README", "x");
  WriteFile(blocks + "ab", "no directory");
  WriteFile(blocks + "01/note.txt", "x");
  WriteFile(blocks + "01/" + ToHex(Block(0xee)), "in the wrong directory");
  ASSERT_EQ(mkfifo((blocks + "01/fifo").c_str(), 0600), 0);
  ASSERT_EQ(symlink("..", (blocks + "0a").c_str()), 0);

  std::map<std::string, Code> seen;
  ASSERT_TRUE(
      drive
          ->ForEachBlock([&](const BlockId& block, Result<Inode> inode, const struct stat& st) {
            seen[ToHex(block)] = inode.status().code();
            if (inode.ok()) {
              EXPECT_EQ(st.st_size, 2);
              EXPECT_EQ(inode->block, block);
            }
          })
          .ok());
  const std::map<std::string, Code> want = {
      {ToHex(Block(0x01)), Code::kOk},
      {ToHex(Block(0x02)), Code::kOk},
      {ToHex(Block(0xff)), Code::kOk},
      {ToHex(Block(3)), Code::kNotFound},
      {ToHex(Block(4)), Code::kCorrupt},
      {ToHex(Block(1)).replace(31, 1, "0"), Code::kCorrupt},
      {ToHex(Block(1)).replace(31, 1, "1"), Code::kCorrupt},
  };
  EXPECT_EQ(seen, want);
  EXPECT_FALSE(drive->failed());
}

TEST_P(DriveTest, ListsWhatLiesInIncomingAndNothingForeign) {
  const auto drive = MustOpen(dir_);
  Store(*drive, Block(1), "kv");
  ASSERT_TRUE(drive->Create(Block(2)).ok() && drive->Create(Block(3)).ok());
  ASSERT_EQ(mkdir((dir_ + "/incoming/strange").c_str(), 0700), 0);
  const Result<std::vector<BlockId>> incoming = drive->Incoming();
  ASSERT_TRUE(incoming.ok());
  EXPECT_THAT(incoming.value(), ::testing::UnorderedElementsAre(Block(2), Block(3)));
}

TEST_P(DriveTest, OpeningLeavesNothingInIncoming) {
  const auto drive = MustOpen(dir_);
  EXPECT_TRUE(drive->Incoming().value().empty());
}

TEST_P(DriveTest, RecordsAreWrittenReplacedListedAndRemoved) {
  const auto drive = MustOpen(dir_);
  for (Ino ino = 0x100; ino < 0x300; ++ino) ASSERT_TRUE(drive->PutRecord(DirectoryInode(ino)).ok());
  Inode renamed = DirectoryInode(0x123);
  renamed.name = "renamed";
  ASSERT_TRUE(drive->PutRecord(renamed).ok());
  ASSERT_TRUE(drive->RemoveRecord(0x124).ok());
  ASSERT_TRUE(drive->RemoveRecord(0x124).ok()) << "gone already is fine";
  WriteFile(dir_ + "/records/23/0000000000000023", "no record");
  WriteFile(dir_ + "/records/23/foreign", "x");

  std::map<Ino, std::string> names;
  int bad = 0;
  ASSERT_TRUE(drive
                  ->ForEachRecord([&](Result<Inode> inode) {
                    if (inode.ok()) {
                      names[inode->ino] = inode->name;
                    } else {
                      ++bad;
                    }
                  })
                  .ok());
  EXPECT_EQ(names.size(), 0x200u - 1);
  EXPECT_EQ(names[0x123], "renamed");
  EXPECT_EQ(names.count(0x124), 0u);
  EXPECT_EQ(bad, 1);
}

TEST_P(DriveTest, ARecordUnderAnotherNumberIsReported) {
  const auto drive = MustOpen(dir_);
  ASSERT_TRUE(drive->PutRecord(DirectoryInode(0x105)).ok());
  const std::string records = dir_ + "/records/05/";
  ASSERT_EQ(rename((records + "0000000000000105").c_str(), (records + "0000000000000205").c_str()),
            0);
  int bad = 0;
  ASSERT_TRUE(drive->ForEachRecord([&](Result<Inode> inode) { bad += !inode.ok(); }).ok());
  EXPECT_EQ(bad, 1);
}

TEST_P(DriveTest, RecordsHoldTheLongestNamesAndSymlinkTargets) {
  const auto drive = MustOpen(dir_);
  Inode link = DirectoryInode(5);
  link.mode = S_IFLNK | 0777;
  link.name = std::string(kMaxName, 'n');
  for (const size_t length : {kMaxTarget, size_t{3}, kMaxTarget}) {
    link.target = std::string(length, 't');
    const Status put = drive->PutRecord(link);
    ASSERT_TRUE(put.ok()) << put.ToString();
    Inode back;
    ASSERT_TRUE(
        drive->ForEachRecord([&](Result<Inode> inode) { back = std::move(inode).value(); }).ok());
    EXPECT_EQ(back.target, link.target);
    EXPECT_EQ(back.name, link.name);
  }
}

TEST_P(DriveTest, ADirectorysRecordCarriesTheClientsXattrs) {
  const auto drive = MustOpen(dir_);
  EXPECT_EQ(drive->OpenRecord(7).status().code(), Code::kNotFound);
  ASSERT_TRUE(drive->PutRecord(DirectoryInode(7)).ok());
  Result<Fd> record = drive->OpenRecord(7);
  ASSERT_TRUE(record.ok());
  if (fsetxattr(record->get(), "user.x", "y", 1, 0) != 0) GTEST_SKIP() << "no user xattrs here";
  ASSERT_TRUE(drive->PutRecord(DirectoryInode(7)).ok());
  record = drive->OpenRecord(7);
  char value;
  EXPECT_EQ(fgetxattr(record->get(), "user.x", &value, 1), 1) << "they survive a rewrite";
}

TEST_P(DriveTest, CloneSharesContentWhereTheFilesystemCan) {
  const auto drive = MustOpen(dir_);
  Store(*drive, Block(1), "kv");
  const Result<Fd> source = drive->OpenSealed(Block(1));
  ASSERT_TRUE(source.ok());
  const Result<Fd> clone = drive->Clone(source.value().get(), Block(2));
  if (drive->supports_reflink()) {
    ASSERT_TRUE(clone.ok()) << clone.status().ToString();
    EXPECT_EQ(ReadFd(clone.value().get()), "kv");
  } else {
    EXPECT_EQ(clone.status().code(), Code::kUnsupported);
    EXPECT_FALSE(Exists(dir_ + "/incoming/" + ToHex(Block(2)))) << "nothing is left behind";
  }
}

TEST_P(DriveTest, SaysHowMuchSpaceThereIs) {
  const auto drive = MustOpen(dir_);
  const Result<DriveSpace> space = drive->Space();
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space.value().total_bytes, 0u);
  EXPECT_LE(space.value().free_bytes, space.value().total_bytes);
  struct stat st {};
  ASSERT_EQ(stat(dir_.c_str(), &st), 0);
  EXPECT_EQ(space.value().fs_id, st.st_dev);
}

TEST_P(DriveTest, OnlyALostDeviceFailsTheDrive) {
  const auto drive = MustOpen(dir_);
  for (const int error :
       {ENOENT, ENOSPC, EEXIST, EPERM, EMFILE, EINVAL, EOPNOTSUPP, ENOMEM, ENAMETOOLONG}) {
    (void)drive->Note(Status::FromErrno(error, "x"));
    EXPECT_FALSE(drive->failed()) << strerror(error);
  }
  (void)drive->Note(Ok());
  EXPECT_FALSE(drive->failed());
}

TEST_P(DriveTest, ALostDeviceFailsTheDriveForGood) {
  for (const int error : {EIO, EROFS, ENODEV, ENXIO, EUCLEAN, ESHUTDOWN}) {
    const auto drive = MustOpen(dir_);
    const Status noted = drive->Note(Status::FromErrno(error, "what"));
    EXPECT_FALSE(noted.ok());
    EXPECT_THAT(noted.message(), HasSubstr("what")) << "the status passes through";
    EXPECT_TRUE(drive->failed()) << strerror(error);
    (void)drive->Note(Ok());
    EXPECT_TRUE(drive->failed());
    EXPECT_EQ(drive->Create(Block(1)).status().code(), Code::kUnavailable);
    EXPECT_EQ(drive->OpenSealed(Block(1)).status().code(), Code::kUnavailable);
    EXPECT_EQ(drive->Space().status().code(), Code::kUnavailable);
  }
}

}  // namespace
}  // namespace prefixfs
