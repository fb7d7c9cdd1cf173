// The options that `prefixfs mount` and `prefixfsd` share: what a user may type, and the Config it
// becomes.
//
// A Config is made of, in this order: the defaults, the file (-c), --nvme and --capacity, then
// every --set. Threads: none of this is shared; called once at start.
#pragma once

#include <string>
#include <vector>

#include "cache/base/config.h"
#include "cache/base/status.h"

namespace CLI {
class App;
}

namespace prefixfs {

// Exit codes of every program here, as --help documents them.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// The options as typed.
struct MountArguments {
  std::string config_file;
  std::vector<std::string> nvme;
  std::string capacity;
  std::vector<std::string> set;  // KEY=VALUE
  std::string mount_point;
  bool foreground = false;
  std::string stop_wait = "10s";
  int ready_fd = -1;
};

// The options as understood.
struct MountOptions {
  Config config;            // valid; `nvme` absolute; `source` is the whole configuration in force
  std::string mount_point;  // absolute; links resolved but for the last component
  bool foreground = false;
  int64_t stop_wait_ms =
      0;              // in the foreground: how long SIGTERM waits for those who use the mount
  int ready_fd = -1;  // -1: nobody waits
};

// Registers the options on `app`; they land in `arguments`, which must outlive the parse.
void AddMountOptions(CLI::App& app, MountArguments* arguments);

// kInvalid with a text for the user (file, line and key where it has them). Does not touch the
// mount point.
Result<MountOptions> BuildMountOptions(const MountArguments& arguments);

// The arguments that make prefixfsd come to the same options from any working directory.
// prefixfsd never leaves the foreground; --foreground tells it that somebody keeps it there.
std::vector<std::string> ToArguments(const MountArguments& arguments);

// Parses a whole command line, as prefixfsd does. Prints and exits by itself for --help and
// --version (0) and for a usage error (kExitUsage); a configuration that does not hold is returned.
Result<MountOptions> ParseMountOptions(int argc, char** argv, const char* program);

// `path` made absolute with the links of all but its last component resolved, so that a dead or
// hanging mount at `path` itself is not touched. A trailing slash is dropped.
std::string AbsoluteMountPoint(const std::string& path);

}  // namespace prefixfs
