#include "tools/fsck/report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cache/base/units.h"

namespace prefixfs::fsck {
namespace {

constexpr uint64_t kInfosShown = 5;  // of each kind; errors are all shown

const char* ActionOf(Remedy remedy) {
  switch (remedy) {
    case Remedy::kNone:
      return "nothing to be done here";
    case Remedy::kRebuildIndex:
      return "remove the index, to be made anew at the next start";
    case Remedy::kQuarantine:
      return "move it to quarantine/";
    case Remedy::kMove:
      return "move it where it belongs";
    case Remedy::kRemove:
      return "remove it";
    case Remedy::kWriteHeader:
      return "write it from the index";
    case Remedy::kWriteRecord:
      return "write it from the index";
    case Remedy::kRestrictAccess:
      return "set owner and mode";
    case Remedy::kNewDriveFile:
      return "write a new one, and remove the index";
  }
  return "";
}

std::string ActionText(const Finding& finding) {
  std::string text = ActionOf(finding.remedy);
  if (finding.drops_index && finding.remedy != Remedy::kRebuildIndex &&
      finding.remedy != Remedy::kNewDriveFile) {
    text += ", and remove the index";
  }
  return text;
}

std::string Outcome(const Report& report, const Finding& finding) {
  if (finding.severity == Severity::kInfo) return "";
  if (finding.remedy == Remedy::kNone) return "not repairable";
  if (!report.repaired) return "--repair would " + ActionText(finding);
  if (finding.done) return "repaired: " + ActionText(finding);
  return "NOT repaired: " + Escape(finding.failure);
}

const char* NameOf(Severity severity) { return severity == Severity::kError ? "error" : "info"; }

void PrintFinding(const Report& report, const Finding& finding) {
  std::printf("%-5s  %-20s  %s", NameOf(finding.severity), TextOf(finding.kind).name,
              report.Where(finding).c_str());
  if (finding.ino != 0) std::printf("  inode %llu", static_cast<unsigned long long>(finding.ino));
  std::printf(": %s", Escape(finding.what).c_str());
  const std::string outcome = Outcome(report, finding);
  std::printf("%s%s%s\n", outcome.empty() ? "" : " [", outcome.c_str(), outcome.empty() ? "" : "]");
}

}  // namespace

Finding& Report::Add(Finding finding) {
  ++counts[static_cast<size_t>(finding.kind)];
  findings.push_back(std::move(finding));
  return findings.back();
}

uint64_t Report::errors() const {
  return static_cast<uint64_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const Finding& finding) { return finding.severity == Severity::kError; }));
}

uint64_t Report::errors_left() const {
  return static_cast<uint64_t>(
      std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
        return finding.severity == Severity::kError && !finding.done;
      }));
}

bool Report::drops_index() const {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == Severity::kError && finding.drops_index;
  });
}

int Report::ExitCode() const {
  if (errors() == 0) return kExitClean;
  return errors_left() == 0 ? kExitRepaired : kExitErrorsLeft;
}

std::string Report::Where(const Finding& finding) const {
  if (finding.drive < 0) return "index";
  const std::string& drive = drives[static_cast<size_t>(finding.drive)];
  return Escape(finding.path.empty() ? drive : drive + "/" + finding.path);
}

std::string Escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\\') {
      out += c;
      continue;
    }
    char hex[5];
    std::snprintf(hex, sizeof(hex), "\\x%02x", byte);
    out += hex;
  }
  return out;
}

void PrintHuman(const Report& report) {
  std::array<uint64_t, static_cast<size_t>(Kind::kCount)> shown{};
  for (const Finding& finding : report.findings) {
    const uint64_t before = shown[static_cast<size_t>(finding.kind)]++;
    if (finding.severity == Severity::kError || before < kInfosShown) PrintFinding(report, finding);
  }
  if (!report.findings.empty()) std::printf("\n");
  for (size_t kind = 0; kind < report.counts.size(); ++kind) {
    if (report.counts[kind] == 0) continue;
    const KindText& text = TextOf(static_cast<Kind>(kind));
    std::printf("%7llu  %-20s  %s\n", static_cast<unsigned long long>(report.counts[kind]),
                text.name, text.about);
  }
  std::printf("%llu inodes, %llu backing files, %llu records; %s read for checksums\n",
              static_cast<unsigned long long>(report.inodes),
              static_cast<unsigned long long>(report.blocks),
              static_cast<unsigned long long>(report.records),
              HumanBytes(report.checked_bytes).c_str());
  if (report.errors() == 0) {
    std::printf("clean\n");
  } else if (report.errors_left() == 0) {
    std::printf("%llu errors, all repaired\n", static_cast<unsigned long long>(report.errors()));
  } else {
    std::printf("%llu errors, %llu left\n", static_cast<unsigned long long>(report.errors()),
                static_cast<unsigned long long>(report.errors_left()));
  }
}

// Text is ASCII by Escape, because names may be any bytes and JSON may not.
void PrintJson(const Report& report) {
  using nlohmann::json;
  json findings = json::array();
  for (const Finding& finding : report.findings) {
    json one = {{"kind", TextOf(finding.kind).name},
                {"severity", NameOf(finding.severity)},
                {"where", report.Where(finding)},
                {"what", Escape(finding.what)}};
    if (finding.ino != 0) one["ino"] = finding.ino;
    if (finding.severity == Severity::kError) {
      one["repair"] = ActionText(finding);
      one["repairable"] = finding.remedy != Remedy::kNone;
      one["repaired"] = finding.done;
      if (!finding.failure.empty()) one["failure"] = Escape(finding.failure);
    }
    findings.push_back(std::move(one));
  }
  json kinds = json::object();
  for (size_t kind = 0; kind < report.counts.size(); ++kind) {
    if (report.counts[kind] > 0) kinds[TextOf(static_cast<Kind>(kind)).name] = report.counts[kind];
  }
  json drives = json::array();
  for (const std::string& drive : report.drives) drives.push_back(Escape(drive));
  const json all = {{"drives", drives},
                    {"findings", findings},
                    {"kinds", kinds},
                    {"errors", report.errors()},
                    {"errors_left", report.errors_left()},
                    {"inodes", report.inodes},
                    {"blocks", report.blocks},
                    {"records", report.records},
                    {"checked_bytes", report.checked_bytes},
                    {"exit_code", report.ExitCode()}};
  std::printf("%s\n", all.dump(2).c_str());
}

}  // namespace prefixfs::fsck
