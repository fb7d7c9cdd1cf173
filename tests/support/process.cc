#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "cache/base/fd.h"
#include "tests/support/fail.h"

namespace prefixfs::support {
namespace {

std::string ReadBack(const Fd& fd) {
  std::string text(static_cast<size_t>(lseek(fd.get(), 0, SEEK_END)), '\0');
  const ssize_t got = pread(fd.get(), text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> MergedEnvironment(const Environment& extra) {
  std::vector<std::string> merged;
  for (const auto& [key, value] : extra) merged.push_back(key + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    bool replaced = false;
    for (const auto& [key, value] : extra) {
      replaced = replaced || std::string_view(*entry).starts_with(key + "=");
    }
    if (!replaced) merged.push_back(*entry);
  }
  return merged;
}

}  // namespace

std::string RunResult::Describe() const {
  return (timed_out ? "timed out" : "exit code " + std::to_string(exit_code)) + "\n" + out + err;
}

bool WaitGone(int pid, std::chrono::milliseconds deadline) {
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) return true;
  pollfd wait{pidfd.get(), POLLIN, 0};
  return poll(&wait, 1, static_cast<int>(deadline.count())) == 1;
}

RunResult Run(const std::vector<std::string>& argv, std::chrono::milliseconds deadline,
              const Environment& extra) {
  Fd out(memfd_create("stdout", MFD_CLOEXEC));
  Fd err(memfd_create("stderr", MFD_CLOEXEC));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.get(), 2);
  std::vector<std::string> words = argv;
  std::vector<std::string> environment = MergedEnvironment(extra);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0].c_str(), &actions, nullptr, Pointers(words).data(),
                                 Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw SysFailure(error, "cannot run " + argv[0]);

  RunResult result;
  if (!WaitGone(pid, deadline)) {
    result.timed_out = true;
    kill(pid, SIGKILL);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = ReadBack(out);
  result.err = ReadBack(err);
  return result;
}

std::string RunOrFail(const std::vector<std::string>& argv, std::chrono::milliseconds deadline,
                      const Environment& extra) {
  RunResult result = Run(argv, deadline, extra);
  if (result.ok()) return result.out;
  std::string line;
  for (const std::string& word : argv) line += word + " ";
  Fail(line + "-> " + result.Describe());
}

}  // namespace prefixfs::support
