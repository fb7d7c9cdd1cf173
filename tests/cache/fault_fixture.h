// A drive that is filled once, and copied for each run: a child process does something while calls
// to the drive fail, then a start without faults must find every block that was published, whole,
// or what the child had replaced it with.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/cache/cache_fixture.h"
#include "tests/cache/fault_injection.h"

namespace prefixfs {

class FaultTest : public CacheFixture {
 protected:
  // What a name may hold, by the number of its content.
  static constexpr int kAbsent = 0, kEmpty = 1, kA = 2, kB = 3, kC = 4, kX = 5, kPosix = 6,
                       kNew = 7, kAModified = 8, kContents = 9;
  static const std::string& ContentOfNumber(int number);

  struct Scenario {
    std::function<void()> prepare;  // in the child, before faults
    std::function<void()> act;      // with faults
    std::set<int> may_lose = {};    // errors upon which any block may be absent afterwards
  };
  enum class End {
    kClose,  // the cache is closed while calls still fail
    kKill,   // the daemon dies
    kStay,   // the faults end, and the same process must go on to work
  };
  struct Fault {
    uint64_t at = 0;
    int error = 0;
    bool from_then_on = false;
    End end = End::kClose;
  };

  void SetUp() override;
  void TearDown() override;
  // Runs the scenario with each of its calls failing: some of them, chosen by a fixed seed, or with
  // PREFIXFS_FULL=1 all. PREFIXFS_FAULT=CALL,ERRNO,0|1,END runs one of them, with the log.
  void Sweep(const Scenario& scenario);
  // The drive as it was filled, and what its names hold.
  void CopyTemplate();
  // What a name holds that it may not, or what does not work; empty if all is well.
  std::string CheckAll();

  // --- in the child ---
  void StartOrDie();
  void TryToStart();
  // The name may hold these from now on.
  void Now(const std::string& name, std::set<int> contents);
  // It may hold these as well.
  void Also(const std::string& name, std::set<int> contents);
  // Creates, writes and closes as an engine does. Says what the name may hold then, by itself.
  void Write(const std::string& name, int content);
  // Renames while it writes, and goes on.
  void WriteAndRename(const std::string& name, int content);
  // Opens what is there and writes over it.
  void WriteOver(const std::string& name, int flags, int content);
  Ino InoOf(const std::string& name);
  // Kills a child of this one that published `name` and still has it open.
  void LeaveOpen(const std::string& name, int content);

 private:
  struct Report;  // shared with the child

  void FillTemplate();
  void AllowLosses(const Scenario& scenario, const Fault& fault);
  static std::vector<Fault> FaultsIn(uint64_t calls);
  static Fault ParseFault(const char* text);
  std::string RunOnce(const Scenario& scenario, const Fault& fault);
  void Child(const Scenario& scenario, const Fault& fault);
  // The number of what a name holds, or why it cannot be read.
  Result<int> Holds(const std::string& name);
  Result<int> Holds(Ino ino);
  Status Store(const Handle& handle, const std::string& content, bool* written);

  Report* report_ = nullptr;
  uint64_t calls_ = 0;
};

}  // namespace prefixfs
