// Failing from any depth of a test helper, in any process of a test. Test code throws, because a
// helper that runs in a child has no other way to stop; gtest reports an exception of the test's
// own process as a failure, and support/child.h carries the message over from children.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>

namespace prefixfs::support {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A system call that answered otherwise than the test needs; keeps errno.
struct SysFailure : Failure {
  SysFailure(int error_number, const std::string& what);
  int error;
};

[[noreturn]] void Fail(const std::string& message);

inline void Check(bool condition, const std::string& message) {
  if (!condition) Fail(message);
}

// Passes a system call's result through, or throws with errno and `what` if it is -1.
template <typename T>
T Sys(T result, const std::string& what) {
  if (result == static_cast<T>(-1)) throw SysFailure(errno, what);
  return result;
}

// Checks that a call failed with `error`. Use: CheckErrno(open(...), ENOENT, "open").
void CheckErrno(long result, int error, const std::string& what);

}  // namespace prefixfs::support
