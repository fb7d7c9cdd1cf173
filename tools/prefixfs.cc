// prefixfs: the tool. Also installed as mount.prefixfs, the helper that mount(8) calls.
#include <CLI/CLI.hpp>
#include <csignal>
#include <string_view>

#include "tools/commands.h"

namespace prefixfs {
namespace {

constexpr const char* kAbout =
    "PrefixFS: a filesystem for the KV cache of LLM inference.\n"
    "Every KV block is a file named by its prefix hash, on local NVMe, within a byte budget.";

constexpr const char* kExamples =
    "Examples:\n"
    "  prefixfs mount --nvme /nvme0 --capacity 80% /mnt/kv\n"
    "  prefixfs mount -c /etc/prefixfs/prefixfs.toml /mnt/kv\n"
    "  prefixfs stat /mnt/kv\n"
    "  prefixfs umount /mnt/kv\n"
    "  prefixfs fsck /nvme0\n"
    "\nExit codes: 0 done, 1 failed, 2 wrong usage. `prefixfs COMMAND --help` tells more.";

int Main(int argc, char** argv) {
  const std::string_view self = argc > 0 ? argv[0] : "prefixfs";
  const std::string_view name = self.substr(self.rfind('/') + 1);
  if (name == "mount.prefixfs") return RunMountHelper(argc, argv);

  CLI::App app(kAbout, "prefixfs");
  int exit_code = kExitOk;
  app.set_version_flag("--version", "prefixfs " PREFIXFS_VERSION);
  app.require_subcommand(1);
  app.footer(kExamples);
  AddMountCommand(app, &exit_code);
  AddUmountCommand(app, &exit_code);
  AddStatCommand(app, &exit_code);
  AddLocateCommand(app, &exit_code);
  AddFsckCommand(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return kExitOk;
    return app.got_subcommand("fsck") ? FsckUsageExitCode() : kExitUsage;
  }
  return exit_code;
}

}  // namespace
}  // namespace prefixfs

int main(int argc, char** argv) {
  // A reader of our output that goes away must not end us between two steps of an unmount.
  std::signal(SIGPIPE, SIG_IGN);
  return prefixfs::Main(argc, argv);
}
