// Eight processes do everything at once to the same names, checking whatever they read; then the
// mount must end cleanly, and a sanitized daemon must have had nothing to say.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "cache/base/fd.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"
#include "tests/support/pattern.h"

namespace prefixfs {
namespace {

using namespace support;

constexpr uint64_t kNames = 64;
constexpr int kProcesses = 8;

std::chrono::seconds Duration() {
  const char* seconds = getenv("PREFIXFS_STRESS_SECONDS");
  return std::chrono::seconds(seconds != nullptr ? atoi(seconds) : 30);
}

// A name always has the same size, so any whole version of it can be recognised.
size_t SizeOf(uint64_t name) { return 4096 + name * 12'345; }

class Actor {
 public:
  Actor(std::string root, unsigned id) : root_(std::move(root)), id_(id), random_(id + 1) {}

  void Step() {
    const uint64_t name = random_() % kNames;
    switch (random_() % 12) {
      case 0:
      case 1:
        return Replace(name);
      case 2:
        return CreateInPlace(name);
      case 3:
        return NewVersion(name);
      case 4:
      case 5:
        return ReadWhole(name);
      case 6:
        return ReadMapped(name);
      case 7:
        return Unlink(name);
      case 8:
        return List();
      case 9:
        return OwnFile();
      case 10:
        return OwnDirectory();
      default:
        return Attributes(name);
    }
  }

 private:
  std::string Path(uint64_t name) const { return root_ + "/s/" + std::to_string(name); }
  uint64_t Seed() { return (static_cast<uint64_t>(id_) << 32) + random_(); }

  // Others may unlink the name at any moment.
  Fd OpenIfThere(const std::string& path, int flags) {
    Fd fd(open(path.c_str(), flags | O_CLOEXEC));
    if (!fd.valid() && errno != ENOENT) throw SysFailure(errno, "open " + path);
    return fd;
  }

  static void CheckWhole(std::span<const uint8_t> bytes, uint64_t name, const char* how) {
    const std::string problem = Verify(bytes, SeedOf(bytes), SizeOf(name));
    Check(problem.empty(), std::string(how) + " of name " + std::to_string(name) + ": " + problem);
  }

  void Replace(uint64_t name) {
    const std::string temp = Path(name) + "." + std::to_string(id_) + ".tmp";
    WriteFile(temp, Pattern(SizeOf(name), Seed()));
    Sys(rename(temp.c_str(), Path(name).c_str()), "rename");
  }

  // Written where it stands: whole for every reader only where a writer gets its own version.
  void CreateInPlace(uint64_t name) {
    if (NativeMode()) return Replace(name);
    const Buffer data = Pattern(SizeOf(name), Seed());
    Fd fd(Sys(open(Path(name).c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644), "create"));
    Check(write(fd.get(), data.data(), data.size()) == static_cast<ssize_t>(data.size()), "write");
    Sys(close(fd.Release()), "close");
  }

  void NewVersion(uint64_t name) {
    if (NativeMode()) return Replace(name);
    Fd fd = OpenIfThere(Path(name), O_RDWR);
    if (!fd.valid()) return;
    const Buffer data = Pattern(SizeOf(name), Seed());
    Check(pwrite(fd.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()),
          "pwrite");
    Sys(close(fd.Release()), "close");
  }

  void ReadWhole(uint64_t name) {
    const Fd fd = OpenIfThere(Path(name), O_RDONLY);
    if (!fd.valid()) return;
    Buffer data(SizeOf(name));
    const ssize_t got = Sys(pread(fd.get(), data.data(), data.size(), 0), "pread");
    CheckWhole({data.data(), static_cast<size_t>(got)}, name, "a read");
  }

  void ReadMapped(uint64_t name) {
    const Fd fd = OpenIfThere(Path(name), O_RDONLY);
    if (!fd.valid()) return;
    struct stat st {};
    Sys(fstat(fd.get(), &st), "fstat");
    Check(static_cast<size_t>(st.st_size) == SizeOf(name),
          "fstat says " + std::to_string(st.st_size));
    const int flags = random_() % 2 == 0 ? MAP_SHARED : MAP_PRIVATE;
    void* memory = mmap(nullptr, SizeOf(name), PROT_READ, flags, fd.get(), 0);
    Check(memory != MAP_FAILED, "mmap");
    CheckWhole({static_cast<uint8_t*>(memory), SizeOf(name)}, name, "a mapping");
    munmap(memory, SizeOf(name));
  }

  void Unlink(uint64_t name) {
    if (unlink(Path(name).c_str()) != 0 && errno != ENOENT) throw SysFailure(errno, "unlink");
  }

  void List() {
    DIR* stream = opendir((root_ + "/s").c_str());
    Check(stream != nullptr, "opendir");
    while (const dirent* entry = readdir(stream)) Check(entry->d_type != DT_UNKNOWN, "no d_type");
    closedir(stream);
  }

  // A file of this process alone: grown, cut, appended, read back.
  void OwnFile() {
    const std::string path = root_ + "/own_" + std::to_string(id_);
    const Buffer data = Pattern(40'000, id_ + 1);
    WriteFile(path, data);
    Sys(truncate(path.c_str(), 20'000), "truncate");
    {
      Fd fd(Sys(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC), "open to append"));
      Check(write(fd.get(), data.data() + 20'000, 20'000) == 20'000, "append");
    }
    const std::string problem = VerifyFile(path, id_ + 1, 40'000);
    Check(problem.empty(), problem);
    if (random_() % 2 == 0) Sys(unlink(path.c_str()), "unlink of the own file");
  }

  void OwnDirectory() {
    const std::string path = root_ + "/dir_" + std::to_string(id_);
    Sys(mkdir(path.c_str(), 0755), "mkdir");
    WriteText(path + "/f", "f");
    Sys(symlink("f", (path + "/l").c_str()), "symlink");
    Sys(rename(path.c_str(), (path + ".moved").c_str()), "rename of a directory");
    Check(ReadText(path + ".moved/l") == "f", "the moved directory's file");
    Sys(unlink((path + ".moved/l").c_str()), "unlink");
    Sys(unlink((path + ".moved/f").c_str()), "unlink");
    Sys(rmdir((path + ".moved").c_str()), "rmdir");
  }

  void Attributes(uint64_t name) {
    const std::string path = Path(name);
    const timespec touch[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    if (utimensat(AT_FDCWD, path.c_str(), touch, 0) != 0 && errno != ENOENT)
      throw SysFailure(errno, "utimensat");
    if (setxattr(path.c_str(), "user.k", "v", 1, 0) != 0 && errno != ENOENT)
      throw SysFailure(errno, "setxattr");
    char text[4096];
    // A name that is replaced between the lookup and the call has no location any more.
    if (getxattr(path.c_str(), "user.prefixfs.location", text, sizeof(text)) < 0 &&
        errno != ENOENT && errno != ENODATA) {
      throw SysFailure(errno, "getxattr");
    }
    ReadText(NativeMode() ? "/proc/self/stat" : root_ + "/.prefixfs/stats");
  }

  std::string root_;
  unsigned id_;
  std::minstd_rand random_;
};

// Reports of a sanitized daemon go to files of their own.
Environment SanitizerEnvironment(const TempDir& reports) {
  Environment environment;
  for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
    const char* old = getenv(name);
    environment.emplace_back(
        name, (old != nullptr ? std::string(old) + ":" : "") + "log_path=" + reports / name);
  }
  return environment;
}

TEST(Stress, EverythingAtOnceGivesOnlyWholeBlocksAndACleanEnd) {
  TempDir reports;
  Mount mount({.environment = SanitizerEnvironment(reports)});
  ASSERT_EQ(mkdir((mount.path() + "/s").c_str(), 0755), 0);
  const auto end = std::chrono::steady_clock::now() + Duration();
  std::vector<Child> actors;
  for (unsigned id = 0; id < kProcesses; ++id) {
    actors.emplace_back([&, id] {
      Actor actor(mount.path(), id);
      while (std::chrono::steady_clock::now() < end) actor.Step();
    });
  }
  for (Child& actor : actors) EXPECT_NO_THROW(actor.Join(Duration() + std::chrono::seconds(120)));
  EXPECT_NO_THROW(mount.Stop());
  for (const auto& report : std::filesystem::directory_iterator(reports.path())) {
    ADD_FAILURE() << report.path() << ":\n" << ReadText(report.path());
  }
  const std::string log = mount.Log();
  for (const char* sign : {"Sanitizer", "runtime error", "Assertion", "terminate called"}) {
    EXPECT_EQ(log.find(sign), std::string::npos) << log;
  }
}

}  // namespace
}  // namespace prefixfs
