#include "tools/mount_options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>

#include "cache/base/config_keys.h"

namespace prefixfs {
namespace {

namespace fs = std::filesystem;

std::string Absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

// Links resolved as far as the path exists: a drive's directory is made by the daemon if it is
// absent.
std::string CanonicalDirectory(const std::string& path) {
  std::error_code error;
  fs::path canonical = fs::weakly_canonical(Absolute(path), error);
  if (error) return Absolute(path);
  if (!canonical.has_filename() && canonical.has_relative_path())
    canonical = canonical.parent_path();
  return canonical.string();
}

// "KEY = DEFAULT   meaning (type)" for each key, for --help.
std::string KeyHelp() {
  const Config defaults;
  std::string text =
      "Configuration keys (-c FILE as TOML, or --set KEY=VALUE), with their defaults:\n";
  for (const auto& key : ConfigKeys()) {
    const std::string value = ConfigValueText(defaults, key);
    std::string line = "  " + std::string(key.name) + (value.empty() ? "" : " = " + value);
    if (line.size() < 34) line.resize(34, ' ');
    text += line + " " + std::string(key.meaning) + " (" + ConfigTypeText(key) + ")\n";
  }
  text +=
      "Sizes take K, M, G, T (powers of 1024) or %; durations take ms, s, m, h.\n"
      "\nExit codes: 0 done, 1 failed, 2 wrong usage.";
  return text;
}

Status SetCapacity(Config& config, const std::string& text) {
  const Status status = SetConfigValue(config, *FindConfigKey("capacity"), ConfigValue(text));
  if (status.ok()) return status;
  return {status.code(), "--capacity: " + status.message()};
}

}  // namespace

void AddMountOptions(CLI::App& app, MountArguments* arguments) {
  app.add_option("-n,--nvme", arguments->nvme,
                 "Directory on a local drive that holds the blocks; may be repeated")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.add_option("--capacity", arguments->capacity, "Byte budget: 100G, or 80% of the drives")
      ->type_name("SIZE");
  app.add_option("-c,--config", arguments->config_file, "Configuration file in TOML")
      ->type_name("FILE");
  app.add_option("--set", arguments->set, "Set any configuration key; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag(
      "--foreground", arguments->foreground,
      "Stay in the foreground, for a service manager or a terminal; SIGTERM and SIGINT unmount");
  app.add_option("--stop-wait", arguments->stop_wait,
                 "With --foreground: how long a signal waits for those who use the mount, before "
                 "their calls fail; a second signal does not wait")
      ->type_name("DURATION")
      ->capture_default_str();
  app.add_option("--ready-fd", arguments->ready_fd)->group("");
  app.add_option("MOUNT", arguments->mount_point, "Directory to mount on")
      ->required()
      ->type_name("");
  app.footer(KeyHelp());
}

std::string AbsoluteMountPoint(const std::string& path) {
  fs::path absolute = Absolute(path);
  if (!absolute.has_filename() && absolute.has_relative_path()) absolute = absolute.parent_path();
  if (!absolute.has_relative_path()) return absolute.string();
  return (fs::path(CanonicalDirectory(absolute.parent_path().string())) / absolute.filename())
      .string();
}

Result<MountOptions> BuildMountOptions(const MountArguments& arguments) {
  MountOptions options;
  if (!arguments.config_file.empty()) options.config = PFS_TRY(LoadConfig(arguments.config_file));
  if (!arguments.nvme.empty()) options.config.nvme = arguments.nvme;
  if (!arguments.capacity.empty()) PFS_TRY(SetCapacity(options.config, arguments.capacity));
  for (const auto& assignment : arguments.set) PFS_TRY(ApplyOverride(options.config, assignment));
  for (auto& path : options.config.nvme) path = CanonicalDirectory(path);
  PFS_TRY(ValidateConfig(options.config));
  options.config.source = FormatConfig(options.config);
  options.mount_point = AbsoluteMountPoint(arguments.mount_point);
  options.foreground = arguments.foreground;
  const auto stop_wait_ms = ParseDurationMs(arguments.stop_wait);
  if (!stop_wait_ms.ok()) {
    return {Code::kInvalid, "--stop-wait: " + stop_wait_ms.status().message()};
  }
  options.stop_wait_ms = *stop_wait_ms;
  options.ready_fd = arguments.ready_fd;
  return options;
}

std::vector<std::string> ToArguments(const MountArguments& arguments) {
  std::vector<std::string> out;
  if (!arguments.config_file.empty()) {
    out.insert(out.end(), {"--config", Absolute(arguments.config_file)});
  }
  for (const auto& path : arguments.nvme) {
    out.insert(out.end(), {"--nvme", CanonicalDirectory(path)});
  }
  if (!arguments.capacity.empty()) out.insert(out.end(), {"--capacity", arguments.capacity});
  for (const auto& assignment : arguments.set) out.insert(out.end(), {"--set", assignment});
  if (arguments.foreground) {
    out.insert(out.end(), {"--foreground", "--stop-wait", arguments.stop_wait});
  }
  if (arguments.ready_fd >= 0) {
    out.insert(out.end(), {"--ready-fd", std::to_string(arguments.ready_fd)});
  }
  // A mount point never looks like an option: it is absolute.
  out.push_back(AbsoluteMountPoint(arguments.mount_point));
  return out;
}

Result<MountOptions> ParseMountOptions(int argc, char** argv, const char* program) {
  CLI::App app("Serves one PrefixFS mount; started by `prefixfs mount`.", program);
  MountArguments arguments;
  AddMountOptions(app, &arguments);
  app.set_version_flag("--version", std::string(program) + " " PREFIXFS_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? kExitOk : kExitUsage);
  }
  return BuildMountOptions(arguments);
}

}  // namespace prefixfs
