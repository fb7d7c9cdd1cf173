// engine_replay: writes and reads blocks with the system calls of one client and says how fast it
// went, for one directory or for two side by side.
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/engine/clients.h"
#include "tests/support/fail.h"

namespace prefixfs::engine {
namespace {

struct Options {
  std::string client;
  std::string directory;
  std::string compare;
  uint32_t blocks = 100;
  uint64_t size = 2 << 20;
  bool verify = false;
  bool json = false;
  bool list = false;
  bool keep = false;
};

struct Figures {
  double write_mib_s = 0;
  double read_mib_s = 0;
};

class Progress {
 public:
  Progress(std::string label, uint32_t total)
      : label_(std::move(label)), total_(total), shown_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (shown_) fprintf(stderr, "\r\033[K");
  }
  void Step(uint32_t done) {
    if (!shown_ || done * kWidth / total_ == last_) return;
    last_ = done * kWidth / total_;
    const std::string bar(last_, '#');
    fprintf(stderr, "\r%-40s [%-*s] %3u %%", label_.c_str(), static_cast<int>(kWidth), bar.c_str(),
            static_cast<unsigned>(done * 100ull / total_));
  }

 private:
  static constexpr uint32_t kWidth = 30;
  std::string label_;
  uint32_t total_;
  bool shown_;
  uint32_t last_ = UINT32_MAX;
};

template <typename Work>
double MibPerSecond(const Options& options, const std::string& label, Work work) {
  Progress progress(label, options.blocks);
  std::chrono::duration<double> busy{0};
  for (uint32_t index = 0; index < options.blocks; ++index) {
    busy += work(index);
    progress.Step(index + 1);
  }
  const double mib = static_cast<double>(options.size) * options.blocks / (1 << 20);
  return mib / std::max(busy.count(), 1e-9);
}

// Only the client's own calls are timed, not the making and comparing of bytes.
Figures Replay(const Client& client, const Options& options, const std::string& directory) {
  std::string root = directory + "/engine-replay-XXXXXX";
  if (mkdtemp(root.data()) == nullptr) throw support::SysFailure(errno, "mkdtemp " + root);
  const Place place{root, options.blocks, options.size};
  client.start(place, 0);
  using Clock = std::chrono::steady_clock;
  Buffer data(options.size);
  support::Fill(data.span(), 1);
  Figures figures;
  figures.write_mib_s = MibPerSecond(options, "write " + directory, [&](uint32_t index) {
    if (options.verify) support::Fill(data.span(), index + 1);
    const auto start = Clock::now();
    client.write(place, {0, index}, data);
    return Clock::now() - start;
  });
  figures.read_mib_s = MibPerSecond(options, "read " + directory, [&](uint32_t index) {
    const auto start = Clock::now();
    const bool found = client.probe(place, {0, index});
    const auto block = found ? client.read(place, {0, index}, options.size) : std::nullopt;
    const auto spent = Clock::now() - start;
    support::Check(block.has_value(), "block " + std::to_string(index) + " is absent");
    if (options.verify) {
      const std::string problem = support::Verify(*block, index + 1, options.size);
      support::Check(problem.empty(), "block " + std::to_string(index) + ": " + problem);
    }
    return spent;
  });
  if (!options.keep) std::filesystem::remove_all(root);
  return figures;
}

void PrintText(const Client& client, const Options& options,
               const std::vector<std::string>& directories, const std::vector<Figures>& figures) {
  printf("%s: %u blocks of %llu bytes%s\n", client.title, options.blocks,
         static_cast<unsigned long long>(options.size),
         options.verify ? ", every byte verified" : "");
  printf("  %-40s %14s %14s\n", "directory", "write MiB/s", "read MiB/s");
  for (size_t i = 0; i < figures.size(); ++i) {
    printf("  %-40s %14.0f %14.0f\n", directories[i].c_str(), figures[i].write_mib_s,
           figures[i].read_mib_s);
  }
}

void PrintJson(const Client& client, const Options& options,
               const std::vector<std::string>& directories, const std::vector<Figures>& figures) {
  nlohmann::json out = {{"client", client.name},      {"title", client.title},
                        {"blocks", options.blocks},   {"bytes", options.size},
                        {"verified", options.verify}, {"results", nlohmann::json::array()}};
  for (size_t i = 0; i < figures.size(); ++i) {
    out["results"].push_back({{"directory", directories[i]},
                              {"write_mib_s", figures[i].write_mib_s},
                              {"read_mib_s", figures[i].read_mib_s}});
  }
  printf("%s\n", out.dump(2).c_str());
}

int List() {
  for (const Client& client : Clients()) printf("%-22s %s\n", client.name, client.title);
  return 0;
}

int Main(const Options& options) {
  if (options.list) return List();
  const Client* client = FindClient(options.client);
  if (client == nullptr || options.directory.empty()) {
    fprintf(stderr, "engine_replay: give --client NAME (see --list) and --dir DIR\n");
    return 2;
  }
  if (options.blocks == 0 || options.size < 16'384) {
    fprintf(stderr, "engine_replay: at least one block of at least 16384 bytes\n");
    return 2;
  }
  std::vector<std::string> directories = {options.directory};
  if (!options.compare.empty()) directories.push_back(options.compare);
  std::vector<Figures> figures;
  try {
    for (const std::string& directory : directories)
      figures.push_back(Replay(*client, options, directory));
  } catch (const std::exception& failure) {
    fprintf(stderr, "engine_replay: %s\n", failure.what());
    return 1;
  }
  (options.json ? PrintJson : PrintText)(*client, options, directories, figures);
  return 0;
}

}  // namespace
}  // namespace prefixfs::engine

int main(int argc, char** argv) {
  // Blocks are read into memory that was used before, as an engine's pinned buffers were, not into
  // fresh pages.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  prefixfs::engine::Options options;
  CLI::App app("Writes and reads KV blocks with the system calls of one client, and times them.");
  app.add_option("--client", options.client, "which client's calls (see --list)");
  app.add_option("--dir", options.directory, "directory to work in");
  app.add_option("--compare", options.compare, "a second directory, measured the same way");
  app.add_option("--blocks", options.blocks, "how many blocks")->capture_default_str();
  app.add_option("--size", options.size, "bytes of a block")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_flag("--verify", options.verify, "compare every byte that is read");
  app.add_flag("--json", options.json, "print JSON");
  app.add_flag("--keep", options.keep, "leave the blocks there");
  app.add_flag("--list", options.list, "list the clients");
  CLI11_PARSE(app, argc, argv);
  return prefixfs::engine::Main(options);
}
