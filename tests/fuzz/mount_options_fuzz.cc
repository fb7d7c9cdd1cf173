// A command line of prefixfsd, one word a line. What is understood must come to the same when it is
// handed on, as `prefixfs mount` does with ToArguments.
#include <CLI/CLI.hpp>
#include <optional>

#include "cache/base/config_keys.h"
#include "tests/fuzz/fuzz.h"
#include "tools/mount_options.h"

namespace prefixfs {
namespace {

constexpr size_t kMaxWords = 12;

std::optional<MountArguments> Parse(const std::vector<std::string>& words) {
  CLI::App app("fuzz", "prefixfsd");
  MountArguments arguments;
  AddMountOptions(app, &arguments);
  app.set_version_flag("--version", "0");
  try {
    // CLI11 takes the words from the back.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError&) {
    return std::nullopt;
  }
  // No file of the machine is read.
  if (!arguments.config_file.empty()) return std::nullopt;
  return arguments;
}

void Check(std::string_view input) {
  std::vector<std::string> words;
  while (!input.empty() && words.size() < kMaxWords) {
    const std::string word(fuzz::TakePart(&input, '\n'));
    words.push_back(word.substr(0, word.find('\0')));  // as execve would hand it over
  }
  const std::optional<MountArguments> arguments = Parse(words);
  if (!arguments) return;
  const Result<MountOptions> options = BuildMountOptions(*arguments);
  if (!options.ok()) {
    FUZZ_CHECK(!options.status().message().empty());
    return;
  }
  FUZZ_CHECK(ValidateConfig(options->config).ok());
  const std::optional<MountArguments> handed_on = Parse(ToArguments(*arguments));
  FUZZ_CHECK(handed_on.has_value());
  const Result<MountOptions> again = BuildMountOptions(*handed_on);
  if (!again.ok()) std::fprintf(stderr, "%s\n", again.status().ToString().c_str());
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->mount_point == options->mount_point && again->ready_fd == options->ready_fd);
  FUZZ_CHECK(again->config.source == options->config.source);
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  return {"--nvme\n/a\n--nvme=/b\n--capacity\n80%\n/mnt/x/",
          "-n\n../a/./b\n--set\nlease=5s\n--set=rule=[{match=\"a\",policy=\"posix\"}]\nmnt",
          "--nvme=/a\n--set\nnamespace.x.policy=keep\n--foreground\n--ready-fd\n5\n--\n-odd",
          "-c\nx.toml\n/mnt",
          "--help",
          "--version"};
}

}  // namespace prefixfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prefixfs::Check(prefixfs::fuzz::Text(data, size));
  return 0;
}
