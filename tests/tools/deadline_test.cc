#include "tools/deadline.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "cache/base/fd.h"

namespace prefixfs {
namespace {

TEST(WithDeadline, PassesTheAnswerOfTheChild) {
  const std::string big(1 << 20, 'x');
  const auto answer =
      WithDeadline(60'000, [&]() -> Result<std::string> { return big + '\0' + "y"; });
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(*answer, big + '\0' + "y");
}

TEST(WithDeadline, PassesAnErrorWithItsCodeAndText) {
  const auto answer = WithDeadline(60'000, []() -> Result<std::string> {
    return {Code::kUnavailable, "gone"};
  });
  EXPECT_TRUE(answer.status().Is(Code::kUnavailable));
  EXPECT_EQ(answer.status().message(), "gone");
}

TEST(WithDeadline, GivesUpAChildThatHangs) {
  const auto answer = WithDeadline(50, []() -> Result<std::string> {
    while (true) ::pause();
  });
  EXPECT_TRUE(answer.status().Is(Code::kTimedOut));
}

TEST(WithDeadline, ReportsAChildThatDies) {
  const auto answer = WithDeadline(60'000, []() -> Result<std::string> {
    ::signal(SIGABRT, SIG_DFL);
    ::kill(::getpid(), SIGKILL);
    return std::string();
  });
  EXPECT_TRUE(answer.status().Is(Code::kIo));
}

// Otherwise a caller that reads our output until its end would wait for a child nobody can kill.
TEST(WithDeadline, AChildThatHangsKeepsNoPipeOfOursOpen) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // inherited by children
  Fd reader(ends[0]), writer(ends[1]);
  // A grandchild stays behind as a process that SIGKILL does not reach would.
  const auto answer = WithDeadline(60'000, []() -> Result<std::string> {
    const pid_t left = ::fork();
    if (left == 0) {
      ::close(3);  // the child's own pipe
      ::usleep(30'000'000);
      ::_exit(0);
    }
    return std::to_string(left);
  });
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  writer.Reset();
  pollfd poll{.fd = reader.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&poll, 1, 10'000), 1) << "the pipe is still open somewhere";
  EXPECT_TRUE(poll.revents & POLLHUP);
  const pid_t left = std::stoi(*answer);
  EXPECT_EQ(::kill(left, SIGKILL), 0) << "it ended before the pipe was looked at";
}

TEST(ProbeMount, AnOrdinaryFilesystemAnswers) {
  EXPECT_EQ(ProbeMount("/", 60'000), MountHealth::kAnswers);
}

}  // namespace
}  // namespace prefixfs
