// What the control files and answers about blocks tell to whom: nobody learns a name from them that
// he could not list.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "cache/base/fd.h"
#include "tests/mount/blocks.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {
namespace {

using namespace support;
using nlohmann::json;

constexpr uid_t kUser = 54'321;
constexpr gid_t kGroup = 54'322, kTeam = 54'323;

std::string Hash(char digit) { return std::string(64, digit); }

// The blocks that carry the hash, as the calling process is told.
json Located(const std::string& root, const std::string& hash) {
  std::string text(65'536, '\0');
  const ssize_t got =
      Sys(getxattr(root.c_str(), ("user.prefixfs.hash." + hash).c_str(), text.data(), text.size()),
          "locate " + hash);
  return json::parse(text.substr(0, static_cast<size_t>(got)));
}

json ModelsOf(const std::string& root) {
  return json::parse(ReadText(root + "/.prefixfs/stats")).at("models");
}

uint64_t BlocksOf(const json& models, const std::string& name) {
  for (const json& model : models) {
    if (model.at("model") == name) return model.at("blocks");
  }
  return 0;
}

// In a process of a user with those supplementary groups.
void As(uid_t user, gid_t group, const std::vector<gid_t>& groups,
        const std::function<void()>& body) {
  RunInProcess([&] {
    Sys(setgroups(groups.size(), groups.data()), "setgroups");
    Sys(setresgid(group, group, group), "setresgid");
    Sys(setresuid(user, user, user), "setresuid");
    body();
  });
}

class Control : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS has no control files";
    mount_ = std::make_unique<Mount>(MountOptions{.capacity = "300M"});
    MakeDirectory("open", 0755, 0);
    MakeDirectory("closed", 0700, 0);
    MakeDirectory("closed/deep", 0755, 0);  // cannot be reached, whatever it allows itself
    MakeDirectory("unlisted", 0711, 0);     // can be passed, not listed
    MakeDirectory("team", 0750, kTeam);
    Write("open", '1', "org-Open");
    Write("closed/deep", '2', "org-Secret");
    Write("unlisted", '3', "org-Hidden");
    Write("team", '4', "org-Team");
  }
  const std::string& root() const { return mount_->path(); }
  void MakeDirectory(const std::string& name, mode_t mode, gid_t group) {
    const std::string path = root() + "/" + name;
    Sys(mkdir(path.c_str(), 0700), "mkdir " + path);
    Sys(chown(path.c_str(), 0, group), "chown " + path);
    Sys(chmod(path.c_str(), mode), "chmod " + path);
  }
  void Write(const std::string& directory, char digit, const std::string& model) {
    WriteFile(root() + "/" + directory + "/" + Hash(digit) + "_" + model + "_0_8.bin",
              Pattern(65'536, 1));
  }
  void ExpectOwnOnly() {
    As(kUser, kGroup, {}, [&] {
      Check(Located(root(), Hash('1')).size() == 1, "a block that all may see is not found");
      for (const char digit : {'2', '3', '4'})
        Check(Located(root(), Hash(digit)).empty(), std::string("hash ") + digit + " leaks");
      const json models = ModelsOf(root());
      Check(BlocksOf(models, "org-Open") == 1, "a model that all may see is not told");
      Check(BlocksOf(models, "") == 3, "the others are not summed up: " + models.dump());
      for (const char* file : {"stats", "metrics"}) {
        const std::string text = ReadText(root() + "/.prefixfs/" + file);
        for (const char* secret : {"Secret", "Hidden", "Team"})
          Check(text.find(secret) == std::string::npos, std::string(file) + " tells " + secret);
        Check(text.find(mount_->drive(0)) == std::string::npos, "the drive's path is told");
      }
    });
  }

  std::unique_ptr<Mount> mount_;
};

TEST_F(Control, RootSeesAll) {
  for (const char digit : {'1', '2', '3', '4'}) {
    const json found = Located(root(), Hash(digit));
    ASSERT_EQ(found.size(), 1u) << digit;
    EXPECT_EQ(found[0].at("drive"), mount_->drive(0));
  }
  const json models = ModelsOf(root());
  for (const char* model : {"org-Open", "org-Secret", "org-Hidden", "org-Team"})
    EXPECT_EQ(BlocksOf(models, model), 1u) << model;
  EXPECT_NE(ReadText(root() + "/.prefixfs/metrics").find("org-Secret"), std::string::npos);
  EXPECT_NE(ReadText(root() + "/.prefixfs/config").find("capacity"), std::string::npos);
}

TEST_F(Control, AUserIsToldNoNameThatHeCouldNotList) {
  EXPECT_NO_THROW(ExpectOwnOnly());
  mount_->Remount();
  EXPECT_NO_THROW(ExpectOwnOnly()) << "after a start";
}

TEST_F(Control, SupplementaryGroupsCount) {
  EXPECT_NO_THROW(As(kUser, kGroup, {kTeam}, [&] {
    Check(Located(root(), Hash('4')).size() == 1, "the team's block is not found");
    Check(BlocksOf(ModelsOf(root()), "org-Team") == 1, "the team's model is not told");
    Check(Located(root(), Hash('2')).empty(), "another's block leaks");
  }));
}

TEST_F(Control, AChangeOfPermissionsCountsAtOnce) {
  ASSERT_EQ(chmod((root() + "/closed").c_str(), 0755), 0);
  EXPECT_NO_THROW(As(kUser, kGroup, {},
                     [&] { Check(Located(root(), Hash('2')).size() == 1, "it is open now"); }));
  ASSERT_EQ(chmod((root() + "/closed").c_str(), 0700), 0);
  EXPECT_NO_THROW(ExpectOwnOnly());
}

TEST_F(Control, TheConfigurationIsForRoot) {
  EXPECT_NO_THROW(As(kUser, kGroup, {}, [&] {
    CheckErrno(open((root() + "/.prefixfs/config").c_str(), O_RDONLY), EACCES, "open config");
  }));
}

TEST_F(Control, APathThatIsNotOnesOwnToKnowIsNotTold) {
  const std::string path = root() + "/closed/deep/" + Hash('2') + "_org-Secret_0_8.bin";
  const Fd handed(Sys(open(path.c_str(), O_RDONLY | O_CLOEXEC), "open"));
  EXPECT_NO_THROW(As(kUser, kGroup, {}, [&] {
    char text[4096];
    const ssize_t got = Sys(fgetxattr(handed.get(), "user.prefixfs.location", text, sizeof text),
                            "location of an inherited descriptor");
    Check(json::parse(std::string(text, static_cast<size_t>(got))).at("path") == "",
          "the path is told");
  }));
}

// Root's request that waits is seen by root only.
TEST_F(Control, RequestsOfOthersAreNotShown) {
  mount_->Stop();
  mount_->options().set = {"verify=\"always\"", "lease=\"0s\""};
  mount_->Start();
  constexpr uint64_t kBig = 64 << 20;
  blocks::Write(root(), 7, kBig);
  Shared<std::atomic<bool>> stop;
  Child opener([&] {
    while (!*stop) {
      const Fd fd(open(blocks::Path(root(), 7).c_str(), O_RDONLY | O_CLOEXEC));
    }
  });
  const auto shown = [&](const std::string& operation) {
    const json requests = json::parse(ReadText(root() + "/.prefixfs/requests")).at("requests");
    for (const json& request : requests) {
      if (request.at("operation") == operation && request.at("waits_for") == "checksum")
        return true;
    }
    return false;
  };
  EXPECT_NO_THROW(WaitUntil([&] { return shown("open"); }, "root sees the open"));
  EXPECT_NO_THROW(As(kUser, kGroup, {}, [&] {
    for (int i = 0; i < 300; ++i) {
      const json requests = json::parse(ReadText(root() + "/.prefixfs/requests")).at("requests");
      for (const json& request : requests)
        Check(request.at("uid") == kUser, "another's request is shown");
    }
  }));
  *stop = true;
  EXPECT_NO_THROW(opener.Join());
}

}  // namespace
}  // namespace prefixfs
