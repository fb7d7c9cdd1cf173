// mount.prefixfs: the helper that mount(8) calls for `mount -t prefixfs` and for lines of
// /etc/fstab.
#include <sys/stat.h>

#include <cstdio>
#include <optional>
#include <string_view>

#include "cache/base/config_keys.h"
#include "tools/commands.h"

namespace prefixfs {
namespace {

constexpr int64_t kTimeoutMs = 60'000;

constexpr const char* kUsage =
    "Usage: mount.prefixfs SOURCE MOUNT [-sfnv] [-o OPTION,...]\n"
    "\n"
    "SOURCE is a configuration file (.toml), a directory on a local drive, or `none`.\n"
    "OPTION is KEY=VALUE for any key of the configuration (nvme=DIR may be repeated), or a "
    "generic\n"
    "option of mount(8). A value that holds a comma belongs into a configuration file.\n"
    "  -f  check everything, mount nothing\n"
    "  -s  ignore options that are not known\n"
    "\n"
    "In /etc/fstab:  /etc/prefixfs/prefixfs.toml /mnt/kv prefixfs defaults,nofail 0 0\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage.\n";

// What mount(8) and systemd hand on and what a mount that is always read-write and made by root
// already honours or ignores.
bool IsGeneric(std::string_view option) {
  for (const std::string_view known :
       {"rw",         "defaults", "auto",       "noauto",      "_netdev", "nofail",  "user",
        "nouser",     "users",    "owner",      "group",       "suid",    "nosuid",  "dev",
        "nodev",      "exec",     "noexec",     "async",       "atime",   "noatime", "diratime",
        "nodiratime", "relatime", "norelatime", "strictatime", "silent",  "loud"}) {
    if (option == known) return true;
  }
  return option.starts_with("x-") || option.starts_with("X-") || option.starts_with("comment=");
}

struct Helper {
  MountArguments mount;
  std::string source;
  bool fake = false;
  bool sloppy = false;
};

Status AddOption(Helper& helper, std::string_view option) {
  if (option.empty() || IsGeneric(option)) return Ok();
  if (option == "ro") {
    return {Code::kInvalid,
            "option ro: a PrefixFS mount is a cache that fills itself and cannot be read-only"};
  }
  if (option == "remount")
    return {Code::kInvalid, "option remount: unmount and mount again instead"};
  const size_t equal = option.find('=');
  const std::string_view name = option.substr(0, equal);
  if (equal != std::string_view::npos && FindConfigKey(name.substr(0, name.find('.'))) != nullptr) {
    if (name == "nvme")
      helper.mount.nvme.emplace_back(option.substr(equal + 1));
    else
      helper.mount.set.emplace_back(option);
    return Ok();
  }
  if (helper.sloppy) return Ok();
  if (FindConfigKey(name) != nullptr) {
    return {Code::kInvalid, "option " + std::string(name) + ": needs a value"};
  }
  return {Code::kInvalid, "option " + std::string(name) + ": " + UnknownKeyText(name)};
}

Status AddOptions(Helper& helper, std::string_view list) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    PFS_TRY(AddOption(helper, list.substr(0, comma)));
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return Ok();
}

// The source counts as the first drive, before those of the options.
Status UseSource(Helper& helper) {
  if (helper.source == "none") return Ok();
  if (helper.source.ends_with(".toml")) {
    helper.mount.config_file = helper.source;
    return Ok();
  }
  struct stat info;
  if (::stat(helper.source.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    helper.mount.nvme.insert(helper.mount.nvme.begin(), helper.source);
    return Ok();
  }
  return {Code::kInvalid, helper.source + ": is neither a .toml file nor a directory nor `none`"};
}

// False if the command line makes no sense. Options may stand anywhere, several letters together.
bool ParseWords(int argc, char** argv, Helper* helper, std::vector<std::string>* option_lists) {
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.size() < 2 || word.front() != '-') {
      names.emplace_back(word);
      continue;
    }
    for (size_t at = 1; at < word.size(); ++at) {
      const char letter = word[at];
      if (letter == 'f')
        helper->fake = true;
      else if (letter == 's')
        helper->sloppy = true;
      else if (letter == 'o' || letter == 't' || letter == 'N') {
        std::string value(word.substr(at + 1));
        if (value.empty() && ++i >= argc) return false;
        if (value.empty()) value = argv[i];
        if (letter == 'o') option_lists->push_back(value);
        if (letter == 'N') return false;  // another mount namespace
        break;
      } else if (letter != 'n' && letter != 'v') {
        return false;
      }
    }
  }
  if (names.size() != 2) return false;
  helper->source = names[0];
  helper->mount.mount_point = names[1];
  return true;
}

}  // namespace

int RunMountHelper(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "-h" || first == "--help") {
    std::fputs(kUsage, stdout);
    return kExitOk;
  }
  if (first == "-V" || first == "--version") {
    std::puts("mount.prefixfs " PREFIXFS_VERSION);
    return kExitOk;
  }
  Helper helper;
  std::vector<std::string> option_lists;
  if (!ParseWords(argc, argv, &helper, &option_lists)) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  for (const auto& list : option_lists) {
    const Status status = AddOptions(helper, list);
    if (!status.ok()) return Fail(status.message());
  }
  const Status status = UseSource(helper);
  if (!status.ok()) return Fail(status.message());
  if (!helper.fake) return RunMount(helper.mount, kTimeoutMs);
  const auto options = BuildMountOptions(helper.mount);
  return options.ok() ? kExitOk : Fail(options.status().message());
}

}  // namespace prefixfs
