// On the filesystem of /dev/shm or /tmp: finding holders is the same whatever is mounted.
#include "tools/holders.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cache/base/fd.h"

namespace prefixfs {
namespace {

using testing::HasSubstr;

// A process that does `hold` and then waits to be killed.
class Other {
 public:
  explicit Other(const std::function<void()>& hold) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    Fd reader(ends[0]), writer(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      hold();
      (void)!::write(writer.get(), "r", 1);
      while (true) ::pause();
    }
    char c = 0;
    EXPECT_EQ(::read(reader.get(), &c, 1), 1);
  }
  ~Other() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class HoldersTest : public testing::Test {
 protected:
  HoldersTest() {
    char name[] = "/tmp/prefixfs-holders-XXXXXX";
    directory_ = ::mkdtemp(name);
    const auto mounts = ReadMounts();
    // Taken for a mount of its own: the id, device and point decide.
    mount_ = *MountOf(*mounts, directory_);
    mount_.point = directory_;
  }
  ~HoldersTest() override { std::filesystem::remove_all(directory_); }

  std::string Found(pid_t pid) const {
    std::vector<Holder> mine;
    for (auto& holder : FindHolders(mount_)) {
      if (holder.pid == pid && holder.path.starts_with(directory_)) mine.push_back(holder);
    }
    return HoldersText(mine, 100);
  }

  std::string directory_;
  Mount mount_;
};

TEST_F(HoldersTest, NamesTheProcessAndItsWorkingDirectory) {
  const Other other([&] { (void)!::chdir(directory_.c_str()); });
  EXPECT_THAT(Found(other.pid()), HasSubstr("pid " + std::to_string(other.pid()) +
                                            " (holders_test): cwd " + directory_));
}

TEST_F(HoldersTest, NamesTheDescriptorOfAnOpenFileAlsoWhenItWasUnlinked) {
  const Other other([&] {
    const int fd = ::open((directory_ + "/f").c_str(), O_CREAT | O_RDWR, 0600);
    ::dup2(fd, 77);
    ::close(fd);
    ::unlink((directory_ + "/f").c_str());
  });
  EXPECT_THAT(Found(other.pid()), HasSubstr("fd 77 " + directory_ + "/f"));
}

TEST_F(HoldersTest, NamesAMappingWhoseDescriptorIsClosed) {
  const Other other([&] {
    const int fd = ::open((directory_ + "/m").c_str(), O_CREAT | O_RDWR, 0600);
    (void)!::ftruncate(fd, 4096);
    ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
  });
  EXPECT_THAT(Found(other.pid()), HasSubstr("mmap " + directory_ + "/m"));
}

TEST_F(HoldersTest, AProcessThatHoldsNothingIsNotNamed) {
  const Other other([] {});
  EXPECT_EQ(Found(other.pid()), "");
}

TEST(HoldersText, IsCutAtTheLimitAndSaysSo) {
  const std::vector<Holder> holders(5, Holder{1, "a", "cwd", "/x"});
  EXPECT_THAT(HoldersText(holders, 2), HasSubstr("and 3 more"));
  EXPECT_EQ(HoldersText({{0, "", "mount", "/copy"}}, 2), "  mount /copy\n");
}

}  // namespace
}  // namespace prefixfs
