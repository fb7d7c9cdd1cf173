// Status and Result: how every fallible call in PrefixFS reports what the world did.
// Status is for the world (a full disk, a damaged record); asserts are for our own bugs.
// No exception crosses a folder. The only translation to errno is fs/errno_of.h.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace prefixfs {

enum class Code {
  kOk,
  kNotFound,       // no such name, block or key
  kExists,         // the name is taken
  kNotEmpty,       // a directory still has entries
  kNotDirectory,   // a path component is no directory
  kIsDirectory,    // a file was asked for
  kStale,          // the incarnation asked for is not the one to use: look the name up again
  kDenied,         // not permitted, whoever asks
  kNoSpace,        // nothing can be evicted to make room
  kRejected,       // a bounded queue or limit is full: not now
  kNoMemory,       // this process may have no more memory
  kNoDescriptors,  // this process, or the system, may open no more files
  kCorrupt,        // a checksum or format does not hold
  kUnavailable,    // a drive or peer is gone
  kTimedOut,
  kInvalid,  // the argument or configuration is wrong
  kUnsupported,
  kTooLong,  // a name or value exceeds its limit
  kIo,       // the operating system reported an error on data
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message = {}) : code_(code), message_(std::move(message)) {}

  // The nearest code for an errno value, with `what` and the system's text as message.
  static Status FromErrno(int error, std::string_view what);

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  bool Is(Code code) const { return code_ == code; }
  const std::string& message() const { return message_; }
  std::string ToString() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status Ok() { return {}; }

std::string_view CodeName(Code code);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }
  Result(Code code, std::string message = {}) : status_(code, std::move(message)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    assert(ok());
    return *value_;
  }
  const T& value() const& {
    assert(ok());
    return *value_;
  }
  T&& value() && {
    assert(ok());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

namespace internal {
inline const Status& StatusOf(const Status& s) { return s; }
template <typename T>
const Status& StatusOf(const Result<T>& r) {
  return r.status();
}
inline void ValueOf(Status&&) {}
template <typename T>
T ValueOf(Result<T>&& r) {
  return std::move(r).value();
}
}  // namespace internal

// The one propagation macro: `T v = PFS_TRY(result);` or `PFS_TRY(status);` returns early on
// failure. The counter keeps the name apart from that of a PFS_TRY inside the expression.
#define PFS_TRY(expression) PFS_TRY_NAMED(PFS_TRY_JOIN(pfs_try_, __COUNTER__), expression)
#define PFS_TRY_JOIN(a, b) PFS_TRY_JOIN2(a, b)
#define PFS_TRY_JOIN2(a, b) a##b
#define PFS_TRY_NAMED(name, expression)                          \
  ({                                                             \
    auto name = (expression);                                    \
    if (!name.ok()) return ::prefixfs::internal::StatusOf(name); \
    ::prefixfs::internal::ValueOf(std::move(name));              \
  })

}  // namespace prefixfs
