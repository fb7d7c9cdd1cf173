// Names that somebody chose to do harm, or that a broken client makes: they are kept like any
// other, and whatever tells of them stays readable by programs.
#include <dirent.h>
#include <sys/xattr.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/mount/posix_fixture.h"

namespace prefixfs {
namespace {

using namespace support;

class HostileName : public Posix {};

const std::string kHash(64, 'c');

// None with a slash or NUL, which the kernel keeps away.
const std::vector<std::string>& Names() {
  static const std::vector<std::string> names = {"a\nb",
                                                 "\n",
                                                 "\r\n",
                                                 "\t",
                                                 " ",
                                                 "\x1b[2J\x1b[31m",
                                                 "\x7f\x01\x08",
                                                 "\xff\xfe",
                                                 "\xc3(",
                                                 "\xed\xa0\x80",
                                                 "\xf4\x90\x80\x80",
                                                 "\xe2\x80\xae"
                                                 "gpj.exe",
                                                 "\"",
                                                 "'",
                                                 "\\",
                                                 "\\n",
                                                 "$(id)",
                                                 "`id`",
                                                 ";",
                                                 "*",
                                                 "?",
                                                 "[",
                                                 "%s%n",
                                                 "-rf",
                                                 "--",
                                                 "...",
                                                 ".. ",
                                                 ". ",
                                                 "..a",
                                                 "~",
                                                 "#",
                                                 "{}",
                                                 "{\"a\":1}",
                                                 ".prefixfs",
                                                 ".prefixfs ",
                                                 "PREFIXFS",
                                                 "incoming",
                                                 "x.tmp",
                                                 ".tmp",
                                                 "a.tmp.1.2.ff",
                                                 ".exchange-5",
                                                 kHash,
                                                 kHash + ".bin",
                                                 "0123456789abcdef0123456789abcdef",
                                                 "lost+found",
                                                 std::string(255, '\n'),
                                                 std::string(251, '\xff') + ".tmp",
                                                 std::string(255, '.')};
  return names;
}

std::set<std::string> ListOf(const std::string& path) {
  std::set<std::string> names;
  DIR* stream = opendir(path.c_str());
  Check(stream != nullptr, "opendir " + path);
  while (const dirent* entry = readdir(stream)) names.insert(entry->d_name);
  closedir(stream);
  names.erase(".");
  names.erase("..");
  return names;
}

TEST_F(HostileName, IsKeptWithItsContentAlsoOverARestart) {
  const std::set<std::string> all(Names().begin(), Names().end());
  for (const std::string& name : all) WriteText(P(name), "of " + name);
  EXPECT_EQ(ListOf(directory_), all);
  mount_->Remount();
  EXPECT_EQ(ListOf(directory_), all);
  for (const std::string& name : all) {
    EXPECT_EQ(ReadText(P(name)), "of " + name);
    ASSERT_EQ(setxattr(P(name).c_str(), "user.a", name.data(), name.size(), 0), 0) << name;
    char value[256];
    EXPECT_EQ(getxattr(P(name).c_str(), "user.a", value, sizeof(value)),
              static_cast<ssize_t>(name.size()));
  }
  for (const std::string& name : all) EXPECT_EQ(Name(unlink(P(name).c_str())), "") << name;
  EXPECT_TRUE(ListOf(directory_).empty());
}

TEST_F(HostileName, IsMovedReplacedAndPointedAt) {
  WriteText(P("plain"), "plain");
  for (const std::string& name : Names()) {
    EXPECT_EQ(Name(rename(P("plain").c_str(), P(name).c_str())), "") << name;
    EXPECT_FALSE(Exists(P("plain")));
    EXPECT_EQ(ReadText(P(name)), "plain") << name;
    WriteText(P("other"), "other");
    EXPECT_EQ(Name(rename(P("other").c_str(), P(name).c_str())), "") << name;
    EXPECT_EQ(ReadText(P(name)), "other") << name;
    EXPECT_EQ(Name(symlink(name.c_str(), P("link").c_str())), "") << name;
    EXPECT_EQ(ReadText(P("link")), "other") << name;
    EXPECT_EQ(Name(unlink(P("link").c_str())), "");
    EXPECT_EQ(Name(unlink(P(name).c_str())), "");
    EXPECT_EQ(Name(mkdir(P(name).c_str(), 0755)), "") << name;
    WriteText(P(name + "/in"), "plain");
    EXPECT_EQ(Name(rename(P(name + "/in").c_str(), P("plain").c_str())), "") << name;
    EXPECT_EQ(Name(rmdir(P(name).c_str())), "") << name;
  }
}

TEST_F(HostileName, NothingTakesThePlaceOfTheControlDirectory) {
  if (NativeMode()) GTEST_SKIP() << "XFS has no control directory";
  const std::string control = *mount_ / ".prefixfs";
  WriteText(P("f"), "f");
  ASSERT_EQ(mkdir(P("d").c_str(), 0755), 0);
  for (const std::string& own : {P("f"), P("d")}) {
    EXPECT_NE(Name(rename(own.c_str(), control.c_str())), "");
    EXPECT_NE(Name(renameat2(AT_FDCWD, own.c_str(), AT_FDCWD, control.c_str(), RENAME_EXCHANGE)),
              "");
    EXPECT_NE(Name(rename(own.c_str(), (control + "/new").c_str())), "");
    EXPECT_TRUE(Exists(own));
  }
  EXPECT_NE(Name(rename(control.c_str(), P("control").c_str())), "");
  EXPECT_EQ(Name(symlink("x", control.c_str())), "EEXIST");
  EXPECT_NE(Name(symlink("x", (control + "/stats").c_str())), "");
  EXPECT_NE(Name(open(control.c_str(), O_CREAT | O_WRONLY, 0644)), "");
  EXPECT_NE(Name(truncate((control + "/stats").c_str(), 0)), "");
  EXPECT_NE(Name(setxattr(control.c_str(), "user.a", "b", 1, 0)), "");
  EXPECT_FALSE(ReadText(control + "/stats").empty());
}

// Well formed as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view text) {
  const nlohmann::json value = std::string(text);
  try {
    (void)value.dump();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

// NAME{LABEL="VALUE",...} NUMBER of Prometheus' text format.
bool IsSample(std::string_view line) {
  bool quoted = false;
  for (size_t at = 0; at < line.size(); ++at) {
    if (quoted && line[at] == '\\') {
      if (++at == line.size() || std::string_view("\\\"n").find(line[at]) == line.npos)
        return false;
    } else if (line[at] == '"') {
      quoted = !quoted;
    } else if (!quoted && line[at] == ' ') {
      const std::string number(line.substr(at + 1));
      char* end = nullptr;
      (void)std::strtod(number.c_str(), &end);
      return at > 0 && end != number.c_str() && *end == '\0';
    }
  }
  return false;
}

void ExpectMetrics(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string_view line = std::string_view(text).substr(at, end - at);
    EXPECT_TRUE(line.starts_with("# ") || IsSample(line)) << line;
    EXPECT_TRUE(IsUtf8(line)) << line;
    at = end == std::string::npos ? text.size() : end + 1;
  }
}

nlohmann::json ParsedOutput(const std::vector<std::string>& argv) {
  const std::string text = RunOrFail(argv);
  EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  return nlohmann::json::parse(text, nullptr, false);
}

// As namespace, as model and as the rest of a block's name.
TEST_F(HostileName, LeavesStatisticsMetricsAndLocationsReadable) {
  if (NativeMode()) GTEST_SKIP() << "XFS tells nothing";
  const std::string hex = "0123456789abcdef0123456789abcdef";
  const std::string tool = ToolPath("prefixfs");
  for (const std::string& name : Names()) {
    // The longest names leave no room, and "@" ends a model.
    if (name.size() > 100) continue;
    const std::string space = mount_->path() + "/ns " + name;
    ASSERT_EQ(mkdir(space.c_str(), 0755), 0) << name;
    const std::string block = space + "/" + name + "@2@1@" + hex + "@half.pt";
    WriteText(block, "kv");
    char location[16384];
    const ssize_t size =
        getxattr(block.c_str(), "user.prefixfs.location", location, sizeof(location));
    ASSERT_GT(size, 0) << name;
    const auto told = nlohmann::json::parse(std::string(location, static_cast<size_t>(size)));
    EXPECT_EQ(told.at("hash"), hex);
    if (IsUtf8(name)) {
      EXPECT_EQ(told.at("model"), name);
    }
    const auto located = ParsedOutput({tool, "locate", "--json", block});
    ASSERT_EQ(located.size(), 1u) << name;
    EXPECT_EQ(located.at(0).at("ino"), told.at("ino"));
    (void)RunOrFail({tool, "locate", block});
  }
  EXPECT_GT(ParsedOutput({tool, "locate", "--json", "--mount", mount_->path(), hex}).size(), 20u);
  const auto stats = ParsedOutput({tool, "stat", "--json", mount_->path()});
  EXPECT_GT(stats.at("models").size(), 20u);
  (void)RunOrFail({tool, "stat", mount_->path()});
  ExpectMetrics(ReadText(*mount_ / ".prefixfs/metrics"));
}

}  // namespace
}  // namespace prefixfs
