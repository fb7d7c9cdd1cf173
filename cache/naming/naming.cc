#include "cache/naming/naming.h"

#include <fnmatch.h>
#include <re2/re2.h>

#include <array>
#include <charconv>

#include "cache/naming/profiles.h"

namespace prefixfs {
namespace {

constexpr size_t kMaxHashBytes = 64;  // as a record of the index holds

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Names are bytes, not text: Latin-1 gives every byte a meaning, and a newline in a name is like
// any other.
RE2::Options PatternOptions() {
  RE2::Options options(RE2::Latin1);
  options.set_log_errors(false);
  options.set_dot_nl(true);
  options.set_never_nl(false);
  return options;
}

std::string ReplaceSep(std::string_view text) {
  constexpr std::string_view kSep = "-SEP-";
  std::string out;
  for (size_t at; (at = text.find(kSep)) != std::string_view::npos;) {
    out.append(text.substr(0, at)).push_back('/');
    text.remove_prefix(at + kSep.size());
  }
  return out.append(text);
}

std::string Unquote(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    const int low = high >= 0 ? HexValue(text[i + 2]) : -1;
    if (low < 0) {
      out.push_back(text[i]);
      continue;
    }
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

std::string ModelFromText(std::string_view text, ModelText form) {
  if (form == ModelText::kSep) return ReplaceSep(text);
  if (form == ModelText::kPercent) return Unquote(text);
  return std::string(text);
}

int32_t RankFromText(std::string_view text, RankText form) {
  uint32_t value = 0;
  const int base = form == RankText::kPacked ? 16 : 10;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return -1;
  if (form == RankText::kPacked) return static_cast<int32_t>((value >> 16) & 0xFF);
  return value > INT32_MAX ? -1 : static_cast<int32_t>(value);
}

// A pattern ready to run, with the numbers of its groups.
struct Matcher {
  Matcher(std::string name_in, const std::string& pattern, ModelText model_in, RankText rank_in)
      : name(std::move(name_in)), regex(pattern, PatternOptions()), model(model_in), rank(rank_in) {
    if (!regex.ok()) return;
    const auto& groups = regex.NamedCapturingGroups();
    const auto number = [&](const char* group) {
      const auto found = groups.find(group);
      return found == groups.end() ? -1 : found->second;
    };
    hash_group = number("hash");
    model_group = number("model");
    rank_group = number("rank");
  }

  bool Match(std::string_view path, BlockName* out) const;

  std::string name;
  RE2 regex;
  ModelText model;
  RankText rank;
  int hash_group = -1, model_group = -1, rank_group = -1;  // -1: the pattern has none
};

bool Matcher::Match(std::string_view path, BlockName* out) const {
  constexpr int kMaxGroups = 16;  // of a configured pattern, checked by Make
  std::array<re2::StringPiece, kMaxGroups + 1> parts;
  const re2::StringPiece text(path.data(), path.size());
  const int count = regex.NumberOfCapturingGroups() + 1;
  if (count > kMaxGroups + 1) return false;
  if (!regex.Match(text, 0, text.size(), RE2::UNANCHORED, parts.data(), count)) return false;
  const auto part = [&](int group) {
    if (group < 0) return std::string_view();
    const re2::StringPiece& piece = parts[static_cast<size_t>(group)];
    return std::string_view(piece.data(), piece.size());
  };
  std::string hash = Naming::HashFromText(part(hash_group));
  if (hash.empty() || hash.size() > kMaxHashBytes) return false;
  out->profile = name;
  out->hash = std::move(hash);
  out->model = ModelFromText(part(model_group), model);
  out->rank = RankFromText(part(rank_group), rank);
  return true;
}

struct PolicyMatcher {
  explicit PolicyMatcher(const PolicyPattern& pattern)
      : directory(pattern.directory),
        policy(pattern.policy),
        regex(pattern.pattern, PatternOptions()) {}

  bool directory;
  PathPolicy policy;
  RE2 regex;
};

}  // namespace

// What the clients in profiles.cc give their temporaries, and most other programs too: .tmp at the
// end, or before the digits, dots and letters that make the name one of a kind.
constexpr char kTemporary[] = R"(\.tmp[.0-9A-Za-z_-]*$)";

struct Naming::Compiled {
  std::vector<std::unique_ptr<Matcher>> profiles;  // configured ones first
  std::vector<PathRule> rules;
  std::vector<std::unique_ptr<PolicyMatcher>> policies;
  RE2 temporary{kTemporary, PatternOptions()};
};

Naming::Naming() : compiled_(std::make_unique<Compiled>()) {}
Naming::~Naming() = default;

Result<std::unique_ptr<Naming>> Naming::Make(const std::vector<NamingProfile>& profiles,
                                             const std::vector<PathRule>& rules) {
  std::unique_ptr<Naming> naming(new Naming);
  Compiled& compiled = *naming->compiled_;
  for (const NamingProfile& profile : profiles) {
    auto matcher = std::make_unique<Matcher>(profile.name, profile.pattern, ModelText::kPlain,
                                             RankText::kDecimal);
    const std::string who = "naming profile \"" + profile.name + "\": ";
    if (!matcher->regex.ok()) {
      return Status(Code::kInvalid,
                    who + "the pattern does not compile: " + matcher->regex.error());
    }
    if (matcher->hash_group < 0) {
      return Status(Code::kInvalid, who + "the pattern has no group (?P<hash>...)");
    }
    if (matcher->regex.NumberOfCapturingGroups() > 16) {
      return Status(Code::kInvalid, who + "the pattern has more than 16 groups; use (?:...)");
    }
    compiled.profiles.push_back(std::move(matcher));
  }
  for (const Profile& row : BuiltinProfiles()) {
    compiled.profiles.push_back(
        std::make_unique<Matcher>(row.name, row.pattern, row.model, row.rank));
    assert(compiled.profiles.back()->regex.ok() && compiled.profiles.back()->hash_group >= 0);
  }
  for (const PolicyPattern& row : BuiltinPolicies()) {
    compiled.policies.push_back(std::make_unique<PolicyMatcher>(row));
    assert(compiled.policies.back()->regex.ok());
  }
  compiled.rules = rules;
  return naming;
}

BlockName Naming::Parse(std::string_view path) const {
  BlockName name;
  for (const auto& profile : compiled_->profiles) {
    if (profile->Match(path, &name)) break;
  }
  return name;
}

bool Naming::IsTemporary(std::string_view name) const {
  const re2::StringPiece text(name.data(), name.size());
  return compiled_->temporary.Match(text, 0, text.size(), RE2::UNANCHORED, nullptr, 0);
}

PathPolicy Naming::PolicyOf(std::string_view path, bool directory) const {
  if (!compiled_->rules.empty()) {
    const std::string text(path);
    for (const PathRule& rule : compiled_->rules) {
      if (rule.policy == PathPolicy::kKeep && !directory) continue;
      if (fnmatch(rule.match.c_str(), text.c_str(), 0) == 0) return rule.policy;
    }
  }
  const re2::StringPiece text(path.data(), path.size());
  for (const auto& pattern : compiled_->policies) {
    if (pattern->directory != directory) continue;
    if (pattern->regex.Match(text, 0, text.size(), RE2::UNANCHORED, nullptr, 0)) {
      return pattern->policy;
    }
  }
  return PathPolicy::kBlock;
}

std::string Naming::HashFromText(std::string_view text) {
  std::string raw;
  if (text.empty() || text.size() % 2 != 0) return std::string(text);
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = HexValue(text[i]), low = HexValue(text[i + 1]);
    if (high < 0 || low < 0) return std::string(text);
    raw.push_back(static_cast<char>(high * 16 + low));
  }
  return raw;
}

// Hex digits, from which HashFromText gives every hash back. Only the odd-length hex numbers that
// LMCache uses as names, perhaps with a sign, are shown as the client wrote them: raw bytes look
// like that with a chance of less than 1e-8 from 7 bytes on.
std::string Naming::HashToText(std::string_view hash) {
  const std::string_view digits = !hash.empty() && hash[0] == '-' ? hash.substr(1) : hash;
  bool as_written = !digits.empty() && (digits.size() < hash.size() || digits.size() % 2 != 0);
  for (const char c : digits) {
    as_written = as_written && HexValue(c) >= 0 && !(c >= 'A' && c <= 'F');
  }
  if (as_written) return std::string(hash);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : hash) {
    const auto byte = static_cast<uint8_t>(c);
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace prefixfs
