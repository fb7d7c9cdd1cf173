// The POSIX battery: every case on the mount and on the filesystem its drive is on, in four
// settings: as blocks and with policy posix, with passthrough and without. Each answer must be the
// same, but for the known differences, and each of those must still occur.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "tests/posix/known_differences.h"
#include "tests/posix/script.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs::posix {
namespace {

using support::Sys;

const Cases& AllCases() {
  static const Cases cases = [] {
    Cases all;
    AddOpenCases(all);
    AddNameCases(all);
    AddRenameCases(all);
    AddPermissionCases(all);
    AddAttributeCases(all);
    AddDataCases(all);
    AddMappingCases(all);
    AddProcessCases(all);
    AddDirectoryCases(all);
    return all;
  }();
  return cases;
}

struct Setting {
  unsigned where;
  const char* name;
  const char* subtree;
  bool passthrough;
};
constexpr Setting kSettings[] = {
    {kBlockPassthrough, "blocks, passthrough", "blocks", true},
    {kPosixPassthrough, "policy posix, passthrough", "posix", true},
    {kBlockServed, "blocks, served by the daemon", "blocks", false},
    {kPosixServed, "policy posix, served by the daemon", "posix", false},
};

Transcript RunIn(const std::string& place, const Case& test) {
  const std::string directory = place + "/" + test.name;
  Sys(mkdir(directory.c_str(), 0755), "mkdir " + directory);
  Sys(chdir(directory.c_str()), "chdir " + directory);
  Transcript transcript;
  {
    Script script;
    try {
      test.body(script);
    } catch (const std::exception& failure) {
      script.Say("exception", failure.what());
    }
    transcript = script.transcript();
  }
  Sys(chdir("/"), "chdir /");
  return transcript;
}

using Answers = std::map<std::string, std::string>;
Answers ByCall(const Transcript& transcript) {
  Answers answers;
  for (const Line& line : transcript) answers[line.call] = line.answer;
  return answers;
}

const KnownDifference* FindKnown(const std::string& test, const std::string& call, unsigned where) {
  for (const KnownDifference& known : KnownDifferences()) {
    if (known.test == test && known.call == call && (known.where & where) != 0) return &known;
  }
  return nullptr;
}

// Everything that differs and is not known to, and everything known that does not differ so.
std::string Unexpected(const Case& test, const Transcript& native, const Transcript& mount,
                       unsigned where) {
  const Answers here = ByCall(native), there = ByCall(mount);
  std::set<std::string> calls;
  for (const auto& answers : {here, there}) {
    for (const auto& [call, answer] : answers) calls.insert(call);
  }
  const auto answer_of = [](const Answers& answers, const std::string& call) {
    const auto it = answers.find(call);
    return it == answers.end() ? std::string("(not reached)") : it->second;
  };
  std::string text;
  for (const std::string& call : calls) {
    const std::string expected = answer_of(here, call), got = answer_of(there, call);
    const KnownDifference* known = FindKnown(test.name, call, where);
    const bool as_known = known != nullptr && known->native == expected && known->mount == got;
    const bool may_agree = known == nullptr || known->sometimes;
    if (as_known || (may_agree && expected == got)) continue;
    text += "  " + call + "\n    natively: " + expected + "\n    here:     " + got + "\n";
    if (known != nullptr)
      text +=
          "    known as: " + std::string(known->native) + " / " + std::string(known->mount) + "\n";
  }
  for (const KnownDifference& known : KnownDifferences()) {
    if (known.test == test.name && (known.where & where) != 0 &&
        !calls.contains(std::string(known.call)))
      text += "  known, but never called: " + std::string(known.call) + "\n";
  }
  return text;
}

class Battery : public ::testing::Test {
 protected:
  void SetUp() override { umask(022); }

  void RunAll(bool passthrough) {
    support::MountOptions options;
    options.filesystem = "xfs";  // the known differences are from that one
    options.set = {"namespace.posix.policy=posix"};
    if (!passthrough) options.set.push_back("passthrough=off");
    support::Mount mount(options);
    const std::string native = mount.filesystem().path() + "/native";
    Sys(mkdir(native.c_str(), 0755), "mkdir " + native);
    const char* only = getenv("PREFIXFS_POSIX_CASE");
    for (const Setting& setting : kSettings) {
      if (setting.passthrough == passthrough) Compare(mount, native, setting, only);
    }
  }

  static void Compare(support::Mount& mount, const std::string& native, const Setting& setting,
                      const char* only) {
    const std::string below = native + "/" + setting.subtree, above = mount / setting.subtree;
    Sys(mkdir(below.c_str(), 0755), "mkdir " + below);
    Sys(mkdir(above.c_str(), 0755), "mkdir " + above);
    size_t calls = 0, cases = 0;
    for (const Case& test : AllCases()) {
      if (only != nullptr && test.name.find(only) == std::string::npos) continue;
      const Transcript expected = RunIn(below, test);
      const Transcript got = RunIn(above, test);
      const std::string unexpected =
          Unexpected(test, expected, got, mount.native() ? 0u : setting.where);
      if (!unexpected.empty())
        ADD_FAILURE() << test.name << " (" << setting.name << "):\n" << unexpected;
      calls += expected.size();
      ++cases;
    }
    printf("%s: %zu answers of %zu cases compared\n", setting.name, calls, cases);
  }
};

TEST_F(Battery, EveryCallAnswersAsOnTheFilesystemBelowByPassthrough) { RunAll(true); }

TEST_F(Battery, EveryCallAnswersAsOnTheFilesystemBelowServedByTheDaemon) { RunAll(false); }

TEST_F(Battery, EveryKnownDifferenceIsOfACaseAndHasItsReason) {
  std::map<std::string_view, int> uses;
  for (const Reason& reason : Reasons()) uses[reason.name] = 0;
  for (const KnownDifference& known : KnownDifferences()) {
    const bool is_case = std::any_of(AllCases().begin(), AllCases().end(),
                                     [&](const Case& test) { return test.name == known.test; });
    EXPECT_TRUE(is_case) << known.test;
    EXPECT_TRUE(uses.contains(known.reason)) << known.reason;
    EXPECT_NE(known.native, known.mount) << known.test << ": " << known.call;
    ++uses[known.reason];
  }
  for (const Reason& reason : Reasons()) {
    EXPECT_GT(uses[reason.name], 0) << reason.name;
    printf("known difference (%d answers): %.*s\n", uses[reason.name],
           static_cast<int>(reason.text.size()), reason.text.data());
  }
}

TEST_F(Battery, TheDocumentNamesEveryKnownDifferenceAndNoOther) {
  // The document wraps its lines; a reason is one item of its list.
  std::string document;
  bool blank = false;
  for (const char c : support::ReadText(PREFIXFS_DOCS "/POSIX.md")) {
    const bool space = c == ' ' || c == '\n';
    if (!space || !blank) document += space ? ' ' : c;
    blank = space;
  }
  constexpr std::string_view kBegin = "<!-- known differences -->", kEnd = "<!-- end -->";
  const size_t begin = document.find(kBegin), end = document.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end);
  std::string listed = document.substr(begin + kBegin.size(), end - begin - kBegin.size());
  for (const Reason& reason : Reasons()) {
    const std::string item = "- " + std::string(reason.text);
    const size_t at = listed.find(item);
    EXPECT_NE(at, std::string::npos) << "docs/POSIX.md lacks: " << item;
    if (at != std::string::npos) listed.erase(at, item.size());
  }
  EXPECT_EQ(listed.find_first_not_of(' '), std::string::npos) << "not in the list: " << listed;
}

}  // namespace
}  // namespace prefixfs::posix
