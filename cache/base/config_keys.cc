#include "cache/base/config_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>

#include "cache/base/units.h"

namespace prefixfs {
namespace {

constexpr int64_t kSecond = 1000;
constexpr int64_t kMinute = 60 * kSecond;
constexpr int64_t kHour = 60 * kMinute;
constexpr uint64_t kKiB = 1ull << 10;
constexpr uint64_t kMiB = 1ull << 20;
constexpr uint64_t kTiB = 1ull << 40;

const ConfigKey kKeys[] = {
    {"nvme", PathsField{&Config::nvme},
     "Directories that hold the blocks, one a drive. The first also holds the index."},
    {"capacity", ShareField{&Config::capacity, kMiB, 1.0},
     "Byte budget of all blocks; a share is of the filesystems behind nvme together."},
    {"min_free", ShareField{&Config::min_free, 0, 0.99},
     "Left free on each filesystem, whoever fills it."},
    {"max_inodes", CountField{&Config::max_inodes, 16, 1ull << 40},
     "Most blocks, directories and links that there may be, together."},
    {"high_watermark", RatioField{&Config::high_watermark},
     "Share of capacity at which the background evictor starts."},
    {"low_watermark", RatioField{&Config::low_watermark}, "Share of capacity at which it stops."},
    {"reserve_initial", BytesField{&Config::reserve_initial, 4 * kKiB, kTiB},
     "Reserved at a create before the namespace's block size is known."},
    {"account_interval", DurationField{&Config::account_interval_ms, 1, 10 * kSecond},
     "How often files that are being written are measured."},
    {"space_wait", DurationField{&Config::space_wait_ms, 0, 10 * kMinute},
     "How long a create waits for leased blocks to become evictable before ENOSPC."},
    {"eviction", ChoiceField{&Config::eviction, ""}, "Eviction policy: lru."},
    {"verify", ChoiceField{&Config::verify, "first|always|never"},
     "When a block is checked: at its first open after each start, at each open, or only after a "
     "crash."},
    {"scrub_rate", BytesField{&Config::scrub_rate, 0, kTiB},
     "Bytes a second at which sealed blocks are read again to find damage; 0 turns it off."},
    {"scrub_interval", DurationField{&Config::scrub_interval_ms, 1, 10'000 * kHour},
     "A pass of scrubbing over all blocks begins at most once in this long."},
    {"quarantine", BytesField{&Config::quarantine, 0, 1024 * kTiB},
     "Bytes of damaged blocks that are kept for inspection, the newest; 0 keeps none."},
    {"lease", DurationField{&Config::lease_ms, 0, kHour},
     "A block that a probe saw is not evicted for this long."},
    {"negative_timeout", DurationField{&Config::negative_timeout_ms, 0, kMinute},
     "How long the kernel may remember that a name is absent."},
    {"passthrough", ToggleField{&Config::passthrough},
     "Kernel passthrough of reads and writes: auto uses it where the kernel has it."},
    {"io_uring", ToggleField{&Config::io_uring},
     "FUSE requests over io_uring rather than /dev/fuse: auto uses it where kernel and libfuse "
     "can."},
    {"io_uring_depth", CountField{&Config::io_uring_depth, 1, 4096},
     "Requests that may be under way for each processor over io_uring."},
    {"o_direct", ChoiceField{&Config::o_direct, kDirectModes},
     "Who serves O_DIRECT handles: the daemon, at any alignment; the kernel, as the drive's "
     "filesystem does; or whichever fits."},
    {"max_threads", CountField{&Config::max_threads, 1, 1024}, "Threads that read /dev/fuse."},
    {"max_workers", CountField{&Config::max_workers, 1, 1024},
     "Threads for work that may wait: disk, eviction, verification."},
    {"max_backing", CountField{&Config::max_backing, 1, 1ull << 24},
     "Idle backing files that the kernel keeps open."},
    {"empty_dir_grace", DurationField{&Config::empty_dir_grace_ms, 0, 720 * kHour},
     "An empty directory is removed after this long without change."},
    {"index_sync", DurationField{&Config::index_sync_ms, 1, kMinute},
     "How often the index is synced to the drive."},
    {"orphan_grace", DurationField{&Config::orphan_grace_ms, 0, 10'000 * kHour},
     "A block that stays under a temporary name, unused, is removed after this long."},
    {"log", LogField{&Config::log}, "Where the daemon logs: auto, stderr, syslog or a file."},
    {"log_level", ChoiceField{&Config::log_level, "trace|debug|info|warn|error|off"},
     "Least severity that is logged."},
    {"lookup_wait", DurationField{&Config::lookup_wait_ms, 1, kMinute},
     "How long a lookup may take before its name counts as absent."},
    {"deadline", DurationField{&Config::deadline_ms, 10, kHour},
     "How long any other call may wait before it fails."},
    {"request_limit", DurationField{&Config::request_limit_ms, 10, kHour},
     "A request that takes longer is logged, with what it waits for."},
    {"naming", NamingField{}, "How prefix hash, model and rank are read out of file names."},
    {"rule", RulesField{}, "What may be done with the paths that match a pattern."},
    {"namespace", NamespaceField{}, "Settings of one top-level directory."},
};

// Levenshtein distance (V. Levenshtein, 1966), one row at a time.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

std::string TomlString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04X", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// The shortest text that reads back to exactly `value`.
std::string NumberText(double value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

// The same for a share, which is read as a percentage: without an exponent, and divided by 100. A
// neighbour of the product may be what was written, and shorter.
std::string PercentText(double fraction) {
  char text[512];  // the smallest double has 324 zeros
  std::string shortest;
  double percent = fraction * 100;
  for (int i = 0; i < 2; ++i) percent = std::nextafter(percent, 0);
  for (int i = 0; i < 5; ++i, percent = std::nextafter(percent, HUGE_VAL)) {
    if (percent / 100 != fraction) continue;
    const auto end = std::to_chars(text, std::end(text), percent, std::chars_format::fixed).ptr;
    if (shortest.empty() || static_cast<size_t>(end - text) < shortest.size())
      shortest.assign(text, end);
  }
  return shortest + "%";
}

std::string ShareText(const SizeSpec& size) {
  return size.fraction > 0 ? PercentText(size.fraction) : SizeText(size.bytes);
}

std::string_view ToggleText(Toggle toggle) {
  switch (toggle) {
    case Toggle::kAuto:
      return "auto";
    case Toggle::kOn:
      return "on";
    case Toggle::kOff:
      return "off";
  }
  return "auto";
}

std::string_view PolicyText(PathPolicy policy) {
  switch (policy) {
    case PathPolicy::kBlock:
      return "block";
    case PathPolicy::kPosix:
      return "posix";
    case PathPolicy::kKeep:
      return "keep";
  }
  return "block";
}

Status Wrong(std::string text) { return {Code::kInvalid, std::move(text)}; }

// A size: a string with a unit, or an integer of bytes.
Result<SizeSpec> SizeOf(const ConfigValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return ParseSize(*text);
  const auto* bytes = std::get_if<int64_t>(&value);
  if (bytes == nullptr) return Wrong("must be a size such as \"100G\", or a number of bytes");
  if (*bytes < 0) return Wrong("must not be negative");
  return SizeSpec{.bytes = static_cast<uint64_t>(*bytes)};
}

// One overload a kind of field: checks the type, then the range, then stores.
struct Setter {
  Config& config;
  const ConfigValue& value;

  Status operator()(const PathsField& f) const {
    std::vector<std::string> paths;
    if (const auto* one = std::get_if<std::string>(&value))
      paths = {*one};
    else if (const auto* many = std::get_if<std::vector<std::string>>(&value))
      paths = *many;
    else
      return Wrong("must be a list of directories such as [\"/nvme0\", \"/nvme1\"]");
    for (const auto& path : paths) {
      if (path.empty()) return Wrong("has an empty directory name");
    }
    config.*f.member = std::move(paths);
    return Ok();
  }
  Status operator()(const ShareField& f) const {
    const SizeSpec size = PFS_TRY(SizeOf(value));
    if (size.fraction > f.max_fraction) {
      return Wrong("must be at most " + PercentText(f.max_fraction));
    }
    if (size.fraction == 0 && size.bytes < f.min_bytes) {
      return Wrong("must be at least " + SizeText(f.min_bytes));
    }
    config.*f.member = size;
    return Ok();
  }
  Status operator()(const RatioField& f) const {
    double ratio = 0;
    if (const auto* text = std::get_if<std::string>(&value)) {
      const auto size = ParseSize(*text);
      if (!size.ok() || size->bytes != 0) return Wrong("must be 0..1, or such as \"95%\"");
      ratio = size->fraction;
    } else if (const auto* number = std::get_if<double>(&value)) {
      ratio = *number;
    } else if (const auto* whole = std::get_if<int64_t>(&value)) {
      ratio = static_cast<double>(*whole);
    } else {
      return Wrong("must be 0..1, or such as \"95%\"");
    }
    // Written so that NaN fails too.
    if (!(ratio > 0 && ratio <= 1)) return Wrong("must be above 0 and at most 1 (100%)");
    config.*f.member = ratio;
    return Ok();
  }
  Status operator()(const BytesField& f) const {
    const SizeSpec size = PFS_TRY(SizeOf(value));
    if (size.fraction > 0) return Wrong("must be a number of bytes, not a share");
    if (size.bytes < f.min || size.bytes > f.max) {
      return Wrong("must be from " + SizeText(f.min) + " to " + SizeText(f.max));
    }
    config.*f.member = size.bytes;
    return Ok();
  }
  Status operator()(const CountField& f) const {
    const auto* count = std::get_if<int64_t>(&value);
    if (count == nullptr) return Wrong("must be a whole number");
    if (*count < 0 || static_cast<uint64_t>(*count) < f.min ||
        static_cast<uint64_t>(*count) > f.max) {
      return Wrong("must be from " + std::to_string(f.min) + " to " + std::to_string(f.max));
    }
    config.*f.member = static_cast<uint64_t>(*count);
    return Ok();
  }
  Status operator()(const DurationField& f) const {
    if (const auto* number = std::get_if<int64_t>(&value)) {
      return Wrong("has no unit; write for example \"" + std::to_string(*number) + "s\"");
    }
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr) return Wrong("must be a duration such as \"200ms\", \"10s\" or \"2h\"");
    const int64_t ms = PFS_TRY(ParseDurationMs(*text));
    if (ms < f.min_ms || ms > f.max_ms) {
      return Wrong("must be from " + DurationText(f.min_ms) + " to " + DurationText(f.max_ms));
    }
    config.*f.member = ms;
    return Ok();
  }
  Status operator()(const ChoiceField& f) const {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr || text->empty() || (!f.choices.empty() && !IsChoice(*text, f.choices))) {
      return Wrong(f.choices.empty() ? "must be a name"
                                     : "must be one of " + std::string(f.choices));
    }
    config.*f.member = *text;
    return Ok();
  }
  Status operator()(const LogField& f) const {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr || !(IsChoice(*text, "auto|stderr|syslog") || text->starts_with('/'))) {
      return Wrong("must be auto, stderr, syslog or the absolute path of a file");
    }
    config.*f.member = *text;
    return Ok();
  }
  Status operator()(const ToggleField& f) const {
    const auto* text = std::get_if<std::string>(&value);
    const auto* on = std::get_if<bool>(&value);
    if (on != nullptr)
      config.*f.member = *on ? Toggle::kOn : Toggle::kOff;
    else if (text != nullptr && *text == "auto")
      config.*f.member = Toggle::kAuto;
    else if (text != nullptr && *text == "on")
      config.*f.member = Toggle::kOn;
    else if (text != nullptr && *text == "off")
      config.*f.member = Toggle::kOff;
    else
      return Wrong("must be \"auto\", \"on\" or \"off\"");
    return Ok();
  }
  Status operator()(const NamingField&) const { return Wrong("is a table"); }
  Status operator()(const RulesField&) const { return Wrong("is a table"); }
  Status operator()(const NamespaceField&) const { return Wrong("is a table"); }
};

struct Formatter {
  const Config& config;

  std::string operator()(const PathsField& f) const {
    std::string text = "[";
    for (const auto& path : config.*f.member) {
      if (text.size() > 1) text += ", ";
      text += TomlString(path);
    }
    return text + "]";
  }
  std::string operator()(const ShareField& f) const {
    return TomlString(ShareText(config.*f.member));
  }
  std::string operator()(const RatioField& f) const { return NumberText(config.*f.member); }
  std::string operator()(const BytesField& f) const {
    return TomlString(SizeText(config.*f.member));
  }
  std::string operator()(const CountField& f) const { return std::to_string(config.*f.member); }
  std::string operator()(const DurationField& f) const {
    return TomlString(DurationText(config.*f.member));
  }
  std::string operator()(const ChoiceField& f) const { return TomlString(config.*f.member); }
  std::string operator()(const LogField& f) const { return TomlString(config.*f.member); }
  std::string operator()(const ToggleField& f) const {
    return TomlString(ToggleText(config.*f.member));
  }
  std::string operator()(const NamingField&) const { return {}; }
  std::string operator()(const RulesField&) const { return {}; }
  std::string operator()(const NamespaceField&) const { return {}; }
};

struct TypeNamer {
  std::string operator()(const PathsField&) const { return "list of directories"; }
  std::string operator()(const ShareField&) const { return "size or share"; }
  std::string operator()(const RatioField&) const { return "0..1 or percent"; }
  std::string operator()(const BytesField&) const { return "size"; }
  std::string operator()(const CountField&) const { return "number"; }
  std::string operator()(const DurationField&) const { return "duration"; }
  std::string operator()(const ChoiceField& f) const {
    return f.choices.empty() ? "name" : std::string(f.choices);
  }
  std::string operator()(const LogField&) const { return "auto|stderr|syslog|FILE"; }
  std::string operator()(const ToggleField&) const { return "auto|on|off"; }
  std::string operator()(const NamingField&) const { return "array of tables"; }
  std::string operator()(const RulesField&) const { return "array of tables"; }
  std::string operator()(const NamespaceField&) const { return "table"; }
};

}  // namespace

std::span<const ConfigKey> ConfigKeys() { return kKeys; }

bool IsChoice(std::string_view value, std::string_view choices) {
  while (true) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

const ConfigKey* FindConfigKey(std::string_view name) {
  for (const auto& key : kKeys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string_view NearestConfigKey(std::string_view name) {
  std::string_view nearest;
  size_t least = (name.size() < 4 ? 1 : std::max<size_t>(2, name.size() / 3)) + 1;
  for (const auto& key : kKeys) {
    const size_t distance = Distance(name, key.name);
    if (distance >= least) continue;
    least = distance;
    nearest = key.name;
  }
  return nearest;
}

std::string UnknownKeyText(std::string_view name) {
  const auto nearest = NearestConfigKey(name);
  if (nearest.empty()) return "unknown key (docs/CONFIGURATION.md lists them all)";
  return "unknown key; did you mean '" + std::string(nearest) + "'?";
}

std::string ConfigTypeText(const ConfigKey& key) { return std::visit(TypeNamer{}, key.field); }

Status SetConfigValue(Config& config, const ConfigKey& key, const ConfigValue& value) {
  return std::visit(Setter{config, value}, key.field);
}

std::string ConfigValueText(const Config& config, const ConfigKey& key) {
  return std::visit(Formatter{config}, key.field);
}

std::string FormatConfig(const Config& config) {
  std::string text;
  for (const auto& key : kKeys) {
    const std::string value = ConfigValueText(config, key);
    if (!value.empty()) text += std::string(key.name) + " = " + value + "\n";
  }
  for (const auto& profile : config.naming) {
    text += "\n[[naming]]\nname = " + TomlString(profile.name) +
            "\npattern = " + TomlString(profile.pattern) + "\n";
  }
  for (const auto& rule : config.rules) {
    text += "\n[[rule]]\nmatch = " + TomlString(rule.match) +
            "\npolicy = " + TomlString(PolicyText(rule.policy)) + "\n";
  }
  std::map<std::string_view, std::string_view> direct;  // in TOML's order; the first rule counts
  for (const auto& rule : config.o_direct_rules) direct.emplace(rule.name, rule.mode);
  for (const auto& [name, mode] : direct)
    text += "\n[namespace." + TomlString(name) + "]\no_direct = " + TomlString(mode) + "\n";
  return text;
}

}  // namespace prefixfs
