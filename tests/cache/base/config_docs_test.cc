// docs/CONFIGURATION.md and the table of keys say the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "cache/base/config_keys.h"

namespace prefixfs {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Document() {
  std::ifstream file(PREFIXFS_DOCS "/CONFIGURATION.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty());
  return text.str();
}

// Key -> text below its heading "### `key`", up to the next heading.
std::map<std::string, std::string> Sections() {
  std::map<std::string, std::string> sections;
  std::istringstream lines(Document());
  std::string line, key;
  while (std::getline(lines, line)) {
    if (line.starts_with("### `"))
      key = line.substr(5, line.find('`', 5) - 5);
    else if (line.starts_with("## "))
      key.clear();
    if (!key.empty()) sections[key] += line + "\n";
  }
  return sections;
}

TEST(ConfigurationDocument, HasASectionForEveryKey) {
  const auto sections = Sections();
  for (const auto& key : ConfigKeys())
    EXPECT_TRUE(sections.contains(std::string(key.name))) << key.name;
}

TEST(ConfigurationDocument, HasNoSectionForAKeyThatIsNotThere) {
  for (const auto& [name, text] : Sections()) EXPECT_NE(FindConfigKey(name), nullptr) << name;
}

TEST(ConfigurationDocument, TellsEveryDefaultAndTypeAsTheyAre) {
  const auto sections = Sections();
  const Config defaults;
  for (const auto& key : ConfigKeys()) {
    const auto section = sections.find(std::string(key.name));
    ASSERT_NE(section, sections.end()) << key.name;
    const std::string value = ConfigValueText(defaults, key);
    EXPECT_THAT(section->second, HasSubstr("Type: " + ConfigTypeText(key))) << key.name;
    EXPECT_THAT(section->second,
                HasSubstr("Default: " + (value.empty() ? "none" : "`" + value + "`")))
        << key.name;
    EXPECT_THAT(section->second, HasSubstr("```toml")) << key.name << " has no example";
  }
}

TEST(ConfigurationDocument, EveryExampleIsAConfigurationThatIsAccepted) {
  std::istringstream lines(Document());
  std::string line, example;
  bool inside = false;
  int examples = 0;
  while (std::getline(lines, line)) {
    if (inside && line == "```") {
      const auto config = ParseConfig(example, "example");
      EXPECT_TRUE(config.ok()) << config.status().message() << "\n" << example;
      inside = false;
      ++examples;
    } else if (line == "```toml") {
      inside = true;
      example.clear();
    } else if (inside) {
      example += line + "\n";
    }
  }
  EXPECT_FALSE(inside) << "an example is not closed";
  EXPECT_GE(examples, static_cast<int>(ConfigKeys().size()));
}

}  // namespace
}  // namespace prefixfs
