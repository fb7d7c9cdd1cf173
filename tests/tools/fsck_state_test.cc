// What is no error: a clean store, a store whose daemon or system went down, leftovers; and who
// may not run fsck. And the command's own words.
#include <sys/wait.h>
#include <sys/xattr.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "cache/index/tables.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/tools/fsck_fixture.h"

namespace prefixfs {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class FsckState : public FsckFixture {
 protected:
  void ExpectClean(const std::set<std::string>& infos, bool checksums = true) {
    const fsck::Report report = Fsck(false, checksums);
    std::set<std::string> kinds = Kinds(report);
    // A dead daemon leaves the files that it made ahead, or is a moment too early for that.
    if (!infos.contains("incoming")) kinds.erase("incoming");
    EXPECT_EQ(kinds, infos) << Describe(report);
    EXPECT_EQ(report.ExitCode(), fsck::kExitClean) << Describe(report);
  }
  // Does so in a child that ends without closing anything.
  template <typename Do>
  void DieAfter(Do act) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      Start();
      act();
      ::_exit(HasFailure() ? 1 : 0);
    }
    int status;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
  }
  // A file on the second drive that is to be removed.
  void MakeTrash(const BlockId& block) {
    const std::string path = second() + seed::BlockPath(block);
    fs::create_directories(fs::path(path).parent_path());
    fs::permissions(fs::path(path).parent_path(), fs::perms(0711));
    seed::WriteText(path, "trash");
  }
  support::RunResult Tool(std::vector<std::string> words) {
    words.insert(words.begin(), {support::ToolPath("prefixfs"), "fsck"});
    return support::Run(words);
  }
};

TEST_F(FsckState, AStoreThatWasClosedIsClean) {
  const fsck::Report report = Fsck();
  EXPECT_THAT(report.findings, IsEmpty()) << Describe(report);
  EXPECT_EQ(report.ExitCode(), fsck::kExitClean);
  EXPECT_EQ(report.inodes, 4 + contents_.size());
  EXPECT_EQ(report.blocks, contents_.size());
  EXPECT_EQ(report.records, 6u);
  EXPECT_GT(report.checked_bytes, 0u);
}

TEST_F(FsckState, ACheckChangesNothing) {
  const std::string before = seed::ReadText(first() + "/index/data.mdb");
  (void)Fsck();
  (void)Fsck(true);
  EXPECT_EQ(seed::ReadText(first() + "/index/data.mdb"), before);
  Start();
  EXPECT_FALSE(cache_->MakeReport().index_rebuilt);
  EXPECT_THAT(Wrong(), IsEmpty());
}

TEST_F(FsckState, AStoreInUseIsLeftAlone) {
  Start();
  const Result<fsck::Report> report = fsck::Run({.drives = config_.nvme, .repair = true});
  EXPECT_TRUE(report.status().Is(Code::kRejected)) << report.status().ToString();
  const support::RunResult result = Tool({first(), second()});
  EXPECT_EQ(result.exit_code, fsck::kExitFailedToRun);
  EXPECT_THAT(result.err, HasSubstr("in use"));
}

TEST_F(FsckState, ADirectoryThatIsNoDriveIsRefused) {
  fs::create_directory(directory_ + "/home");
  seed::WriteText(directory_ + "/home/letter", "dear");
  const Result<fsck::Report> report = fsck::Run({.drives = {directory_ + "/home"}, .repair = true});
  EXPECT_TRUE(report.status().Is(Code::kInvalid)) << report.status().ToString();
  EXPECT_TRUE(fs::exists(directory_ + "/home/letter"));
  EXPECT_FALSE(fsck::Run({.drives = {first(), first()}}).ok());
  EXPECT_FALSE(fsck::Run({.drives = {directory_ + "/absent"}}).ok());
}

// A block whose writer died, one that is closed and waits for its rename, one without a checksum, a
// removed one and an ordinary file that is being written.
TEST_F(FsckState, WhatADeadDaemonLeavesIsNoError) {
  DieAfter([this] {
    Result<Created> open = Create("open");
    WriteTo(*open->handle, "half");
    Put("temporary.tmp", "not renamed yet");
    Put("young", "perhaps without a checksum");
    ASSERT_TRUE(cache_->Unlink(kRootIno, "plain0", Self()).ok());
  });
  fsck::Report report = Fsck();
  EXPECT_EQ(report.ExitCode(), fsck::kExitClean) << Describe(report);
  EXPECT_EQ(report.Count(fsck::Kind::kIndexInUse), 1u);
  EXPECT_GE(report.Count(fsck::Kind::kIncoming), 2u) << Describe(report);
  Start();
  EXPECT_EQ(Read("young"), "perhaps without a checksum");
  AwaitChecksums();
  cache_.reset();
  ExpectClean({});
}

TEST_F(FsckState, AnOrdinaryFileThatWasBeingWrittenIsNoError) {
  DieAfter([this] {
    Result<Created> open = Create("obj_1_x.bin");
    WriteTo(*open->handle, "no size in the index yet");
  });
  ExpectClean({"index-in-use", "unsettled"});
}

TEST_F(FsckState, AHeaderThatAKillKeptFromBeingWrittenIsNoErrorAndIsWritten) {
  const std::string path = FileOf("victim");
  const Inode dir = InodeOf("dir");
  ASSERT_EQ(::removexattr(path.c_str(), "trusted.prefixfs"), 0);
  for (const std::string& drive : config_.nvme) fs::remove(drive + seed::RecordPath(dir.ino));
  seed::WriteState(first(), CurrentBootId(), "in use");
  ExpectClean({"index-in-use", "header-missing", "record-missing"});
  EXPECT_EQ(Fsck(true).ExitCode(), fsck::kExitClean);
  ExpectClean({"index-in-use"});
  EXPECT_EQ(seed::HeaderInode(path).name, "victim");
  fs::remove_all(first() + "/index");
  Start();
  EXPECT_THAT(Wrong(), IsEmpty());
}

TEST_F(FsckState, ABlockWhoseHeaderAndContentAreBothWrongIsPutAside) {
  const std::string path = FileOf("victim");
  ASSERT_EQ(::removexattr(path.c_str(), "trusted.prefixfs"), 0);
  Fd fd(::open(path.c_str(), O_WRONLY));
  ASSERT_EQ(::pwrite(fd.get(), "W", 1, 100), 1);
  EXPECT_EQ(Kinds(Fsck(true, false)), std::set<std::string>{"header-missing"});
  ExpectClean({"index-absent", "quarantine"});
  Start();
  EXPECT_EQ(Find("victim", Stranger()), 0u);
  EXPECT_EQ(Wrong(), std::set<std::string>{"victim"});
}

TEST_F(FsckState, AfterACrashOfTheSystemTheDrivesAreJudgedAsARebuildWould) {
  seed::WriteState(first(), "another-boot", "in use");
  ASSERT_EQ(::removexattr(FileOf("twin").c_str(), "trusted.prefixfs"), 0);
  seed::WriteState(first(), "another-boot", "in use");
  ExpectClean({"index-stale", "dropped"});
}

TEST_F(FsckState, AStoreWithoutAnIndexIsChecked) {
  const std::string victim = FileOf("victim"), twin = FileOf("twin");
  fs::remove_all(first() + "/index");
  ExpectClean({"index-absent"});
  Fd fd(::open(victim.c_str(), O_WRONLY));
  ASSERT_EQ(::pwrite(fd.get(), "W", 1, 100), 1);
  seed::SetHeader(twin, "no header");
  EXPECT_EQ(Kinds(Fsck()),
            (std::set<std::string>{"index-absent", "block-content", "header-damaged"}));
  EXPECT_EQ(Fsck(true).ExitCode(), fsck::kExitRepaired);
  ExpectClean({"index-absent", "quarantine"});
  Start();
  EXPECT_EQ(Wrong(), (std::set<std::string>{"victim", "twin"}));
}

// A rebuild leaves them out, and in records/. Unless their directory may be on a drive elsewhere.
TEST_F(FsckState, RecordsWithoutTheirDirectoryGoWhenAllDrivesAreHere) {
  const std::string dir = seed::RecordPath(InodeOf("dir").ino);
  const std::string sub = seed::RecordPath(InodeOf("sub").ino);
  fs::remove_all(first() + "/index");
  for (const std::string& drive : {first(), second()}) fs::remove(drive + dir);
  ExpectClean({"index-absent", "dropped"});
  const std::vector<std::string> both = std::exchange(config_.nvme, {second()});
  EXPECT_EQ(Fsck(true).ExitCode(), fsck::kExitClean);
  EXPECT_TRUE(fs::exists(second() + sub));
  config_.nvme = both;
  EXPECT_EQ(Fsck(true).ExitCode(), fsck::kExitClean);
  EXPECT_FALSE(fs::exists(first() + sub) || fs::exists(second() + sub));
}

TEST_F(FsckState, LeftoversAreTold) {
  seed::WriteText(first() + "/incoming/" + std::string(32, 'a'), "left");
  seed::WriteText(first() + "/incoming/.probe", "p");
  fs::create_directory(second() + "/quarantine");
  fs::permissions(second() + "/quarantine", fs::perms(0700));
  seed::WriteText(second() + "/quarantine/" + std::string(32, 'b'), "bad block");
  seed::WriteText(second() + "/notes", "the operator's");
  {
    seed::IndexEditor editor(first());
    const TrashEntry entry{RandomBlockId(), 1};
    const Key key = TrashKey(entry);
    editor.Put("trash", key, Seal(key, {}));
    MakeTrash(entry.block);
  }
  ExpectClean({"incoming", "quarantine", "stranger", "trash"});
}

TEST_F(FsckState, AnOldRecordBesideACurrentOneIsNoError) {
  const std::string path = second() + seed::RecordPath(InodeOf("dir").ino);
  Inode record = seed::HeaderInode(path);
  record.name = "before";
  seed::SetHeaderInode(path, record);
  ExpectClean({"record-old"});
}

TEST_F(FsckState, ADriveThatWasNotGivenIsTold) {
  config_.nvme.pop_back();
  ExpectClean({"drive-absent"});
  config_.nvme = {second(), first()};
  const fsck::Report report = Fsck();
  EXPECT_EQ(Kinds(report), (std::set<std::string>{"index-absent", "index-stray"}));
  config_.nvme = {second()};
  ExpectClean({"index-absent", "drive-absent"});
}

// LMDB believes what its pages say, so the worst that may come of them is a finding.
TEST_F(FsckState, AnIndexWithFlippedBitsIsReadWithoutHarm) {
  const std::string path = first() + "/index/data.mdb";
  const std::string whole = seed::ReadText(path);
  std::minstd_rand random(11);
  int found = 0;
  for (int round = 0; round < 60; ++round) {
    std::string damaged = whole;
    for (int flip = 0; flip < 1 << (round % 10); ++flip)
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << (random() % 8));
    seed::WriteText(path, damaged);
    seed::WriteState(first(), CurrentBootId(), "clean");
    const Result<fsck::Report> report = fsck::Run({.drives = config_.nvme});
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    found += report->errors() > 0 ? 1 : 0;
  }
  EXPECT_GT(found, 30);
}

TEST_F(FsckState, TheCommandPrintsJsonWithoutBytesThatATerminalActsUpon) {
  seed::WriteText(first() + "/blocks/\x1b[2J\xff", "x");
  support::RunResult result = Tool({"--json", first(), second()});
  EXPECT_EQ(result.exit_code, fsck::kExitErrorsLeft) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("errors"), 1);
  EXPECT_EQ(json.at("exit_code"), fsck::kExitErrorsLeft);
  EXPECT_EQ(json.at("kinds").at("foreign"), 1);
  ASSERT_THAT(json.at("findings"), SizeIs(1));
  EXPECT_EQ(json.at("findings")[0].at("where"), first() + "/blocks/\\x1b[2J\\xff");
  result = Tool({"--checksums", first(), second()});
  EXPECT_THAT(result.out, AllOf(HasSubstr("\\x1b[2J"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(Tool({"--repair", first(), second()}).exit_code, fsck::kExitRepaired);
  result = Tool({first(), second()});
  EXPECT_EQ(result.exit_code, fsck::kExitClean);
  EXPECT_THAT(result.out, HasSubstr("clean"));
}

TEST_F(FsckState, WrongUsageIsExitCodeSixteen) {
  EXPECT_EQ(Tool({}).exit_code, fsck::kExitWrongUsage);
  EXPECT_EQ(Tool({"--nonsense", first()}).exit_code, fsck::kExitWrongUsage);
  EXPECT_EQ(Tool({"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace prefixfs
