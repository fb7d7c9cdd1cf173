// One mount for all tests of a program that asks what POSIX asks; each test has a directory of its
// own. With PREFIXFS_TEST_NATIVE=1 the same tests run on XFS itself.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "cache/base/fd.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {

class Posix : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { mount_ = std::make_unique<support::Mount>(); }
  static void TearDownTestSuite() { mount_.reset(); }

  void SetUp() override {
    directory_ =
        mount_->path() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    ASSERT_EQ(mkdir(directory_.c_str(), 0755), 0) << strerrordesc_np(errno);
  }

  std::string P(const std::string& name) const { return directory_ + "/" + name; }
  // "" for success, else the name of errno, so that a failed expectation says which.
  static std::string Name(long result) { return result == -1 ? strerrorname_np(errno) : ""; }

  Fd Create(const std::string& name, int flags = O_RDWR | O_CREAT | O_EXCL,
            mode_t mode = 0644) const {
    return Fd(support::Sys(open(P(name).c_str(), flags | O_CLOEXEC, mode), "create " + name));
  }
  static struct stat Stat(const std::string& path) {
    struct stat st {};
    support::Sys(lstat(path.c_str(), &st), "lstat " + path);
    return st;
  }
  static bool Exists(const std::string& path) {
    struct stat st {};
    return lstat(path.c_str(), &st) == 0;
  }

  static inline std::unique_ptr<support::Mount> mount_;
  std::string directory_;
};

}  // namespace prefixfs
