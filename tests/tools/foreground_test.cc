// `prefixfs mount --foreground`, as a service manager runs it: what it is told, and what a signal
// does to the mount and to those who use it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/support/child.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace prefixfs::support {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// The end of $NOTIFY_SOCKET at which a service manager would sit.
class Manager {
 public:
  Manager() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof(address.sun_path) - 1);
    const auto* raw = reinterpret_cast<const sockaddr*>(&address);
    if (::bind(socket_.get(), raw, sizeof(address)) != 0) {
      ADD_FAILURE() << path() << " cannot be bound";
    }
  }
  std::string path() const { return directory_ / "notify"; }

  // The next message, empty at the deadline.
  std::string Next(int timeout_ms = 20'000) const {
    pollfd poll{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, timeout_ms) <= 0) return {};
    char text[4096];
    const ssize_t n = ::recv(socket_.get(), text, sizeof(text), 0);
    return n < 0 ? std::string() : std::string(text, static_cast<size_t>(n));
  }
  // The first message from now on that holds `word`, empty if there is none in time.
  std::string Await(const std::string& word) const {
    while (true) {
      const std::string message = Next();
      if (message.empty() || message.find(word) != std::string::npos) return message;
    }
  }

 private:
  TempDir directory_;
  Fd socket_;
};

// `prefixfs mount --foreground` on the drive and the mount point of `mount`, which is not mounted.
class Foreground {
 public:
  Foreground(const Mount& mount, const Manager& manager, const std::string& stop_wait)
      : words_({ToolPath("prefixfs"), "mount", "--foreground", "--stop-wait", stop_wait, "--nvme",
                mount.drive(), "--capacity", "1G", "--set", "min_free=272M", "--set",
                "log=" + mount.log_path(), mount.path()}) {
    if (ServedMode()) words_.insert(words_.end() - 1, {"--set", "passthrough=off"});
    if (DevFuseMode()) words_.insert(words_.end() - 1, {"--set", "io_uring=off"});
    std::vector<char*> pointers;
    for (auto& word : words_) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setenv("NOTIFY_SOCKET", manager.path().c_str(), 1);
    ::setsid();  // as a service: no terminal
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  ~Foreground() {
    if (!ended_ && pid_ > 0) {
      ::kill(pid_, SIGKILL);
      (void)ExitCode();
    }
  }
  pid_t pid() const { return pid_; }
  void Signal(int signal) const { ::kill(pid_, signal); }
  // Waits for the end: the exit code, or 128 and the signal that it died of; -1 if it does not end.
  int ExitCode(seconds deadline = seconds(40)) {
    const auto end = steady_clock::now() + deadline;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (steady_clock::now() >= end) return -1;
      ::usleep(10'000);
    }
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  std::vector<std::string> words_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

class ForegroundTest : public testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "is about the programs";
    mount_.emplace();
    mount_->Stop();
  }
  std::string Path(const std::string& name) const { return *mount_ / name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream file(Path(name));
    file << text;
    file.close();
    ASSERT_TRUE(file) << name;
  }
  // What must hold after every end: nothing at the mount point, and the drive can be used again.
  void ExpectGone() {
    EXPECT_FALSE(IsMountPoint(mount_->path()));
    EXPECT_EQ(mount_->daemon_pid(), 0);
    EXPECT_NO_THROW(mount_->Start());
  }

  std::optional<Mount> mount_;
  Manager manager_;
};

TEST_F(ForegroundTest, TheManagerIsToldWhenTheMountAnswersAndASignalEndsItWithZero) {
  Foreground foreground(*mount_, manager_, "10s");
  EXPECT_THAT(manager_.Next(), StartsWith("STATUS=opening " + mount_->drive()));
  const std::string ready = manager_.Next();
  EXPECT_THAT(ready, StartsWith("READY=1\nSTATUS=serving " + mount_->path()));
  EXPECT_TRUE(IsMountPoint(mount_->path()));
  EXPECT_EQ(mount_->daemon_pid(), foreground.pid()) << "the manager must know its main process";
  Write("block.bin", "whole");
  foreground.Signal(SIGTERM);
  EXPECT_THAT(manager_.Next(), StartsWith("STOPPING=1\n"));
  EXPECT_EQ(foreground.ExitCode(), 0);
  EXPECT_THAT(mount_->Log(), Not(HasSubstr("still in use")));
  ExpectGone();
  std::ifstream file(Path("block.bin"));
  std::string text;
  EXPECT_TRUE(file >> text);
  EXPECT_EQ(text, "whole");
}

TEST_F(ForegroundTest, AMountThatCannotBeMadeFailsAndIsNeverReady) {
  const TempDir other;
  std::ofstream(other / "file") << "not ours";
  const RunResult result = support::Run(
      {ToolPath("prefixfs"), "mount", "--foreground", "--nvme", other.path(), mount_->path()},
      seconds(60), {{"NOTIFY_SOCKET", manager_.path()}});
  EXPECT_EQ(result.exit_code, 1) << result.Describe();
  EXPECT_THAT(result.err, HasSubstr(other.path()));
  EXPECT_THAT(manager_.Next(), StartsWith("STATUS=opening"));
  EXPECT_EQ(manager_.Next(500), "");
  EXPECT_FALSE(IsMountPoint(mount_->path()));
}

TEST_F(ForegroundTest, ASignalWaitsForThoseWhoUseTheMountAndTheyNoticeNothing) {
  Foreground foreground(*mount_, manager_, "60s");
  ASSERT_THAT(manager_.Await("READY=1"), Not(""));
  Write("held", "bytes");
  Fd file(::open(Path("held").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file.valid());
  foreground.Signal(SIGTERM);
  ASSERT_THAT(manager_.Await("STOPPING=1"), Not(""));
  EXPECT_EQ(foreground.ExitCode(seconds(1)), -1) << "it did not wait";
  char text[8];
  EXPECT_EQ(::read(file.get(), text, sizeof(text)), 5);
  Write("late", "a block that is written meanwhile");
  EXPECT_TRUE(std::filesystem::exists(Path("late")));
  file.Reset();
  EXPECT_EQ(foreground.ExitCode(seconds(30)), 0);
  ExpectGone();
  EXPECT_TRUE(std::filesystem::exists(Path("late")));
}

TEST_F(ForegroundTest, AfterTheWaitTheMountGoesAlthoughAFileIsOpenAndTheHolderIsNamed) {
  Foreground foreground(*mount_, manager_, "500ms");
  ASSERT_THAT(manager_.Await("READY=1"), Not(""));
  Write("held", "bytes");
  const Fd file(::open(Path("held").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file.valid());
  foreground.Signal(SIGTERM);
  ASSERT_EQ(foreground.ExitCode(), 0);
  EXPECT_THAT(mount_->Log(), HasSubstr("still in use"));
  EXPECT_THAT(mount_->Log(), HasSubstr("pid " + std::to_string(::getpid()) + " ("));
  EXPECT_NE(::fsync(file.get()), 0) << "there is no daemon that could";
  ExpectGone();
}

TEST_F(ForegroundTest, ASecondSignalDoesNotWait) {
  Foreground foreground(*mount_, manager_, "1h");
  ASSERT_THAT(manager_.Await("READY=1"), Not(""));
  const Fd held(::open(mount_->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(held.valid());
  foreground.Signal(SIGINT);
  ASSERT_THAT(manager_.Await("STOPPING=1"), Not(""));
  EXPECT_EQ(foreground.ExitCode(seconds(1)), -1) << "the first one must wait";
  foreground.Signal(SIGINT);
  EXPECT_EQ(foreground.ExitCode(), 0);
  ExpectGone();
}

TEST_F(ForegroundTest, ABindMountKeepsTheMountPointUntilItIsGone) {
  Foreground foreground(*mount_, manager_, "60s");
  ASSERT_THAT(manager_.Await("READY=1"), Not(""));
  Write("block.bin", "whole");
  const TempDir copy;
  RunOrFail({"mount", "--bind", mount_->path(), copy.path()});
  foreground.Signal(SIGTERM);
  EXPECT_EQ(foreground.ExitCode(seconds(1)), -1) << "the copy uses the filesystem";
  EXPECT_TRUE(IsMountPoint(mount_->path()));
  EXPECT_TRUE(std::filesystem::exists(copy / "block.bin"));
  RunOrFail({"umount", copy.path()});
  EXPECT_EQ(foreground.ExitCode(), 0);
  ExpectGone();
}

TEST_F(ForegroundTest, AnUnmountFromElsewhereEndsItWithZero) {
  Foreground foreground(*mount_, manager_, "10s");
  ASSERT_THAT(manager_.Await("READY=1"), Not(""));
  RunOrFail({"umount", mount_->path()});
  EXPECT_THAT(manager_.Next(), StartsWith("STOPPING=1\n"));
  EXPECT_EQ(foreground.ExitCode(), 0);
  ExpectGone();
}

}  // namespace
}  // namespace prefixfs::support
