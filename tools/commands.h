// The subcommands of `prefixfs`, one file each. Each Add function registers its options on `app`
// and a callback that runs the command and leaves its exit code in `*exit_code`. Messages go to
// stderr as "prefixfs: ...", results to stdout.
#pragma once

#include <string>

#include "tools/mount_options.h"

namespace CLI {
class App;
}

namespace prefixfs {

void AddMountCommand(CLI::App& app, int* exit_code);
void AddUmountCommand(CLI::App& app, int* exit_code);
void AddStatCommand(CLI::App& app, int* exit_code);
void AddLocateCommand(CLI::App& app, int* exit_code);
void AddFsckCommand(CLI::App& app, int* exit_code);

// Wrong usage of `prefixfs fsck`, which has the exit codes of fsck(8).
int FsckUsageExitCode();

// What `prefixfs mount` does once its options are parsed. Returns the exit code; with
// `arguments.foreground` it becomes prefixfsd and does not return.
int RunMount(const MountArguments& arguments, int64_t timeout_ms);

// The whole of `mount.prefixfs SOURCE MOUNT [-sfnv] [-o OPTIONS]`, as mount(8) calls it.
int RunMountHelper(int argc, char** argv);

// Prints "prefixfs: TEXT" on stderr and returns kExitFailed.
int Fail(const std::string& text);

// For CLI options: a duration such as 10s, in milliseconds. kInvalid naming `option`.
Result<int64_t> DurationOption(const std::string& option, const std::string& text);

}  // namespace prefixfs
