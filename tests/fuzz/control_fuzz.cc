// What a client may ask about a mount, and the names it may ask about: a directory, a file in it
// and the name of an attribute, with a NUL between. Every answer must be JSON, and the metrics must
// be Prometheus text, whatever the names are.
//
// The replies to the kernel are caught here, so this needs no libfuse and no mount.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cache/cache.h"
#include "fs/control.h"
#include "tests/fuzz/fuzz.h"

namespace {
std::string reply;  // of the request under way
}

extern "C" {
int fuse_reply_err(fuse_req_t, int) { return 0; }
int fuse_reply_open(fuse_req_t, const fuse_file_info*) { return 0; }
int fuse_reply_buf(fuse_req_t, const char* text, size_t size) {
  reply.assign(text, size);
  return 0;
}
}

namespace prefixfs {
namespace {

constexpr Ino kControl = Ino{1} << 63;
constexpr int kRunsBetweenStarts = 5000;

struct Daemon {
  Daemon() { Start(); }
  void Start() {
    control.reset();
    cache.reset();
    std::filesystem::remove_all(fuzz::ScratchDirectory() + "/drive");
    spdlog::set_level(spdlog::level::off);
    Config config;
    config.nvme = {fuzz::ScratchDirectory() + "/drive"};
    config.capacity = {.bytes = 64 << 20};
    config.min_free = {.bytes = 0};
    config.reserve_initial = 4096;
    cache = Cache::Open(config).value();
    control = std::make_unique<Control>(*cache, stats, nodes, "/mnt/\"fuzz\"\n");
  }

  OpStats stats;
  Nodes nodes{16, [](int) {}};
  std::unique_ptr<Cache> cache;
  std::unique_ptr<Control> control;
};

std::string ReadControlFile(Daemon& daemon, Ino number) {
  // Neither is looked at by the replies above.
  const auto req = reinterpret_cast<fuse_req_t>(&daemon);
  fuse_file_info info{};
  info.flags = O_RDONLY;
  daemon.control->Open(Request(req, Op::kOpen, daemon.stats), kControl + number, &info);
  daemon.control->Read(Request(req, Op::kRead, daemon.stats), 1 << 20, 0, &info);
  daemon.control->Release(&info);
  return reply;
}

void CheckJson(const std::string& text) {
  if (!nlohmann::json::accept(text)) std::fprintf(stderr, "%s\n", text.c_str());
  FUZZ_CHECK(nlohmann::json::accept(text));
}

// NAME{LABEL="VALUE",...} NUMBER, where VALUE has \\, \" and \n for what they stand for.
bool IsSample(std::string_view line) {
  size_t at = line.find_first_of("{ ");
  if (at == std::string_view::npos || at == 0) return false;
  bool quoted = false;
  for (; at < line.size(); ++at) {
    if (quoted && line[at] == '\\') {
      if (++at == line.size() || std::string_view("\\\"n").find(line[at]) == line.npos)
        return false;
    } else if (line[at] == '"') {
      quoted = !quoted;
    } else if (!quoted && line[at] == ' ') {
      const std::string number(line.substr(at + 1));
      char* end = nullptr;
      (void)std::strtod(number.c_str(), &end);
      return end != number.c_str() && *end == '\0';
    }
  }
  return false;
}

void CheckMetrics(std::string_view text) {
  FUZZ_CHECK(text.ends_with('\n'));
  while (!text.empty()) {
    const std::string_view line = fuzz::TakePart(&text, '\n');
    const bool good = line.starts_with("# ") || IsSample(line);
    if (!good) std::fprintf(stderr, "[%.*s]\n", static_cast<int>(line.size()), line.data());
    FUZZ_CHECK(good);
    // Throws for what is not UTF-8.
    (void)nlohmann::json(std::string(line)).dump();
  }
}

// As a client would: made, written, closed. 0 if the name is refused.
Ino PutFile(Cache& cache, Ino parent, std::string_view name, const Caller& caller) {
  Result<Created> created = cache.Create(parent, name, 0644, O_WRONLY | O_EXCL, caller, true);
  if (!created.ok()) return 0;
  const Ino ino = created->entry.inode.ino;
  FUZZ_CHECK(::pwrite(cache.DataFd(*created->handle).value(), "kv", 2, 0) == 2);
  FUZZ_CHECK(cache.Flush(*created->handle, caller).ok());
  cache.Release(std::move(created->handle));
  return ino;
}

void CheckAnswers(Daemon& daemon, Ino ino, const std::string& attribute) {
  Control& control = *daemon.control;
  if (const auto answer = control.Attribute(kRootIno, attribute); answer.ok()) {
    if (attribute != "tier") CheckJson(*answer);
  }
  if (const auto answer = control.Attribute(ino, attribute); answer.ok() && attribute != "tier")
    CheckJson(*answer);
  if (const auto location = control.Attribute(ino, "location"); location.ok()) {
    CheckJson(*location);
    // The hash that is shown for a block finds that block.
    const std::string hash = nlohmann::json::parse(*location).value("hash", "");
    const std::string found = control.Attribute(kRootIno, "hash." + hash).value();
    FUZZ_CHECK(hash.empty() || found.find("\"ino\":" + std::to_string(ino)) != std::string::npos);
  }
  CheckJson(ReadControlFile(daemon, 1));
  CheckMetrics(ReadControlFile(daemon, 2));
}

void Check(std::string_view input) {
  static Daemon daemon;
  static int runs = 0;
  // Every text of a model stays in the index for good.
  if (++runs % kRunsBetweenStarts == 0) daemon.Start();
  Cache& cache = *daemon.cache;
  const Caller caller = cache.MakeCaller(::getpid(), 0, 0);
  const std::string directory(fuzz::TakePart(&input, '\0'));
  const std::string name(fuzz::TakePart(&input, '\0'));
  const std::string attribute(fuzz::TakePart(&input, '\0'));
  if ((directory + name).find('/') != std::string::npos) return;  // the kernel's part
  double timeout;
  (void)cache.Lookup(kRootIno, directory, caller, &timeout).ok();
  const Result<Entry> made = cache.MakeNode(kRootIno, directory, S_IFDIR | 0755, "", caller);
  const Ino parent = made.ok() ? made->inode.ino : kRootIno;
  const Ino ino = PutFile(cache, parent, name, caller);
  CheckAnswers(daemon, ino == 0 ? parent : ino, attribute);
  if (ino != 0) FUZZ_CHECK(cache.Unlink(parent, name, caller).ok());
  if (made.ok()) FUZZ_CHECK(cache.RemoveDirectory(kRootIno, directory).ok());
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  const std::string hash(64, 'a');
  const auto ask = [](const std::string& directory, const std::string& name,
                      const std::string& attribute) {
    return directory + '\0' + name + '\0' + attribute;
  };
  return {ask("kv", hash + "_model_0_1.bin", "hash." + hash),
          ask("\"\\\n\xff", "org-SEP-m\"o\\del\n@2@1@-abcdef@half.data", "location"),
          ask(".prefixfs", ".prefixfs", "tier"),
          ask("..", ".", "hash."),
          ask("a", "config.json", "hash.-abcdef"),
          ask("b", hash, "drive"),
          ask("b", "model@2@1@" + hash + "@half.pt", "hash." + hash.substr(1))};
}

}  // namespace prefixfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prefixfs::Check(prefixfs::fuzz::Text(data, size));
  return 0;
}
