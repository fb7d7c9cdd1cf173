// Naming: hostile paths against the built-in profiles, and patterns and globs of a configuration.
// The input is pattern, glob and path, with a NUL between; an empty pattern is none.
#include <memory>

#include "cache/naming/naming.h"
#include "tests/fuzz/fuzz.h"

namespace prefixfs {
namespace {

// fnmatch goes back over every '*': the operator's own glob may take long, a run of the fuzzer may
// not.
constexpr size_t kMaxGlob = 32, kMaxPath = 4096;

void CheckName(const BlockName& name) {
  FUZZ_CHECK(name.hash.empty() == name.profile.empty());
  FUZZ_CHECK(name.hash.size() <= 64 && name.rank >= -1);
  // What is shown for a hash finds it again.
  FUZZ_CHECK(Naming::HashFromText(Naming::HashToText(name.hash)) == name.hash);
}

void CheckPath(const Naming& naming, std::string_view path) {
  const BlockName name = naming.Parse(path);
  CheckName(name);
  const BlockName again = naming.Parse(path);
  FUZZ_CHECK(again.hash == name.hash && again.model == name.model && again.rank == name.rank);
  for (const bool directory : {false, true}) {
    const PathPolicy policy = naming.PolicyOf(path, directory);
    FUZZ_CHECK(policy != PathPolicy::kKeep || directory);
  }
  const size_t slash = path.rfind('/');
  (void)naming.IsTemporary(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

void CheckHashText(std::string_view text) {
  const std::string hash = Naming::HashFromText(text);
  FUZZ_CHECK(hash.size() <= text.size());
  FUZZ_CHECK(Naming::HashFromText(Naming::HashToText(hash)) == hash);
}

void Check(std::string_view input) {
  static const std::unique_ptr<Naming> builtin = Naming::Make({}, {}).value();
  const std::string pattern(fuzz::TakePart(&input, '\0'));
  const std::string glob(fuzz::TakePart(&input, '\0'));
  const std::string_view path = input.substr(0, kMaxPath);
  CheckPath(*builtin, path);
  CheckHashText(path);
  if (pattern.empty() && glob.empty()) return;
  std::vector<NamingProfile> profiles;
  if (!pattern.empty()) profiles.push_back({"fuzz", pattern});
  std::vector<PathRule> rules;
  if (!glob.empty() && glob.size() <= kMaxGlob) {
    rules = {{glob, PathPolicy::kKeep}, {glob, PathPolicy::kPosix}};
  }
  const auto naming = Naming::Make(profiles, rules);
  if (naming.ok()) {
    CheckPath(**naming, path);
  } else {
    FUZZ_CHECK(naming.status().Is(Code::kInvalid) && !naming.status().message().empty());
  }
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  const std::string hash(64, 'a'), none("\0\0", 2);
  const auto custom = [](const std::string& pattern, const std::string& glob,
                         const std::string& path) { return pattern + '\0' + glob + '\0' + path; };
  return {none + "m_0123456789ab_r3/0ab/cd_g0/" + hash + ".bin_7.tmp",
          none + hash.substr(0, 40) + ".tmp/_layer.safetensors",
          none + hash + "/layer0.safetensors",
          none + hash + ".k_model_2_8_1_0.bin.tmp.1.2.ab",
          none + "ab/" + hash + "_model_1_2_k",
          none + "ab/cd/model%2Fx%402%401%40" + hash + "%40half.kvcache.safetensors.metadata",
          none + "org-SEP-model@2@1@-abcdef@half.pt",
          none + "org-SEP-model@02010201@0a@" + hash + "@salt.data.tmp",
          none + "model_02010201_0a_" + hash + "_salt.bin",
          none + "a/b/model@2@1@" + hash + "@half",
          none + "obj_12_ab-cd.bin",
          custom("(?P<hash>[0-9a-f]+)@(?P<model>.*)@(?P<rank>\\d+)", "a*[b-c]?", "abc@m@1"),
          custom("((((((((((((((((((?P<hash>x", "[[:alpha:]]*", "xyz"),
          custom("(?P<hash>.*)", "*", std::string("a\nb\xff\xfe/..", 8))};
}

}  // namespace prefixfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prefixfs::Check(prefixfs::fuzz::Text(data, size));
  return 0;
}
