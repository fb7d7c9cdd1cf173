// prefixfs mount, umount, stat and locate against a real daemon, in every state that the daemon may
// be in.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/child.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace prefixfs::support {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;

RunResult Tool(std::vector<std::string> words) {
  words.insert(words.begin(), ToolPath("prefixfs"));
  return Run(words, std::chrono::seconds(90));
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  ASSERT_TRUE(file) << path;
}

// Another process that does `hold`, says so, and stays until the test ends it.
class Holder {
 public:
  explicit Holder(const std::function<void()>& hold)
      : child_([this, hold] {
          hold();
          *held_ = 1;
          while (true) ::pause();
        }) {
    WaitUntil([this] { return *held_ == 1; }, "the other process is ready");
  }
  pid_t pid() const { return child_.pid(); }
  void End() { child_.Kill(SIGKILL); }

 private:
  Shared<int> held_;
  Child child_;
};

std::string ReadProc(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Stops the daemon of a mount and lets it go on again at the end, if it is still there.
class Stopped {
 public:
  explicit Stopped(pid_t pid) : pid_(pid) {
    ::kill(pid_, SIGSTOP);
    WaitUntil([&] { return AllThreadsStopped(); }, "the daemon has stopped");
  }
  ~Stopped() { ::kill(pid_, SIGCONT); }

 private:
  bool AllThreadsStopped() const {
    const std::string tasks = "/proc/" + std::to_string(pid_) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      const std::string status = ReadProc(std::stoi(task.path().filename()), "status");
      if (status.find("State:\tT") == std::string::npos) return false;
    }
    return true;
  }

  pid_t pid_;
};

class MountCli : public testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "is about the programs";
  }
};

TEST_F(MountCli, MountsAnswersUnmountsAndTheDirectoryCanBeUsedAgainAtOnce) {
  Mount mount;
  WriteFile(mount / "a.bin", "hello");
  const RunResult stat = Tool({"stat", mount.path()});
  EXPECT_TRUE(stat.ok()) << stat.Describe();
  EXPECT_THAT(stat.out, HasSubstr("capacity     1.00 GiB"));
  EXPECT_THAT(stat.out, HasSubstr(mount.drive()));

  const RunResult raw = Tool({"stat", "--json", mount.path()});
  const json stats = json::parse(raw.out, nullptr, false);
  ASSERT_TRUE(stats.is_object()) << raw.Describe();
  EXPECT_EQ(stats.at("capacity_bytes"), 1u << 30);
  EXPECT_EQ(stats.at("daemon_pid"), mount.daemon_pid());

  const RunResult umount = Tool({"umount", mount.path()});
  EXPECT_TRUE(umount.ok()) << umount.Describe();
  EXPECT_FALSE(IsMountPoint(mount.path()));
  EXPECT_EQ(mount.daemon_pid(), 0);
  EXPECT_EQ(Tool({"umount", mount.path()}).exit_code, 1);
  mount.Start();
  EXPECT_TRUE(std::filesystem::exists(mount / "a.bin"));
}

TEST_F(MountCli, TheDaemonHoldsNothingOfItsCaller) {
  Mount mount;
  const std::string proc = "/proc/" + std::to_string(mount.daemon_pid());
  EXPECT_EQ(::getsid(mount.daemon_pid()), mount.daemon_pid());
  EXPECT_EQ(std::filesystem::read_symlink(proc + "/fd/0"), "/dev/null");
  EXPECT_EQ(std::filesystem::read_symlink(proc + "/fd/1"), "/dev/null");
  EXPECT_EQ(std::filesystem::read_symlink(proc + "/fd/2"), "/dev/null");
}

TEST_F(MountCli, ASecondDaemonOnTheSameDirectoryIsRefusedAndTheFirstIsNamed) {
  Mount mount;
  const TempDir other;
  const RunResult second =
      Tool({"mount", "--nvme", mount.drive(), "--set", "min_free=272M", other.path()});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr(std::to_string(mount.daemon_pid())));
  EXPECT_FALSE(IsMountPoint(other.path()));
  EXPECT_TRUE(Tool({"stat", mount.path()}).ok());
}

TEST_F(MountCli, ASecondMountOnTheSamePointIsRefused) {
  Mount mount;
  const TempDir drive;
  const RunResult second = Tool({"mount", "--nvme", drive.path(), mount.path()});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("already mounted"));
  EXPECT_THAT(second.err, HasSubstr(std::to_string(mount.daemon_pid())));
}

TEST_F(MountCli, AMountPointMustBeADirectoryThatExists) {
  const TempDir directory;
  RunResult result = Tool({"mount", "--nvme", directory / "drive", directory / "absent"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("mkdir -p " + (directory / "absent")));
  WriteFile(directory / "file", "");
  result = Tool({"mount", "--nvme", directory / "drive", directory / "file"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("is not a directory"));
}

TEST_F(MountCli, WhatTheDaemonRefusesIsSaidOnTheTerminalAndNothingStaysBehind) {
  const TempDir directory;
  std::filesystem::create_directory(directory / "mnt");
  std::filesystem::create_directory(directory / "drive");
  WriteFile(directory / "drive/somebody", "else's");
  const RunResult result = Tool({"mount", "--nvme", directory / "drive", directory / "mnt"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr(directory / "drive"));
  EXPECT_FALSE(IsMountPoint(directory / "mnt"));
}

TEST_F(MountCli, ABusyMountIsNotTakenAwayAndTheHolderIsNamed) {
  Mount mount;
  Holder holder([&] {
    const int fd = ::open((mount / "held").c_str(), O_CREAT | O_RDWR, 0600);
    ::dup2(fd, 55);
  });
  const RunResult busy = Tool({"umount", "--wait", "200ms", mount.path()});
  EXPECT_EQ(busy.exit_code, 1);
  EXPECT_THAT(busy.err, HasSubstr("pid " + std::to_string(holder.pid()) + " ("));
  EXPECT_THAT(busy.err, HasSubstr("fd 55 " + (mount / "held")));
  EXPECT_TRUE(Tool({"stat", mount.path()}).ok()) << "a refused unmount must change nothing";
  holder.End();
  const RunResult free = Tool({"umount", mount.path()});
  EXPECT_TRUE(free.ok()) << free.Describe();
}

TEST_F(MountCli, ForceUnmountsABusyMountAndFreesTheDirectory) {
  Mount mount;
  const Holder holder([&] { (void)!::chdir(mount.path().c_str()); });
  const RunResult busy = Tool({"umount", "--wait", "0s", mount.path()});
  EXPECT_EQ(busy.exit_code, 1);
  EXPECT_THAT(busy.err, HasSubstr("cwd " + mount.path()));
  const RunResult forced = Tool({"umount", "--force", mount.path()});
  EXPECT_TRUE(forced.ok()) << forced.Describe();
  EXPECT_FALSE(IsMountPoint(mount.path()));
  mount.Start();
}

TEST_F(MountCli, AMountThatIsBoundElsewhereTooIsBusyAndForceTakesBothAway) {
  Mount mount;
  const TempDir copy;  // unmounted by its destructor if need be
  support::RunOrFail({"mount", "--bind", mount.path(), copy.path()});
  const RunResult busy = Tool({"umount", "--wait", "0s", mount.path()});
  EXPECT_EQ(busy.exit_code, 1);
  EXPECT_THAT(busy.err, HasSubstr("mount " + copy.path()));
  EXPECT_TRUE(Tool({"stat", mount.path()}).ok()) << "a refused unmount must change nothing";
  const RunResult forced = Tool({"umount", "--force", mount.path()});
  EXPECT_TRUE(forced.ok()) << forced.Describe();
  EXPECT_FALSE(IsMountPoint(mount.path()));
  EXPECT_FALSE(IsMountPoint(copy.path()));
}

TEST_F(MountCli, AStoppedDaemonIsUnmountedAndItsDirectoryIsFree) {
  Mount mount;
  WriteFile(mount / "kept", "whole");
  const Stopped stopped(mount.daemon_pid());
  const RunResult result = Tool({"umount", mount.path()});
  EXPECT_TRUE(result.ok()) << result.Describe();
  EXPECT_THAT(result.err, HasSubstr("does not answer"));
  EXPECT_FALSE(IsMountPoint(mount.path()));
  mount.Start();
  EXPECT_TRUE(std::filesystem::exists(mount / "kept"));
}

TEST_F(MountCli, AClientThatWaitsForAStoppedDaemonIsSetFreeByUmount) {
  Mount mount;
  const Stopped stopped(mount.daemon_pid());
  Shared<int> error;
  Child client([&] {
    struct stat info;
    *error = ::stat((mount / "name").c_str(), &info) == 0 ? -1 : errno;
  });
  const std::string waiting = std::to_string(SYS_newfstatat) + " ";
  WaitUntil([&] { return ReadProc(client.pid(), "syscall").starts_with(waiting); },
            "the client waits for the daemon");
  const RunResult result = Tool({"umount", mount.path()});
  EXPECT_TRUE(result.ok()) << result.Describe();
  client.Join();
  EXPECT_THAT(*error, AnyOf(ECONNABORTED, ENOTCONN, ECANCELED));
}

TEST_F(MountCli, AskingAStoppedDaemonFailsInBoundedTimeAndSaysWhatToDo) {
  Mount mount;
  const Stopped stopped(mount.daemon_pid());
  RunResult result = Tool({"stat", mount.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("prefixfs umount " + mount.path()));
  result = Tool({"locate", "0123456789abcdef"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_FALSE(result.timed_out);
}

TEST_F(MountCli, AMountIsMadeOverTheDeadMountOfAKilledDaemon) {
  Mount mount;
  WriteFile(mount / "kept", "whole");
  const int pid = mount.daemon_pid();
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(WaitGone(pid, std::chrono::seconds(10)));
  const RunResult dead = Tool({"stat", mount.path()});
  EXPECT_EQ(dead.exit_code, 1);
  EXPECT_THAT(dead.err, HasSubstr("has died"));
  mount.Start();
  EXPECT_TRUE(std::filesystem::exists(mount / "kept"));
  const RunResult umount = Tool({"umount", mount.path()});
  EXPECT_TRUE(umount.ok()) << umount.Describe();
  EXPECT_FALSE(IsMountPoint(mount.path())) << "the dead mount was only covered";
}

TEST_F(MountCli, TheDeadMountOfAKilledDaemonCanBeUnmounted) {
  Mount mount;
  const int pid = mount.daemon_pid();
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(WaitGone(pid, std::chrono::seconds(10)));
  const RunResult result = Tool({"umount", mount.path()});
  EXPECT_TRUE(result.ok()) << result.Describe();
  EXPECT_FALSE(IsMountPoint(mount.path()));
  mount.Start();
}

TEST_F(MountCli, AFileIsLocatedByItsPathAndByItsHash) {
  Mount mount;
  const std::string hash(64, 'a');
  const std::string folder = mount / "m_0a1b2c3d4e5f_r0/aaa/aa_g0";
  std::filesystem::create_directories(folder);
  WriteFile(folder + "/" + hash + ".bin", std::string(4096, 'x'));
  const RunResult by_path = Tool({"locate", "--json", folder + "/" + hash + ".bin"});
  const json found = json::parse(by_path.out, nullptr, false);
  ASSERT_TRUE(found.is_array() && found.size() == 1) << by_path.Describe();
  EXPECT_EQ(found[0].at("size"), 4096);
  EXPECT_EQ(found[0].at("tier"), "nvme");

  const RunResult by_hash = Tool({"locate", "--json", "--mount", mount.path(), hash});
  const json same = json::parse(by_hash.out, nullptr, false);
  ASSERT_TRUE(same.is_array() && same.size() == 1) << by_hash.Describe();
  EXPECT_EQ(same[0].at("ino"), found[0].at("ino"));

  const RunResult human = Tool({"locate", "--mount", mount.path(), hash});
  EXPECT_THAT(human.out, HasSubstr("4.00 KiB"));
  const RunResult absent = Tool({"locate", "--mount", mount.path(), std::string(64, 'b')});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.err, HasSubstr("no block has this hash"));
}

TEST_F(MountCli, TheHelperOfMountTakesOptionsAndASource) {
  Mount mount;  // its drive and mount point are used again
  mount.Stop();
  const RunResult made = support::Run({ToolPath("mount.prefixfs"), mount.drive(), mount.path(),
                                       "-o", "rw,nofail,capacity=700M,min_free=272M,lease=3s"});
  ASSERT_TRUE(made.ok()) << made.Describe();
  EXPECT_EQ(mount.Stat("capacity_bytes"), 700ull << 20);
  std::ifstream config(mount / ".prefixfs/config");
  const std::string text{std::istreambuf_iterator<char>(config), {}};
  EXPECT_THAT(text, HasSubstr("lease = \"3s\""));
}

TEST_F(MountCli, ATreeThatWasMovedFindsItsDaemonInSbin) {
  Mount mount;
  mount.Stop();
  const TempDir tree;
  std::filesystem::create_directory(tree / "bin");
  std::filesystem::create_directory(tree / "sbin");
  std::filesystem::copy_file(ToolPath("prefixfs"), tree / "bin/prefixfs");
  std::filesystem::copy_file(ToolPath("prefixfsd"), tree / "sbin/prefixfsd");
  std::filesystem::create_symlink("../bin/prefixfs", tree / "sbin/mount.prefixfs");
  const RunResult made = support::Run({tree / "sbin/mount.prefixfs", mount.drive(), mount.path(),
                                       "-o", "capacity=700M,min_free=272M"});
  ASSERT_TRUE(made.ok()) << made.Describe();
  EXPECT_EQ(std::filesystem::read_symlink("/proc/" + std::to_string(mount.daemon_pid()) + "/exe"),
            tree / "sbin/prefixfsd");
  const RunResult umount = support::Run({tree / "bin/prefixfs", "umount", mount.path()});
  EXPECT_TRUE(umount.ok()) << umount.Describe();
}

}  // namespace
}  // namespace prefixfs::support
