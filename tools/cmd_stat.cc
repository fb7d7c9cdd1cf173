// prefixfs stat: what a mount tells about itself, or the requests under way, as a table or as JSON.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cache/base/units.h"
#include "tools/commands.h"
#include "tools/control.h"

namespace prefixfs {
namespace {

using nlohmann::json;

uint64_t Number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<uint64_t>() : 0;
}

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool Flag(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

std::string Bytes(const json& object, const char* key) { return HumanBytes(Number(object, key)); }

std::string Percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  char text[16];
  std::snprintf(text, sizeof(text), "%.1f%%",
                100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

std::string Uptime(uint64_t seconds) {
  char text[48];
  std::snprintf(text, sizeof(text), "%llud %02llu:%02llu:%02llu",
                static_cast<unsigned long long>(seconds / 86400),
                static_cast<unsigned long long>(seconds / 3600 % 24),
                static_cast<unsigned long long>(seconds / 60 % 60),
                static_cast<unsigned long long>(seconds % 60));
  return text;
}

void Row(const char* name, const std::string& value) {
  std::printf("%-12s %s\n", name, value.c_str());
}

void PrintSummary(const json& stats) {
  const uint64_t used = Number(stats, "used_bytes"), capacity = Number(stats, "capacity_bytes");
  const uint64_t hits = Number(stats, "hits"), misses = Number(stats, "misses");
  const auto count = [&](const char* key) { return std::to_string(Number(stats, key)); };
  Row("mount", Text(stats, "mount"));
  Row("version", Text(stats, "version"));
  std::string daemon = "pid " + count("daemon_pid");
  if (Number(stats, "keeper_pid") != 0) daemon += ", keeper pid " + count("keeper_pid");
  Row("daemon", daemon + ", up " + Uptime(Number(stats, "uptime_s")));
  Row("data path", std::string(Flag(stats, "passthrough") ? "kernel passthrough" : "daemon") +
                       (Flag(stats, "io_uring") ? ", io_uring" : ""));
  Row("capacity", HumanBytes(capacity));
  Row("used", HumanBytes(used) + " (" + Percent(used, capacity) + ")");
  Row("reserved", Bytes(stats, "reserved_bytes"));
  Row("blocks", count("blocks"));
  Row("evicted", count("evicted_blocks") + " blocks, " + Bytes(stats, "evicted_bytes"));
  Row("lookups", std::to_string(hits) + " hits, " + std::to_string(misses) + " misses (" +
                     Percent(hits, hits + misses) + " hits)");
  Row("opens", count("opens"));
  if (Number(stats, "slow_requests") != 0)
    Row("slow", count("slow_requests") + " requests, " + count("late_requests") +
                    " answered at their deadline");
  if (Number(stats, "corrupt_blocks") != 0)
    Row("corrupt", count("corrupt_blocks") + " blocks dropped");
  if (Number(stats, "quarantined_blocks") != 0)
    Row("quarantine",
        count("quarantined_blocks") + " damaged blocks kept, " + Bytes(stats, "quarantined_bytes"));
  if (Number(stats, "unchecked_blocks") != 0)
    Row("unchecked", count("unchecked_blocks") + " blocks");
  if (Flag(stats, "index_rebuilt")) Row("index", "was rebuilt at this start");
}

void PrintDrives(const json& stats) {
  const auto drives = stats.find("drives");
  if (drives == stats.end() || !drives->is_array() || drives->empty()) return;
  std::printf("\n%-32s %4s %12s %12s  %s\n", "drive", "slot", "size", "free", "state");
  for (const auto& drive : *drives) {
    std::string path = Text(drive, "path");
    if (path.empty()) path = "(root may see it)";
    std::printf("%-32s %4llu %12s %12s  %s\n", path.c_str(),
                static_cast<unsigned long long>(Number(drive, "slot")),
                Bytes(drive, "total_bytes").c_str(), Bytes(drive, "free_bytes").c_str(),
                Flag(drive, "failed")    ? "FAILED"
                : Flag(drive, "stalled") ? "DOES NOT ANSWER"
                                         : "ok");
  }
}

void PrintModels(const json& stats) {
  const auto models = stats.find("models");
  if (models == stats.end() || !models->is_array() || models->empty()) return;
  std::printf("\n%-44s %10s %12s\n", "model", "blocks", "bytes");
  for (const auto& model : *models) {
    const std::string name = Text(model, "model");
    std::printf("%-44s %10llu %12s\n", name.empty() ? "(not told by the names)" : name.c_str(),
                static_cast<unsigned long long>(Number(model, "blocks")),
                Bytes(model, "bytes").c_str());
  }
}

void PrintOperations(const json& stats) {
  const auto operations = stats.find("operations");
  if (operations == stats.end() || !operations->is_object()) return;
  std::printf("\n%-16s %12s %8s %9s %9s %9s\n", "operation", "count", "errors", "p50 us", "p99 us",
              "max us");
  for (const auto& [name, op] : operations->items()) {
    if (!op.is_object() || Number(op, "count") == 0) continue;
    const auto number = [&op = op](const char* key) {
      return static_cast<unsigned long long>(Number(op, key));
    };
    std::printf("%-16s %12llu %8llu %9llu %9llu %9llu\n", name.c_str(), number("count"),
                number("errors"), number("p50_us"), number("p99_us"), number("max_us"));
  }
}

// "drive /nvme1: remove", "space", or nothing while it is worked on.
std::string WaitsFor(const json& request) {
  const std::string what = Text(request, "waits_for"), drive = Text(request, "drive");
  if (what == "nothing") return "-";
  return drive.empty() ? what : "drive " + drive + ": " + what;
}

void PrintRequests(const json& answer) {
  const auto requests = answer.find("requests");
  if (requests == answer.end() || !requests->is_array()) return;
  std::printf("%-12s %10s %8s %-16s %10s  %s\n", "operation", "age s", "pid", "command", "inode",
              "waits for");
  for (const auto& request : *requests) {
    const auto age = request.find("age_s");
    std::printf("%-12s %10.3f %8llu %-16s %10llu  %s%s\n", Text(request, "operation").c_str(),
                age != request.end() && age->is_number() ? age->get<double>() : 0.0,
                static_cast<unsigned long long>(Number(request, "pid")),
                Text(request, "command").c_str(),
                static_cast<unsigned long long>(Number(request, "ino")), WaitsFor(request).c_str(),
                Flag(request, "answered") ? " (answered at its deadline)" : "");
  }
}

int RunStat(const std::string& path, bool raw, bool requests) {
  const auto mount = FindPrefixFs(path);
  if (!mount.ok()) return Fail(mount.status().message());
  const auto text = ReadControlFile(*mount, requests ? "requests" : "stats");
  if (!text.ok()) return Fail(text.status().message());
  if (raw) {
    std::printf("%s%s", text->c_str(), text->ends_with('\n') ? "" : "\n");
    return kExitOk;
  }
  const json stats = json::parse(*text, nullptr, false);
  if (!stats.is_object()) return Fail(mount->point + ": the daemon's statistics are not JSON");
  if (requests) {
    PrintRequests(stats);
    return kExitOk;
  }
  PrintSummary(stats);
  PrintDrives(stats);
  PrintModels(stats);
  PrintOperations(stats);
  return kExitOk;
}

}  // namespace

void AddStatCommand(CLI::App& app, int* exit_code) {
  struct Options {
    std::string path;
    bool raw = false;
    bool requests = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("stat", "Show capacity, use, hits, drives, models and latencies");
  command->add_option("MOUNT", options->path, "Mount point, or any path below it")
      ->required()
      ->type_name("");
  command->add_flag("--requests", options->requests,
                    "Show the requests under way: their age, whose they are, what they wait for");
  command->add_flag("--json", options->raw, "Print MOUNT/.prefixfs/stats, or requests, as it is");
  command->footer("Exit codes: 0 shown, 1 no PrefixFS mount or no answer, 2 wrong usage.");
  command->callback([options, exit_code] {
    *exit_code = RunStat(options->path, options->raw, options->requests);
  });
}

}  // namespace prefixfs
