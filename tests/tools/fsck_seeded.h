// A fault that a test plants in a store, and what has to come of it: fsck finds it as what it is
// and as nothing else, repairs it, and the daemon serves afterwards what the fault did not touch.
#pragma once

#include <set>
#include <string>

#include "tests/tools/fsck_fixture.h"

namespace prefixfs {

struct Seed {
  const char* name;
  void (*plant)(FsckFixture&);
  std::set<std::string> kinds;         // that it must be found as
  std::set<std::string> touched = {};  // what need not be served after the repair
  bool repairable = true;
  std::set<std::string> left = {};  // what an index made anew may leave on the drives
};

inline std::string Flipped(std::string text, size_t at) {
  text[at] = static_cast<char>(text[at] ^ 1);
  return text;
}

class FsckSeeded : public FsckFixture, public testing::WithParamInterface<Seed> {
 public:
  static std::string NameOf(const testing::TestParamInfo<Seed>& info) { return info.param.name; }

 protected:
  void ExpectClean() {
    const fsck::Report report = Fsck();
    EXPECT_EQ(report.ExitCode(), fsck::kExitClean) << Describe(report);
  }
  void ExpectFoundAndRepaired(const Seed& planted) {
    ASSERT_NO_THROW(planted.plant(*this));
    if (HasFailure()) return;
    fsck::Report report = Fsck();
    EXPECT_EQ(Kinds(report), planted.kinds) << Describe(report);
    EXPECT_EQ(report.ExitCode(), fsck::kExitErrorsLeft);
    report = Fsck(true);
    EXPECT_EQ(report.ExitCode(), planted.repairable ? fsck::kExitRepaired : fsck::kExitErrorsLeft)
        << Describe(report);
    if (!planted.repairable) return;
    ExpectClean();
    Start();
    ASSERT_NE(cache_, nullptr);
    EXPECT_THAT(Wrong(), testing::IsSubsetOf(planted.touched));
    AwaitChecksums();
    cache_.reset();
    report = Fsck();
    EXPECT_THAT(Errors(report), testing::IsSubsetOf(planted.left)) << Describe(report);
  }
};

}  // namespace prefixfs
