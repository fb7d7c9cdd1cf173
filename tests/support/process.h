// Running external programs without a shell, with a deadline.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace prefixfs::support {

using Environment = std::vector<std::pair<std::string, std::string>>;

struct RunResult {
  int exit_code = -1;  // 128 + signal if a signal ended it
  bool timed_out = false;
  std::string out;  // stdout
  std::string err;  // stderr

  bool ok() const { return exit_code == 0 && !timed_out; }
  std::string Describe() const;
};

// Output goes to anonymous files, so a daemon that keeps the descriptors does not keep us waiting.
// Past the deadline the program is killed. `extra` is added to the environment. Throws only if
// nothing could be started.
RunResult Run(const std::vector<std::string>& argv,
              std::chrono::milliseconds deadline = std::chrono::seconds(60),
              const Environment& extra = {});

// Run, but anything else than exit code 0 is a Failure that shows the program's output. Returns
// stdout.
std::string RunOrFail(const std::vector<std::string>& argv,
                      std::chrono::milliseconds deadline = std::chrono::seconds(60),
                      const Environment& extra = {});

// Waits until `pid` (any process, child or not) is gone; false at the deadline.
bool WaitGone(int pid, std::chrono::milliseconds deadline);

}  // namespace prefixfs::support
