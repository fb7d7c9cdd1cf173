// The configuration: a file's text, and KEY=VALUE assignments over it, one a line behind a line
// "---". Whatever is taken must be said again by FormatConfig in a way that reads back to the same.
#include <utility>

#include "cache/base/config.h"
#include "cache/base/config_keys.h"
#include "tests/fuzz/fuzz.h"

namespace prefixfs {
namespace {

constexpr std::string_view kOverrides = "\n---\n";

void CheckRoundTrip(const Config& config) {
  const std::string text = FormatConfig(config);
  const Result<Config> again = ParseConfig(text, "again");
  if (!again.ok())
    std::fprintf(stderr, "%s\n%s\n", again.status().ToString().c_str(), text.c_str());
  FUZZ_CHECK(again.ok());
  const std::string once_more = FormatConfig(*again);
  if (once_more != text) std::fprintf(stderr, "%s\nbecame\n%s\n", text.c_str(), once_more.c_str());
  FUZZ_CHECK(once_more == text);
  FUZZ_CHECK(again->capacity.fraction == config.capacity.fraction);
  FUZZ_CHECK(again->min_free.fraction == config.min_free.fraction);
  FUZZ_CHECK(again->high_watermark == config.high_watermark);
  FUZZ_CHECK(again->low_watermark == config.low_watermark);
  FUZZ_CHECK(ValidateConfig(*again).ok() == ValidateConfig(config).ok());
}

void Check(std::string_view input) {
  const size_t split = input.find(kOverrides);
  std::string_view assignments = split == std::string_view::npos
                                     ? std::string_view()
                                     : input.substr(split + kOverrides.size());
  Result<Config> parsed = ParseConfig(input.substr(0, split), "fuzz.toml");
  if (!parsed.ok()) FUZZ_CHECK(parsed.status().Is(Code::kInvalid));
  Config config = parsed.ok() ? std::move(parsed).value() : Config();
  if (parsed.ok()) CheckRoundTrip(config);
  if (assignments.empty()) return;
  for (int count = 0; !assignments.empty() && count < 8; ++count) {
    const std::string before = FormatConfig(config);
    const Status applied = ApplyOverride(config, fuzz::TakePart(&assignments, '\n'));
    if (!applied.ok()) FUZZ_CHECK(FormatConfig(config) == before);
  }
  CheckRoundTrip(config);
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  std::vector<std::string> seeds = {FormatConfig(Config()), "capacity = \"0.00000001%\"",
                                    "low_watermark=0.3333333333333333"};
  seeds.push_back(
      "nvme = [\"/a\", '/b']\ncapacity = \"80.5%\"\nhigh_watermark = 0.9\n"
      "[[naming]]\nname = \"mine\"\npattern = '(?P<hash>[0-9a-f]+)\\.kv$'\n"
      "[[rule]]\nmatch = \"config/*\"\npolicy = \"posix\"\n"
      "[namespace.\"a b\"]\npolicy = \"keep\"\no_direct = \"native\"\n");
  seeds.push_back(
      "capacity = 1_000_000_000\n---\nlease=5s\nnamespace.x.policy=block\n"
      "rule=[{match=\"a*\",policy=\"posix\"}]\nnvme=[\"/x\"]\nlog=/var/log/x\n\"lease\"='1s'\n");
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string value = ConfigValueText(Config(), key);
    seeds.push_back("\n---\n" + std::string(key.name) + "=" + value);
  }
  return seeds;
}

}  // namespace prefixfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prefixfs::Check(prefixfs::fuzz::Text(data, size));
  return 0;
}
