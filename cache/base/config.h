// Config: everything a mount can be told. Every key has a default; docs/CONFIGURATION.md lists them
// all. Read once at start, constant afterwards, so any thread may read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/status.h"

namespace prefixfs {

// A byte count, or a share of some total that is known only later (the filesystem's size).
struct SizeSpec {
  uint64_t bytes = 0;
  double fraction = 0;  // used when > 0

  uint64_t Of(uint64_t total) const {
    return fraction > 0 ? static_cast<uint64_t>(static_cast<double>(total) * fraction) : bytes;
  }
};

enum class Toggle { kAuto, kOn, kOff };

// Names of one client: RE2 pattern over the path below the mount, with named groups
// `hash`, `model` and `rank` (each optional but `hash`).
struct NamingProfile {
  std::string name;
  std::string pattern;
};

// What the store may do with paths that match a glob (fnmatch without FNM_PATHNAME, over the path
// below the mount, no leading slash).
enum class PathPolicy {
  kBlock,  // the default: provisional until published, versions, evictable
  kPosix,  // an ordinary filesystem: one shared file for all, never evicted
  kKeep,   // directories only: never reaped when empty
};

struct PathRule {
  std::string match;
  PathPolicy policy = PathPolicy::kBlock;
};

// How a handle that a client opened with O_DIRECT is served: see docs/CONFIGURATION.md, o_direct.
struct DirectRule {
  std::string name;  // of the namespace: a top-level directory
  std::string mode;  // auto | any | native
};

struct Config {
  // Storage
  std::vector<std::string> nvme;          // directories, one a drive
  SizeSpec capacity{.fraction = 0.80};    // of the filesystems behind `nvme`, together
  SizeSpec min_free{.fraction = 0.05};    // of each filesystem, left to others
  uint64_t max_inodes = 64ull << 20;      // blocks, directories and links together
  double high_watermark = 0.95;           // of capacity: the background evictor starts
  double low_watermark = 0.90;            // of capacity: and stops
  uint64_t reserve_initial = 8ull << 20;  // reserved at create before a namespace's size is known
  int64_t account_interval_ms = 10;       // how often open writers are measured
  int64_t space_wait_ms = 2000;           // how long a create waits for leased blocks before ENOSPC
  std::string eviction = "lru";
  std::string verify = "first";            // first | always | never: see docs/CONFIGURATION.md
  uint64_t scrub_rate = 16ull << 20;       // bytes a second; 0: no scrubbing
  int64_t scrub_interval_ms = 86'400'000;  // a pass begins at most once in this long
  uint64_t quarantine = 1ull << 30;        // bytes of damaged blocks kept for inspection

  // Kernel
  int64_t lease_ms =
      10'000;  // protection after a positive probe, without the kernel's own timeouts
  int64_t negative_timeout_ms = 1000;  // how long the kernel may remember that a name is absent
  Toggle passthrough = Toggle::kAuto;
  Toggle io_uring = Toggle::kAuto;
  uint64_t io_uring_depth = 32;            // requests under way for each processor
  std::string o_direct = "auto";           // auto | any | native
  std::vector<DirectRule> o_direct_rules;  // namespaces that differ from it, first match wins
  uint64_t max_threads = 16;               // threads that read /dev/fuse
  uint64_t max_workers = 8;                // threads for what may wait
  uint64_t max_backing = 65'536;           // idle backing files the kernel keeps open for us

  // Housekeeping
  int64_t empty_dir_grace_ms =
      600'000;  // an empty directory is reaped after this long without change
  int64_t index_sync_ms = 1000;
  int64_t orphan_grace_ms =
      600'000;  // what stays under a temporary name is removed after this long

  // Names
  std::vector<NamingProfile> naming;  // tried before the built-in ones
  std::vector<PathRule> rules;        // tried before the built-in ones, first match wins

  // Logging
  std::string log = "auto";  // auto | stderr | syslog | a file
  std::string log_level = "info";

  // Bounds on how long a call takes: see docs/GUARANTEES.md
  int64_t lookup_wait_ms = 5;       // a lookup, and whatever else holds a directory
  int64_t deadline_ms = 10'000;     // every other call but those that move bytes
  int64_t request_limit_ms = 5000;  // beyond it the log says what a request waits for

  // The TOML text it all came from, for `.prefixfs/config`; secrets are never in it.
  std::string source;
};

// "100G" (powers of 1024, K M G T with optional B or iB), plain bytes, or "80%".
Result<SizeSpec> ParseSize(std::string_view text);
// "200ms", "10s", "5m", "2h"; plain numbers are refused because their unit is unclear.
Result<int64_t> ParseDurationMs(std::string_view text);

// Reads a TOML file. An unknown key or a value of the wrong type is kInvalid and names file, line
// and key.
Result<Config> LoadConfig(const std::string& path);
// The same from text; `origin` stands in messages where the file's name would.
Result<Config> ParseConfig(std::string_view toml, std::string_view origin);
// Applies one `KEY=VALUE` over `config`: VALUE is TOML, or a bare word taken as a string.
// Dotted keys reach into tables.
Status ApplyOverride(Config& config, std::string_view assignment);
// Checks what single keys cannot: at least one drive and none twice, watermarks in order,
// reserve_initial within an absolute capacity. What depends on the drives' sizes (min_free against
// the slack) is not known here.
Status ValidateConfig(const Config& config);

}  // namespace prefixfs
