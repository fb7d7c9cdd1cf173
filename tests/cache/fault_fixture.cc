#include "tests/cache/fault_fixture.h"

#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>

namespace prefixfs {
namespace {

namespace fs = std::filesystem;

// Runs of a scenario that does not try all.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSampled = 12;
#else
constexpr size_t kSampled = 48;
#endif
constexpr size_t kMaxFailures = 8;  // told of one scenario
constexpr unsigned kChildSeconds = 60;
constexpr const char* kXattr = "trusted.prefixfs";
// All that any scenario gives a name.
const char* const kNames[] = {"a", "b", "c", "d/x", "e/x", "config.json", "n", "n.tmp", "m/n"};

// With the attribute that is a block's header.
void CopyDrive(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const auto& entry : fs::recursive_directory_iterator(from)) {
    const fs::path target = to / fs::relative(entry.path(), from);
    if (entry.is_directory()) {
      fs::create_directories(target);
      fs::permissions(target, entry.status().permissions());
      continue;
    }
    fs::copy_file(entry.path(), target);
    char header[4096];
    const ssize_t size = ::getxattr(entry.path().c_str(), kXattr, header, sizeof(header));
    if (size >= 0) ::setxattr(target.c_str(), kXattr, header, static_cast<size_t>(size), 0);
  }
}

const char* EndName(int end) {
  static const char* const kEndNames[] = {"closed", "killed", "went on"};
  return kEndNames[end];
}

}  // namespace

struct FaultTest::Report {
  std::atomic<uint32_t> may_hold[std::size(kNames)];  // a bit a content
  char text[1024];                                    // what the child found wrong
};

const std::string& FaultTest::ContentOfNumber(int number) {
  static const std::vector<std::string> contents = [] {
    std::vector<std::string> made(kContents);
    made[kA] = std::string(8192, 'A');
    made[kB] = std::string(20'000, 'B');
    made[kC] = std::string(5000, 'C');
    made[kX] = std::string(3000, 'X');
    made[kPosix] = std::string(100, 'P');
    made[kNew] = std::string(70'000, 'N');
    made[kAModified] = std::string(100, 'M') + std::string(8092, 'A');
    return made;
  }();
  return contents[static_cast<size_t>(number)];
}

void FaultTest::SetUp() {
  std::string pattern = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : ::testing::TempDir();
  pattern += "prefixfs-test-faults-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  directory_ = pattern;
  void* memory =
      ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  report_ = new (memory) Report;
  spdlog::set_level(spdlog::level::off);
  config_.nvme = {directory_ + "/whole"};
  config_.capacity = {.bytes = 64 << 20};
  config_.min_free = {.bytes = 0};
  config_.reserve_initial = 64 << 10;
  config_.space_wait_ms = 20;
  config_.lease_ms = 0;
  // So that the calls of two runs are the same as far as can be.
  config_.account_interval_ms = 10'000;
  config_.index_sync_ms = 60'000;
  FillTemplate();
}

void FaultTest::TearDown() {
  CacheFixture::TearDown();
  ::munmap(report_, sizeof(Report));
}

void FaultTest::FillTemplate() {
  Start();
  Put("a", ContentOfNumber(kA));
  Put("b", ContentOfNumber(kB));
  Put("c", ContentOfNumber(kC));
  Put("config.json", ContentOfNumber(kPosix));
  Result<Entry> directory = cache_->MakeNode(kRootIno, "d", S_IFDIR | 0755, "", Self());
  ASSERT_TRUE(directory.ok());
  Put("x", ContentOfNumber(kX), directory->inode.ino);
  AwaitChecksums();
  cache_.reset();
  config_.nvme = {directory_ + "/nvme"};
}

// All that can happen to that many calls, in an order that is always the same.
std::vector<FaultTest::Fault> FaultTest::FaultsIn(uint64_t calls) {
  std::vector<Fault> faults;
  for (uint64_t at = 1; at <= calls; ++at) {
    for (const int error : {ENOSPC, EIO, EROFS, EMFILE}) {
      if (!faults::CanFail(at, error)) continue;
      for (const bool from_then_on : {false, true}) {
        faults.push_back({at, error, from_then_on, static_cast<End>(faults.size() % 3)});
      }
    }
  }
  std::shuffle(faults.begin(), faults.end(), std::mt19937(1));
  return faults;
}

FaultTest::Fault FaultTest::ParseFault(const char* text) {
  unsigned at = 0;
  int error = 0, from_then_on = 0, end = 0;
  if (std::sscanf(text, "%u,%d,%d,%d", &at, &error, &from_then_on, &end) != 4) std::abort();
  spdlog::set_level(spdlog::level::debug);
  spdlog::flush_on(spdlog::level::debug);
  return {at, error, from_then_on != 0, static_cast<End>(end)};
}

void FaultTest::Sweep(const Scenario& scenario) {
  if (const std::string wrong = RunOnce(scenario, {}); !wrong.empty()) FAIL() << wrong;
  const uint64_t calls = calls_;
  ASSERT_GT(calls, 3u) << "the calls are not seen";
  std::vector<Fault> faults = FaultsIn(calls);
  const size_t all = faults.size();
  if (std::getenv("PREFIXFS_FULL") == nullptr) faults.resize(std::min(all, kSampled));
  if (const char* one = std::getenv("PREFIXFS_FAULT")) faults = {ParseFault(one)};
  size_t failures = 0;
  for (const Fault& fault : faults) {
    const std::string wrong = RunOnce(scenario, fault);
    if (wrong.empty()) continue;
    ADD_FAILURE() << "call " << fault.at << " of " << calls << ", " << strerrorname_np(fault.error)
                  << " = " << fault.error << (fault.from_then_on ? " from then on" : " once")
                  << ", then " << EndName(static_cast<int>(fault.end))
                  << "; failed: " << faults::WhatFailed() << "\n  " << wrong;
    if (++failures == kMaxFailures) break;
  }
  std::printf("%llu calls, %zu of %zu faults; rounds: %zu\n",
              static_cast<unsigned long long>(calls), faults.size(), all, faults.size());
}

void FaultTest::CopyTemplate() {
  fs::remove_all(directory_ + "/nvme");
  CopyDrive(directory_ + "/whole", directory_ + "/nvme");
  report_->text[0] = '\0';
  for (auto& may : report_->may_hold) may = 1u << kAbsent;
  for (const auto& [name, content] : std::map<std::string, int>{
           {"a", kA}, {"b", kB}, {"c", kC}, {"d/x", kX}, {"config.json", kPosix}}) {
    Now(name, {content});
  }
}

// One bad sector costs one block, whichever read of it finds that out.
void FaultTest::AllowLosses(const Scenario& scenario, const Fault& fault) {
  const std::string failed = faults::WhatFailed();
  const bool unreadable =
      fault.error == EIO && (failed.starts_with("pread") || failed.starts_with("read"));
  if (!unreadable && !scenario.may_lose.contains(fault.error)) return;
  for (const char* name : kNames) Also(name, {kAbsent});
}

std::string FaultTest::RunOnce(const Scenario& scenario, const Fault& fault) {
  CopyTemplate();
  const pid_t pid = ::fork();
  if (pid == 0) Child(scenario, fault);
  int status = 0;
  ::waitpid(pid, &status, 0);
  calls_ = faults::Disarm();
  AllowLosses(scenario, fault);
  if (WIFSIGNALED(status)) return std::string("the child died: ") + strsignal(WTERMSIG(status));
  if (status != 0) return "the child ended with " + std::to_string(WEXITSTATUS(status));
  if (report_->text[0] != '\0') return report_->text;
  Config roomy = config_;
  roomy.capacity = {.bytes = 64 << 20};
  Result<std::unique_ptr<Cache>> cache = Cache::Open(roomy);
  if (!cache.ok()) return "the next start failed: " + cache.status().ToString();
  cache_ = std::move(cache).value();
  std::string wrong = CheckAll();
  cache_.reset();
  return wrong.empty() ? wrong : "after the next start: " + wrong;
}

void FaultTest::Child(const Scenario& scenario, const Fault& fault) {
  ::alarm(kChildSeconds);
  scenario.prepare();
  faults::Arm({directory_, fault.at, fault.error, fault.from_then_on});
  scenario.act();
  // A drive that says EIO or EROFS is given up until the next start, and what it holds is away.
  const bool given_up = fault.error == EIO || fault.error == EROFS;
  if (fault.end == End::kStay && cache_ && !given_up) {
    (void)faults::Disarm();
    AllowLosses(scenario, fault);
    const std::string wrong = CheckAll();
    if (!wrong.empty())
      std::snprintf(report_->text, sizeof(report_->text), "in the same process: %s", wrong.c_str());
  }
  if (fault.end != End::kKill) cache_.reset();
  ::_exit(0);
}

std::string FaultTest::CheckAll() {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    const Result<int> holds = Holds(kNames[i]);
    if (!holds.ok()) return std::string(kNames[i]) + ": " + holds.status().ToString();
    if ((report_->may_hold[i] >> *holds & 1) != 0) continue;
    std::string may;
    for (int content = 0; content < kContents; ++content) {
      if ((report_->may_hold[i] >> content & 1) != 0) may += " " + std::to_string(content);
    }
    return std::string(kNames[i]) + " holds " + std::to_string(*holds) + ", may hold" + may;
  }
  Result<int> fresh = kAbsent;
  // Where something has to be evicted first the cache waits for less long than that may take.
  for (int tries = 0; tries < 100 && fresh.ok() && *fresh == kAbsent; ++tries) {
    if (tries > 0) ::usleep(10'000);
    Write("fresh", kNew);
    fresh = Holds("fresh");
  }
  if (!fresh.ok()) return "a new block: " + fresh.status().ToString();
  return *fresh == kNew ? "" : "a new block holds " + std::to_string(*fresh);
}

Ino FaultTest::InoOf(const std::string& name) {
  Ino parent = kRootIno;
  for (size_t at = 0; at != std::string::npos;) {
    const size_t slash = name.find('/', at);
    parent = Find(name.substr(at, slash - at), Stranger(), parent);
    if (parent == 0) return 0;
    at = slash == std::string::npos ? slash : slash + 1;
  }
  return parent;
}

Result<int> FaultTest::Holds(const std::string& name) {
  for (int round = 0;; ++round) {
    Ino ino = kRootIno;
    for (const auto& part : fs::path(name)) {
      double timeout;
      Result<Entry> entry = cache_->Lookup(ino, part.string(), Stranger(), &timeout);
      if (entry.status().Is(Code::kNotFound)) return kAbsent;
      if (!entry.ok()) return entry.status();
      ino = entry->inode.ino;
    }
    Result<int> holds = Holds(ino);
    if (!holds.status().Is(Code::kStale) || round == 1) return holds;
  }
}

Result<int> FaultTest::Holds(Ino ino) {
  Result<HandlePtr> handle = cache_->Open(ino, O_RDONLY, Stranger(), true);
  if (handle.status().Is(Code::kNotFound)) return kAbsent;
  if (!handle.ok()) return handle.status();
  const Result<Entry> entry = cache_->GetAttributes(ino, handle->get());
  const Result<int> fd = cache_->DataFd(**handle);
  const faults::Exempt client;
  const std::string content = fd.ok() ? ContentOf(**handle) : "";
  cache_->Release(std::move(*handle));
  if (!fd.ok()) return fd.status();
  if (!entry.ok()) return entry.status();
  if (entry->inode.size != content.size())
    return Status(Code::kCorrupt, "a size that is not its own");
  for (int number = kEmpty; number < kContents; ++number) {
    if (content == ContentOfNumber(number)) return number;
  }
  return Status(Code::kCorrupt, "a content that nobody wrote: " + std::to_string(content.size()));
}

void FaultTest::StartOrDie() {
  Start();
  if (!cache_) std::abort();
}

void FaultTest::TryToStart() {
  Result<std::unique_ptr<Cache>> cache = Cache::Open(config_);
  if (cache.ok()) cache_ = std::move(cache).value();
}

void FaultTest::Now(const std::string& name, std::set<int> contents) {
  uint32_t bits = 0;
  for (const int content : contents) bits |= 1u << content;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) report_->may_hold[i] = bits;
  }
}

void FaultTest::Also(const std::string& name, std::set<int> contents) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    for (const int content : contents) {
      if (name == kNames[i]) report_->may_hold[i] |= 1u << content;
    }
  }
}

// The client's own write to the descriptor it has; its bytes do not pass the cache.
Status FaultTest::Store(const Handle& handle, const std::string& content, bool* written) {
  PFS_TRY(cache_->PrepareWrite(handle, content.size(), true));
  const int fd = PFS_TRY(cache_->DataFd(handle));
  const faults::Exempt client;
  *written =
      ::pwrite(fd, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size());
  return Ok();
}

void FaultTest::Write(const std::string& name, int content) {
  const size_t slash = name.rfind('/');
  const Ino parent = slash == std::string::npos ? kRootIno : InoOf(name.substr(0, slash));
  if (parent == 0) return;
  Result<Created> created = Create(name.substr(slash + 1), O_WRONLY | O_EXCL, parent);
  if (!created.ok()) return;
  bool written = false;
  (void)Store(*created->handle, ContentOfNumber(content), &written).ok();
  Also(name, {written ? content : kEmpty});
  const Status flushed = cache_->Flush(*created->handle, Self());
  cache_->Release(std::move(created->handle));
  if (flushed.ok() && written) Now(name, {content});
}

void FaultTest::WriteAndRename(const std::string& name, int content) {
  const std::string temporary = name + ".tmp";
  Result<Created> created = Create(temporary);
  if (!created.ok()) return;
  Also(name, {kEmpty});
  const Status renamed = cache_->Rename(kRootIno, temporary, kRootIno, name, 0, Self());
  bool written = false;
  (void)Store(*created->handle, ContentOfNumber(content), &written).ok();
  for (const std::string& any : {name, temporary}) Also(any, {written ? content : kEmpty});
  const Status flushed = cache_->Flush(*created->handle, Self());
  cache_->Release(std::move(created->handle));
  if (renamed.ok() && flushed.ok()) Now(name, {written ? content : kEmpty});
}

void FaultTest::WriteOver(const std::string& name, int flags, int content) {
  Result<HandlePtr> handle = Open(name, flags, Self());
  if (!handle.ok()) return;
  bool written = false;
  const std::string& whole = ContentOfNumber(content);
  // What is not cut is written over in part only.
  const std::string part = (flags & O_TRUNC) != 0 ? whole : whole.substr(0, 100);
  (void)Store(**handle, part, &written).ok();
  Also(name, {written ? content : kEmpty});
  const Status flushed = cache_->Flush(**handle, Self());
  cache_->Release(std::move(*handle));
  if (flushed.ok() && written) Now(name, {content});
}

void FaultTest::LeaveOpen(const std::string& name, int content) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    StartOrDie();
    Result<Created> created = Create(name + ".tmp");
    bool written = false;
    if (!created.ok() || !Store(*created->handle, ContentOfNumber(content), &written).ok())
      ::_exit(1);
    const Status renamed = cache_->Rename(kRootIno, name + ".tmp", kRootIno, name, 0, Self());
    ::_exit(renamed.ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) std::abort();
  Now(name, {content});
}

}  // namespace prefixfs
