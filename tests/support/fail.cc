#include "tests/support/fail.h"

#include <cstring>

namespace prefixfs::support {

SysFailure::SysFailure(int error_number, const std::string& what)
    : Failure(what + ": " + strerrordesc_np(error_number)), error(error_number) {}

void Fail(const std::string& message) { throw Failure(message); }

void CheckErrno(long result, int error, const std::string& what) {
  int got = errno;
  if (result != -1) Fail(what + ": succeeded, expected " + strerrorname_np(error));
  if (got != error) {
    Fail(what + ": " + strerrorname_np(got) + ", expected " + strerrorname_np(error));
  }
}

}  // namespace prefixfs::support
