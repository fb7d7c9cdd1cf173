// What Control says of the requests under way: as JSON for `prefixfs stat --requests`, and as a
// line for the log.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "fs/control.h"

namespace prefixfs {
namespace {

using Json = nlohmann::ordered_json;

struct Process {
  pid_t pid = 0;  // 0: it is gone, or outside our PID namespace
  std::string command;
};

Process ProcessOf(pid_t tid) {
  Process process;
  if (tid == 0) return process;
  std::ifstream status("/proc/" + std::to_string(tid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Name:\t")) process.command = line.substr(6);
    if (!line.starts_with("Tgid:\t")) continue;
    process.pid = static_cast<pid_t>(std::atoi(line.c_str() + 6));
    break;
  }
  return process;
}

double AgeS(const Requests::Request& request) {
  return static_cast<double>(Clock::Real().MonotonicNs() - request.start_ns) / 1e9;
}

}  // namespace

// Takes no lock that is held over I/O: it has to answer when nothing else does.
std::string Control::RequestsJson(Access& access, size_t most_requests) {
  Json list = Json::array();
  for (const Requests::Request& request : requests_.All()) {
    if (list.size() >= most_requests) break;
    if (!access.root() && request.uid != access.uid()) continue;
    const Process process = ProcessOf(request.tid);
    Json json;
    json["id"] = request.id;
    json["operation"] = OpName(request.op);
    json["age_s"] = AgeS(request);
    json["pid"] = process.pid;
    json["tid"] = request.tid;
    json["command"] = process.command;
    json["uid"] = request.uid;
    json["ino"] = request.ino;
    json["waits_for"] = WaitText(request.wait);
    json["drive"] = access.root() ? cache_.DrivePath(request.drive) : std::string();
    json["answered"] = request.answered;
    list.push_back(std::move(json));
  }
  Json json;
  json["requests"] = std::move(list);
  json["untracked"] = requests_.untracked();
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Control::Describe(const Requests::Request& request) {
  const Process process = ProcessOf(request.tid);
  std::string waits(WaitText(request.wait));
  if (const std::string drive = cache_.DrivePath(request.drive); !drive.empty())
    waits += " (drive " + drive + ")";
  char text[512];
  std::snprintf(
      text, sizeof text,
      "request %llu takes long: %s by pid %d (%s), inode %llu, for %.1f s%s; it waits for %s",
      static_cast<unsigned long long>(request.id), OpName(request.op).data(), process.pid,
      process.command.c_str(), static_cast<unsigned long long>(request.ino), AgeS(request),
      request.answered ? ", was answered at its deadline" : "", waits.c_str());
  return text;
}

}  // namespace prefixfs
