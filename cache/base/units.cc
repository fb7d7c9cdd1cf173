#include "cache/base/units.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "cache/base/config.h"

namespace prefixfs {
namespace {

// "1.5G" is {whole 1, number 1.5, not integral, suffix "G"}.
struct Quantity {
  double number = 0;
  uint64_t whole = 0;
  bool integral = false;
  std::string_view suffix;
};

std::optional<Quantity> Split(std::string_view text) {
  const size_t end = text.find_first_not_of("0123456789.");
  const std::string_view digits = text.substr(0, end);
  Quantity q;
  q.suffix = end == std::string_view::npos ? std::string_view() : text.substr(end);
  if (digits.empty() || digits.front() == '.' || digits.back() == '.') return std::nullopt;
  const char* last = digits.data() + digits.size();
  q.integral = digits.find('.') == std::string_view::npos;
  if (q.integral) {
    const auto [stop, error] = std::from_chars(digits.data(), last, q.whole);
    if (error != std::errc() || stop != last) return std::nullopt;
    q.number = static_cast<double>(q.whole);
    return q;
  }
  const auto [stop, error] =
      std::from_chars(digits.data(), last, q.number, std::chars_format::fixed);
  if (error != std::errc() || stop != last) return std::nullopt;
  return q;
}

std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// Bits of shift for "", "K", "MB", "GiB"; nothing for an unknown suffix.
std::optional<int> ShiftOf(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 0;
  constexpr std::string_view kLetters = "KMGT";
  const size_t at = kLetters.find(suffix.front() == 'k' ? 'K' : suffix.front());
  const std::string_view rest = suffix.substr(1);
  if (at == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "iB")) {
    return std::nullopt;
  }
  return static_cast<int>(10 * (at + 1));
}

std::optional<int64_t> MsPerUnit(std::string_view suffix) {
  if (suffix == "ms") return 1;
  if (suffix == "s") return 1000;
  if (suffix == "m") return 60'000;
  if (suffix == "h") return 3'600'000;
  return std::nullopt;
}

}  // namespace

Result<SizeSpec> ParseSize(std::string_view text) {
  const auto q = Split(text);
  if (!q) return {Code::kInvalid, Quoted(text) + " is not a size; write for example 100G or 80%"};
  if (q->suffix == "%") {
    if (q->number > 100) return {Code::kInvalid, Quoted(text) + " is more than 100%"};
    return SizeSpec{.bytes = 0, .fraction = q->number / 100};
  }
  const auto shift = ShiftOf(q->suffix);
  if (!shift) {
    return {Code::kInvalid, Quoted(text) + " has an unknown unit; K, M, G, T and % are known"};
  }
  const double bytes = std::ldexp(q->number, *shift);
  if (bytes >= std::ldexp(1.0, 63)) return {Code::kInvalid, Quoted(text) + " is too large"};
  if (q->integral) return SizeSpec{.bytes = q->whole << *shift};
  if (*shift == 0) return {Code::kInvalid, Quoted(text) + " is not a whole number of bytes"};
  return SizeSpec{.bytes = static_cast<uint64_t>(bytes)};
}

Result<int64_t> ParseDurationMs(std::string_view text) {
  const auto q = Split(text);
  if (!q) return {Code::kInvalid, Quoted(text) + " is not a duration; write for example 10s"};
  if (q->suffix.empty()) {
    return {Code::kInvalid,
            Quoted(text) + " has no unit; write for example " + std::string(text) + "s"};
  }
  const auto unit = MsPerUnit(q->suffix);
  if (!unit) return {Code::kInvalid, Quoted(text) + " has an unknown unit; ms, s, m, h are known"};
  const double ms = q->number * static_cast<double>(*unit);
  if (ms >= std::ldexp(1.0, 53)) return {Code::kInvalid, Quoted(text) + " is too long"};
  if (ms != std::floor(ms)) {
    return {Code::kInvalid, Quoted(text) + " is not a whole number of milliseconds"};
  }
  return static_cast<int64_t>(ms);
}

std::string SizeText(uint64_t bytes) {
  constexpr char kLetters[] = "KMGT";
  int unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  std::string text = std::to_string(bytes);
  if (unit > 0) text += kLetters[unit - 1];
  return text;
}

std::string DurationText(int64_t ms) {
  if (ms == 0) return "0s";
  if (ms % 3'600'000 == 0) return std::to_string(ms / 3'600'000) + "h";
  if (ms % 60'000 == 0) return std::to_string(ms / 60'000) + "m";
  if (ms % 1000 == 0) return std::to_string(ms / 1000) + "s";
  return std::to_string(ms) + "ms";
}

std::string HumanBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  int unit = 0;
  // 1023.995 would print as 1024.
  while (value >= 999.5 && unit < 6) {
    value /= 1024;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f %s", decimals, value, kUnits[unit]);
  return text;
}

}  // namespace prefixfs
