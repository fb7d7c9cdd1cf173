#include "cache/base/config.h"

#define TOML_EXCEPTIONS 0
// toml++ 3.3 asserts before it looks, so "[" and a byte that is no key's would end a debug build
// instead of being reported by the code behind the assertion.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <fcntl.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "cache/base/config_keys.h"
#include "cache/base/fd.h"

namespace prefixfs {
namespace {

constexpr size_t kMaxFileBytes = 4 << 20;

// Where messages say that a value came from. Overrides have no lines.
struct Origin {
  std::string name;
  bool lines = true;

  Status Error(const toml::source_region& at, std::string_view key, std::string_view text) const {
    std::string message = name;
    if (lines) message += ":" + std::to_string(at.begin.line);
    message += ": ";
    if (!key.empty()) message += std::string(key) + ": ";
    return {Code::kInvalid, message + std::string(text)};
  }
};

std::optional<ConfigValue> ValueOf(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  const auto* array = node.as_array();
  if (array == nullptr) return std::nullopt;
  std::vector<std::string> texts;
  for (const auto& element : *array) {
    const auto* text = element.as_string();
    if (text == nullptr) return std::nullopt;
    texts.push_back(text->get());
  }
  return texts;
}

Result<PathPolicy> PolicyOf(std::string_view text) {
  if (text == "block") return PathPolicy::kBlock;
  if (text == "posix") return PathPolicy::kPosix;
  if (text == "keep") return PathPolicy::kKeep;
  return {Code::kInvalid, "must be one of block|posix|keep"};
}

// A TOML table that may hold only text entries: the keys of [[naming]], [[rule]] and
// [namespace.NAME].
class TextTable {
 public:
  TextTable(const toml::table& table, std::string path, const Origin& origin)
      : table_(table), path_(std::move(path)), origin_(origin) {}

  // kInvalid if there is any entry but those in `known`.
  Status CheckKeys(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, node] : table_) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      std::string list;
      for (const auto name : known) list += (list.empty() ? "" : ", ") + std::string(name);
      return origin_.Error(key.source(), Path(key.str()), "unknown key; known here: " + list);
    }
    return Ok();
  }
  Result<std::string> Text(std::string_view key) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return origin_.Error(table_.source(), Path(key), "is missing");
    const auto* text = node->as_string();
    if (text == nullptr) return origin_.Error(node->source(), Path(key), "must be a string");
    if (text->get().empty()) return origin_.Error(node->source(), Path(key), "must not be empty");
    return text->get();
  }
  Result<PathPolicy> Policy(std::string_view key) const {
    const auto policy = PolicyOf(PFS_TRY(Text(key)));
    return policy.ok() ? policy : Error(key, policy.status().message());
  }
  bool Has(std::string_view key) const { return table_.contains(key); }
  // About a key that is there.
  Status Error(std::string_view key, std::string_view text) const {
    return origin_.Error(table_.get(key)->source(), Path(key), text);
  }

 private:
  std::string Path(std::string_view key) const { return path_ + "." + std::string(key); }

  const toml::table& table_;
  const std::string path_;
  const Origin& origin_;
};

// Calls `read` for each table of an array of tables.
template <typename Read>
Status ForEachTable(std::string_view key, const toml::node& node, const Origin& origin, Read read) {
  const auto* array = node.as_array();
  if (array == nullptr) {
    return origin.Error(node.source(), key, "must be written as [[" + std::string(key) + "]]");
  }
  for (const auto& element : *array) {
    const auto* table = element.as_table();
    if (table == nullptr) return origin.Error(element.source(), key, "must hold tables");
    PFS_TRY(read(TextTable(*table, std::string(key), origin)));
  }
  return Ok();
}

Result<std::vector<NamingProfile>> ReadNaming(const toml::node& node, const Origin& origin) {
  std::vector<NamingProfile> profiles;
  const Status read = ForEachTable("naming", node, origin, [&](const TextTable& table) -> Status {
    PFS_TRY(table.CheckKeys({"name", "pattern"}));
    NamingProfile profile;
    profile.name = PFS_TRY(table.Text("name"));
    profile.pattern = PFS_TRY(table.Text("pattern"));
    profiles.push_back(std::move(profile));
    return Ok();
  });
  if (!read.ok()) return read;
  return profiles;
}

Result<std::vector<PathRule>> ReadRules(const toml::node& node, const Origin& origin) {
  std::vector<PathRule> rules;
  const Status read = ForEachTable("rule", node, origin, [&](const TextTable& table) -> Status {
    PFS_TRY(table.CheckKeys({"match", "policy"}));
    PathRule rule;
    rule.match = PFS_TRY(table.Text("match"));
    rule.policy = PFS_TRY(table.Policy("policy"));
    rules.push_back(std::move(rule));
    return Ok();
  });
  if (!read.ok()) return read;
  return rules;
}

std::string EscapeGlob(std::string_view name) {
  std::string escaped;
  for (const char c : name) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

struct Namespaces {
  std::vector<PathRule> rules;
  std::vector<DirectRule> direct;
};

Result<std::string> DirectModeOf(const TextTable& table) {
  std::string mode = PFS_TRY(table.Text("o_direct"));
  if (IsChoice(mode, kDirectModes)) return mode;
  return table.Error("o_direct", "must be one of " + std::string(kDirectModes));
}

// [namespace.NAME]: `policy` is short for the rules NAME and NAME/*.
Result<Namespaces> ReadNamespaces(const toml::node& node, const Origin& origin) {
  const auto* tables = node.as_table();
  if (tables == nullptr) {
    return origin.Error(node.source(), "namespace", "must be written as [namespace.NAME]");
  }
  Namespaces read;
  for (const auto& [name, element] : *tables) {
    const std::string path = "namespace." + std::string(name.str());
    const auto* table = element.as_table();
    if (table == nullptr) return origin.Error(element.source(), path, "must be a table");
    if (name.str().empty() || name.str().find('/') != std::string_view::npos) {
      return origin.Error(name.source(), path, "must be the name of a top-level directory");
    }
    const TextTable text(*table, path, origin);
    PFS_TRY(text.CheckKeys({"policy", "o_direct"}));
    if (text.Has("o_direct"))
      read.direct.push_back({std::string(name.str()), PFS_TRY(DirectModeOf(text))});
    if (text.Has("o_direct") && !text.Has("policy")) continue;
    const PathPolicy policy = PFS_TRY(text.Policy("policy"));
    const std::string glob = EscapeGlob(name.str());
    read.rules.push_back({glob, policy});
    read.rules.push_back({glob + "/*", policy});
  }
  return read;
}

Status ApplyScalar(Config& config, const ConfigKey& key, const toml::node& node,
                   const Origin& origin) {
  const auto value = ValueOf(node);
  if (!value) {
    return origin.Error(node.source(), key.name, "must be: " + ConfigTypeText(key));
  }
  const Status status = SetConfigValue(config, key, *value);
  return status.ok() ? status : origin.Error(node.source(), key.name, status.message());
}

// Applies every key of `table` over `config`. Rules of namespaces stay behind the ones given as
// [[rule]] beside them, and go before what `config` already had.
Status ApplyTable(Config& config, const toml::table& table, const Origin& origin) {
  Namespaces namespaces;
  for (const auto& [name, node] : table) {
    const ConfigKey* key = FindConfigKey(name.str());
    if (key == nullptr) {
      return origin.Error(name.source(), name.str(), UnknownKeyText(name.str()));
    }
    if (std::holds_alternative<NamingField>(key->field)) {
      config.naming = PFS_TRY(ReadNaming(node, origin));
    } else if (std::holds_alternative<RulesField>(key->field)) {
      config.rules = PFS_TRY(ReadRules(node, origin));
    } else if (std::holds_alternative<NamespaceField>(key->field)) {
      namespaces = PFS_TRY(ReadNamespaces(node, origin));
    } else {
      PFS_TRY(ApplyScalar(config, *key, node, origin));
    }
  }
  const auto at = origin.lines ? config.rules.end() : config.rules.begin();
  config.rules.insert(at, namespaces.rules.begin(), namespaces.rules.end());
  config.o_direct_rules.insert(config.o_direct_rules.begin(), namespaces.direct.begin(),
                               namespaces.direct.end());
  return Ok();
}

Status SyntaxError(const toml::parse_error& error, const Origin& origin) {
  return origin.Error(error.source(), "", error.description());
}

// The '=' that ends a possibly quoted key.
size_t FindAssign(std::string_view text) {
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == quote) quote = 0;
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (text[i] == '=') {
      return i;
    }
  }
  return std::string_view::npos;
}

// VALUE is TOML if it reads as TOML, and else a bare word.
toml::parse_result ParseAssignment(const std::string& key, const std::string& value) {
  auto parsed = toml::parse(key + " = " + value);
  const bool looks_like_toml =
      !value.empty() && std::string_view("[{\"'").find(value.front()) != std::string_view::npos;
  if (parsed || looks_like_toml) return parsed;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return toml::parse(key + " = " + quoted + "\"");
}

}  // namespace

Result<Config> ParseConfig(std::string_view toml, std::string_view origin_name) {
  const Origin origin{std::string(origin_name)};
  const auto parsed = toml::parse(toml);
  if (!parsed) return SyntaxError(parsed.error(), origin);
  Config config;
  PFS_TRY(ApplyTable(config, parsed.table(), origin));
  config.source = toml;
  return config;
}

Result<Config> LoadConfig(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Status::FromErrno(errno, path);
  std::string text;
  char piece[4096];
  ssize_t n = 0;
  while ((n = ::read(file.get(), piece, sizeof(piece))) > 0) {
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > kMaxFileBytes) return {Code::kInvalid, path + ": is too large"};
  }
  if (n < 0) return Status::FromErrno(errno, path);
  return ParseConfig(text, path);
}

Status ApplyOverride(Config& config, std::string_view assignment) {
  const Origin origin{"--set " + std::string(assignment), false};
  const size_t assign = FindAssign(assignment);
  if (assign == std::string_view::npos || assign == 0) {
    return origin.Error({}, "", "must be KEY=VALUE");
  }
  if (assignment.find_first_of("\r\n") != std::string_view::npos) {
    return origin.Error({}, "", "must be one line");
  }
  const auto parsed = ParseAssignment(std::string(assignment.substr(0, assign)),
                                      std::string(assignment.substr(assign + 1)));
  if (!parsed) return SyntaxError(parsed.error(), origin);
  Config changed = config;
  PFS_TRY(ApplyTable(changed, parsed.table(), origin));
  config = std::move(changed);
  return Ok();
}

Status ValidateConfig(const Config& config) {
  const auto invalid = [](std::string text) { return Status(Code::kInvalid, std::move(text)); };
  if (config.nvme.empty()) {
    return invalid(
        "nvme: at least one directory is needed: --nvme DIR, or nvme = [\"DIR\"] in the file");
  }
  for (size_t i = 0; i < config.nvme.size(); ++i) {
    const auto end = config.nvme.begin() + static_cast<ptrdiff_t>(i);
    if (std::find(config.nvme.begin(), end, config.nvme[i]) != end) {
      return invalid("nvme: " + config.nvme[i] + " is given twice");
    }
  }
  if (config.low_watermark >= config.high_watermark) {
    return invalid("low_watermark: must be below high_watermark");
  }
  if (config.capacity.fraction == 0 && config.reserve_initial > config.capacity.bytes) {
    return invalid("reserve_initial: is larger than capacity");
  }
  return Ok();
}

}  // namespace prefixfs
