#include "cache/store/drive_format.h"

#include <xxhash.h>

#include <charconv>
#include <cstdio>

#include "cache/index/record.h"

namespace prefixfs {
namespace {

constexpr std::string_view kMagic = "prefixfs-drive ";
constexpr std::string_view kDigestKey = "digest ";

std::string DigestOf(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return hex;
}

bool ParseNumber(std::string_view text, uint32_t max, uint32_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value <= max;
}

// Takes one line, without its end, off the front of `text`.
std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

bool ApplyLine(std::string_view line, DriveFormat* format) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return false;
  const std::string_view key = line.substr(0, space), value = line.substr(space + 1);
  uint32_t number = 0;
  if (key == "uuid") {
    format->uuid = value;
    return IsUuid(value);
  }
  if (key == "pool") {
    format->pool_uuid = value;
    return IsUuid(value);
  }
  if (key == "slot") {
    if (!ParseNumber(value, UINT16_MAX, &number)) return false;
    format->slot = static_cast<int>(number);
    return true;
  }
  if (key == "slots") return ParseNumber(value, UINT16_MAX + 1u, &format->slots_given);
  return false;
}

Status Corrupt(std::string_view what) {
  return Status(Code::kCorrupt, "PREFIXFS is damaged: " + std::string(what));
}

}  // namespace

std::string FormatToText(const DriveFormat& format) {
  std::string text(kMagic);
  text += std::to_string(kDriveFormatVersion) + "\nuuid " + format.uuid + "\n";
  if (!format.pool_uuid.empty()) text += "pool " + format.pool_uuid + "\n";
  if (format.slot >= 0) text += "slot " + std::to_string(format.slot) + "\n";
  text += "slots " + std::to_string(format.slots_given) + "\n";
  const std::string digest = DigestOf(text);
  return text.append(kDigestKey).append(digest).append("\n");
}

Result<DriveFormat> FormatFromText(std::string_view text) {
  std::string_view rest = text;
  const std::string_view first = TakeLine(&rest);
  if (first.substr(0, kMagic.size()) != kMagic) {
    return text.empty() ? Corrupt("it is empty")
                        : Status(Code::kInvalid, "PREFIXFS is not the file of a PrefixFS drive");
  }
  uint32_t version = 0;
  if (!ParseNumber(first.substr(kMagic.size()), UINT32_MAX, &version)) return Corrupt("no version");
  if (version != kDriveFormatVersion) {
    return Status(Code::kInvalid, "the drive has format version " + std::to_string(version) +
                                      ", this program knows " +
                                      std::to_string(kDriveFormatVersion));
  }
  DriveFormat format;
  while (!rest.empty()) {
    const size_t before = text.size() - rest.size();
    const std::string_view line = TakeLine(&rest);
    if (line.substr(0, kDigestKey.size()) == kDigestKey) {
      if (line.substr(kDigestKey.size()) != DigestOf(text.substr(0, before)) || !rest.empty()) {
        return Corrupt("the digest does not hold");
      }
      if (format.uuid.empty() || (format.slot >= 0) != !format.pool_uuid.empty()) {
        return Corrupt("it is incomplete");
      }
      return format;
    }
    if (!ApplyLine(line, &format)) return Corrupt("a line cannot be read");
  }
  return Corrupt("the digest is missing");
}

std::string NewUuid() {
  std::string uuid = ToHex(RandomBlockId());
  for (const size_t dash : {8, 13, 18, 23}) uuid.insert(dash, 1, '-');
  return uuid;
}

bool IsUuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const char c = text[i];
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (dash ? c != '-' : !hex) return false;
  }
  return true;
}

}  // namespace prefixfs
