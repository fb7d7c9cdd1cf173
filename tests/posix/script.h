// A case of the POSIX battery: calls made in a directory of its own, and what each of them
// answered.
//
// A case is run once on the mount and once on the filesystem below it; the two transcripts must be
// equal but for the known differences (known_differences.h). So nothing may go into a transcript
// that differs by itself: no inode numbers, no absolute paths, no times but their order.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace prefixfs::posix {

struct Line {
  std::string call;    // the call as the source has it, numbered if a case makes it several times
  std::string answer;  // a number, a text, or the name of errno
};
using Transcript = std::vector<Line>;

class Script {
 public:
  Script() = default;
  ~Script();
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  // The three ways to note an answer; use the macros below, which name the call by its source.
  long Call(std::string_view call, long result);
  int Descriptor(std::string_view call, int fd);  // closed with the script
  void Say(std::string_view call, std::string answer);
  void Say(std::string_view call, long answer) { Say(call, std::to_string(answer)); }

  // What the directory holds: every name below it with type, mode, owner, size and content.
  void State(std::string_view when);

  // Runs `body` in a forked process and takes over what it notes; how it ended is noted if not by
  // itself.
  void InChild(const std::function<void(Script&)>& body);
  // The same as another user with no other groups, umask 022.
  void AsUser(uid_t uid, const std::function<void(Script&)>& body);

  const Transcript& transcript() const { return lines_; }

 private:
  void StateBelow(const std::string& path, std::string_view when);
  Transcript lines_;
  std::vector<int> descriptors_;
};

struct Case {
  std::string name;
  std::function<void(Script&)> body;  // the current directory is the case's own
};
using Cases = std::vector<Case>;

void AddOpenCases(Cases& cases);
void AddNameCases(Cases& cases);
void AddRenameCases(Cases& cases);
void AddPermissionCases(Cases& cases);
void AddAttributeCases(Cases& cases);
void AddDataCases(Cases& cases);
void AddMappingCases(Cases& cases);
void AddProcessCases(Cases& cases);
void AddDirectoryCases(Cases& cases);

constexpr uid_t kNobody = 65534;

// Small things that cases need.
char* Nowhere();                                       // an address that nothing is at
std::string Errno();                                   // the name of errno
void Put(const char* path, std::string_view content);  // made anew; throws
std::string Get(const char* path);                     // the content, or the name of errno
std::string Digest(std::string_view bytes);  // itself if short and printable, else length and hash

}  // namespace prefixfs::posix

// Within a body with a Script `t`.
#define DO(...) t.Call(#__VA_ARGS__, (__VA_ARGS__))
#define FD(...) t.Descriptor(#__VA_ARGS__, (__VA_ARGS__))
#define SAY(...) t.Say(#__VA_ARGS__, (__VA_ARGS__))
