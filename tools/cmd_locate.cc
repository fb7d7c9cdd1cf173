// prefixfs locate: where a block is, by its path or by its prefix hash.
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "cache/base/units.h"
#include "tools/commands.h"
#include "tools/control.h"
#include "tools/deadline.h"
#include "tools/mounts.h"

namespace prefixfs {
namespace {

using nlohmann::json;

constexpr const char* kLocation = "user.prefixfs.location";
constexpr const char* kHashPrefix = "user.prefixfs.hash.";
constexpr size_t kMaxAttributeName = 255;  // xattr(7)

std::string FieldText(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// "PATH  sealed  2.00 MiB  tier=nvme drive=/nvme0 ...": what people look for first, then every
// other field that says anything.
void PrintHuman(const json& block) {
  std::string line = FieldText(block.value("path", json("?")));
  line += "  " + FieldText(block.value("state", json("?")));
  const auto size = block.find("size");
  if (size != block.end() && size->is_number_unsigned())
    line += "  " + HumanBytes(size->get<uint64_t>());
  line += " ";
  for (const char* key :
       {"tier", "drive", "block", "hash", "model", "rank", "profile", "checksum", "ino"}) {
    const auto field = block.find(key);
    if (field == block.end() || field->is_null() || *field == -1) continue;  // -1: no rank
    const std::string text = FieldText(*field);
    if (!text.empty()) line += " " + std::string(key) + "=" + text;
  }
  std::printf("%s\n", line.c_str());
}

void Print(const json& blocks, bool raw) {
  if (raw) {
    // Names may be any bytes; JSON may not.
    std::printf("%s\n", blocks.dump(2, ' ', false, json::error_handler_t::replace).c_str());
    return;
  }
  for (const auto& block : blocks) PrintHuman(block);
}

// Whether the path exists, and without hanging.
Status Exists(const std::string& path) {
  return WithDeadline(kControlTimeoutMs,
                      [&]() -> Result<std::string> {
                        struct stat info;
                        if (::lstat(path.c_str(), &info) == 0) return std::string();
                        return Status::FromErrno(errno, path);
                      })
      .status();
}

class Locate {
 public:
  explicit Locate(std::string mount) : mount_(std::move(mount)) {}

  // An array of locations; kNotFound with a text if there is none.
  Result<json> Find(const std::string& what) {
    for (const auto& path : Paths(what)) {
      if (!FindPrefixFs(path).ok()) continue;
      const Status exists = Exists(path);
      if (exists.ok()) return ByPath(path);
      if (exists.Is(Code::kTimedOut) || exists.Is(Code::kUnavailable)) {
        return ReadAttribute(path, kLocation).status();
      }
    }
    if (what.find('/') != std::string::npos) {
      return {Code::kNotFound, what + ": no such file on a PrefixFS mount"};
    }
    return ByHash(what);
  }

 private:
  // The path as it stands, or below the mount that was named.
  std::vector<std::string> Paths(const std::string& what) const {
    std::vector<std::string> paths{what};
    if (!mount_.empty() && !what.starts_with('/')) paths.push_back(mount_ + "/" + what);
    return paths;
  }

  static Result<json> Parse(const std::string& text) {
    json value = json::parse(text, nullptr, false);
    if (value.is_discarded()) return {Code::kCorrupt, "the daemon's answer is not JSON"};
    return value;
  }

  static Result<json> ByPath(const std::string& path) {
    const auto text = ReadAttribute(path, kLocation);
    if (text.status().Is(Code::kNotFound)) {
      return {Code::kNotFound, path + ": the daemon knows no location for it"};
    }
    if (!text.ok()) return text.status();
    json blocks = json::array();
    blocks.push_back(PFS_TRY(Parse(*text)));
    return blocks;
  }

  Result<std::vector<Mount>> Mounts() const {
    if (!mount_.empty()) return std::vector<Mount>{PFS_TRY(FindPrefixFs(mount_))};
    std::vector<Mount> found;
    std::set<std::pair<uint32_t, uint32_t>> seen;
    const auto mounts = PFS_TRY(ReadMounts());
    for (const auto& mount : mounts) {
      if (mount.IsPrefixFs() && mount.root == "/" &&
          seen.insert({mount.major, mount.minor}).second) {
        found.push_back(mount);
      }
    }
    if (found.empty()) return {Code::kNotFound, "there is no PrefixFS mount here"};
    return found;
  }

  // On every mount. One that does not answer is reported and does not hide what others have.
  Result<json> ByHash(const std::string& hash) const {
    const std::string name = kHashPrefix + hash;
    if (name.size() > kMaxAttributeName)
      return {Code::kNotFound, hash + ": is neither a path nor a hash"};
    json blocks = json::array();
    Status failed = Ok();
    const auto mounts = PFS_TRY(Mounts());
    for (const auto& mount : mounts) {
      const auto text = ReadAttribute(mount.point, name);
      if (text.status().Is(Code::kNotFound)) continue;
      if (!text.ok()) {
        failed = text.status();
        continue;
      }
      const json found = PFS_TRY(Parse(*text));
      if (found.is_array()) blocks.insert(blocks.end(), found.begin(), found.end());
    }
    if (!blocks.empty()) return blocks;
    if (!failed.ok()) return failed;
    return {Code::kNotFound, hash + ": no such file, and no block has this hash"};
  }

  const std::string mount_;
};

int RunLocate(const std::string& what, const std::string& mount, bool raw) {
  const auto blocks = Locate(mount).Find(what);
  if (!blocks.ok()) return Fail(blocks.status().message());
  Print(*blocks, raw);
  return kExitOk;
}

}  // namespace

void AddLocateCommand(CLI::App& app, int* exit_code) {
  struct Options {
    std::string what, mount;
    bool raw = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("locate", "Show where a block is, by its path or its prefix hash");
  command
      ->add_option("HASH|PATH", options->what,
                   "A file on a PrefixFS mount, or a prefix hash as in its name")
      ->required()
      ->type_name("");
  command->add_option("--mount", options->mount, "Look on this mount only; default: on all")
      ->type_name("MOUNT");
  command->add_flag("--json", options->raw, "Print a JSON array");
  command->footer("Exit codes: 0 found, 1 not found or no answer, 2 wrong usage.");
  command->callback([options, exit_code] {
    *exit_code = RunLocate(options->what, options->mount, options->raw);
  });
}

}  // namespace prefixfs
