// The one table of configuration keys. Parsing, --set, mount options, `.prefixfs/config`, the help
// texts and the test of docs/CONFIGURATION.md all read it, so they cannot drift apart: a new key is
// one member of Config and one row here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cache/base/config.h"

namespace prefixfs {

// What a key holds and what it accepts. Bounds are inclusive.
struct PathsField {
  std::vector<std::string> Config::*member;
};
struct ShareField {  // bytes, or a share of the filesystem
  SizeSpec Config::*member;
  uint64_t min_bytes;
  double max_fraction;
};
struct RatioField {  // above 0, at most 1
  double Config::*member;
};
struct BytesField {
  uint64_t Config::*member;
  uint64_t min, max;
};
struct CountField {
  uint64_t Config::*member;
  uint64_t min, max;
};
struct DurationField {
  int64_t Config::*member;
  int64_t min_ms, max_ms;
};
struct ChoiceField {
  std::string Config::*member;
  std::string_view choices;  // separated by '|'; empty: any text
};
struct LogField {  // auto, stderr, syslog or an absolute path
  std::string Config::*member;
};
struct ToggleField {
  Toggle Config::*member;
};
struct NamingField {};     // [[naming]]
struct RulesField {};      // [[rule]]
struct NamespaceField {};  // [namespace.NAME]

using ConfigField =
    std::variant<PathsField, ShareField, RatioField, BytesField, CountField, DurationField,
                 ChoiceField, LogField, ToggleField, NamingField, RulesField, NamespaceField>;

struct ConfigKey {
  std::string_view name;
  ConfigField field;
  std::string_view meaning;
};

inline constexpr std::string_view kDirectModes = "auto|any|native";  // values of o_direct
// Whether `value` is one of `choices`, which are separated by '|'.
bool IsChoice(std::string_view value, std::string_view choices);

// Tables (naming, rule, namespace) come last, as TOML wants it.
std::span<const ConfigKey> ConfigKeys();
const ConfigKey* FindConfigKey(std::string_view name);
// The known key that `name` is probably a slip of, or nothing.
std::string_view NearestConfigKey(std::string_view name);
// "unknown key; did you mean 'capacity'?"
std::string UnknownKeyText(std::string_view name);
// "size or share of the filesystem", for help texts and messages.
std::string ConfigTypeText(const ConfigKey& key);

// A value without its syntax.
using ConfigValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

// Stores `value`; kInvalid with a text that does not repeat the key if it has the wrong type or is
// out of range. `key` is none of the tables.
Status SetConfigValue(Config& config, const ConfigKey& key, const ConfigValue& value);
// The value as TOML. Empty for the tables.
std::string ConfigValueText(const Config& config, const ConfigKey& key);
// The whole configuration as TOML that ParseConfig reads back to the same.
std::string FormatConfig(const Config& config);

}  // namespace prefixfs
