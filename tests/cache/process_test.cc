#include "cache/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace prefixfs {
namespace {

TEST(ProcessTest, ThreadsBelongToTheirProcess) {
  Processes processes;
  const ProcessId own = processes.Look(::getpid()).process;
  EXPECT_EQ(own.tgid, ::getpid());
  EXPECT_GT(own.start, 0u);
  std::thread([&] {
    const auto tid = static_cast<pid_t>(::syscall(SYS_gettid));
    ASSERT_NE(tid, ::getpid());
    EXPECT_EQ(processes.Look(tid).process, own);
  }).join();
}

TEST(ProcessTest, ChildrenDescendFromTheirParentAndNotTheOtherWay) {
  Processes processes;
  const ProcessId own = processes.Look(::getpid()).process;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::pause();
    ::_exit(0);
  }
  const ProcessId child = processes.Look(pid).process;
  EXPECT_FALSE(child == own);
  EXPECT_TRUE(processes.Descends(child, own));
  EXPECT_FALSE(processes.Descends(own, child));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST(ProcessTest, CallersOutsideThePidNamespaceAreOne) {
  Processes processes;
  EXPECT_EQ(processes.Look(0).process, ProcessId());
}

TEST(ProcessTest, DeadThreadIsNobodyElse) {
  Processes processes;
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(processes.Look(pid).process, (ProcessId{pid, 0}));
  EXPECT_FALSE(processes.Descends({pid, 0}, processes.Look(::getpid()).process));
}

TEST(ProcessTest, LivingThreadTookNoFatalSignal) {
  EXPECT_FALSE(Processes().Look(::getpid()).signaled);
}

}  // namespace
}  // namespace prefixfs
