// The index from outside: where it is, who closed it, whether its file is the one that was closed.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "tools/fsck/scan.h"

namespace prefixfs::fsck {
namespace {

constexpr size_t kMostState = 512;
constexpr size_t kPiece = 1 << 20;

struct State {
  std::string boot, digest;
  bool clean = false;
};

// The kernel's, or what stands in for a reboot in tests, as for the daemon.
std::string BootId() {
  if (const char* given = std::getenv("PREFIXFS_BOOT_ID"); given != nullptr && *given != '\0')
    return given;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// Why the text is no STATE; empty if it is one.
std::string ReadState(std::string text, State* state) {
  const auto line = [&text]() {
    const size_t end = text.find('\n');
    std::string first = text.substr(0, end);
    text = end == text.npos ? "" : text.substr(end + 1);
    return first;
  };
  if (line() != "prefixfs-index-state 1") return "it does not begin as one of version 1";
  const std::string boot = line(), use = line(), digest = line();
  if (!boot.starts_with("boot ")) return "it names no boot";
  if (use != "clean" && use != "in use") return "it says neither clean nor in use";
  if (!digest.empty() && !digest.starts_with("digest ")) return "its fourth line is no digest";
  state->boot = boot.substr(5);
  state->clean = use == "clean";
  state->digest = digest.empty() ? "" : digest.substr(7);
  return "";
}

// "BYTES HEX" of the whole of data.mdb.
Result<std::string> DigestOfData(int index) {
  const Fd fd = PFS_TRY(OpenToRead(index, "data.mdb"));
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::string piece(kPiece, '\0');
  uint64_t bytes = 0;
  for (;;) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "data.mdb");
    if (n == 0) break;
    XXH3_128bits_update(state.get(), piece.data(), static_cast<size_t>(n));
    bytes += static_cast<uint64_t>(n);
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(state.get());
  char text[64];
  std::snprintf(text, sizeof(text), "%llu %016llx%016llx", static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(digest.high64),
                static_cast<unsigned long long>(digest.low64));
  return std::string(text);
}

void AddInfo(Scan& scan, Kind kind, int drive, std::string path, std::string what) {
  scan.report.Add({.kind = kind,
                   .severity = Severity::kInfo,
                   .drive = drive,
                   .path = std::move(path),
                   .what = std::move(what)});
}

Status LockIndex(Scan& scan) {
  Result<Fd> lock = OpenToRead(scan.index_directory.get(), "LOCK");
  if (lock.status().Is(Code::kNotFound)) return Ok();
  if (!lock.ok()) return Ok();  // found again as something foreign
  scan.index_lock = std::move(*lock);
  const Status locked = TakeLock(scan.index_lock.get());
  if (!locked.Is(Code::kRejected)) return locked;
  return {Code::kRejected, scan.drives[0].path + "/index: is in use; unmount first"};
}

// Whether the next start would use the index as it is.
Result<bool> JudgeState(Scan& scan) {
  const int index = scan.index_directory.get();
  State state;
  std::string fault;
  const Result<Fd> file = OpenToRead(index, "STATE");
  if (file.ok()) {
    const Result<std::string> text = ReadWhole(file->get(), kMostState);
    fault = text.ok() ? ReadState(*text, &state) : text.status().message();
  } else {
    fault = file.status().Is(Code::kNotFound) ? "it is missing" : file.status().message();
  }
  if (!fault.empty()) {
    scan.AddToIndex(Kind::kIndexState, 0, "STATE: " + fault);
    return false;
  }
  if (!state.clean && state.boot != BootId()) {
    AddInfo(scan, Kind::kIndexStale, 0, "index", "in use when the system went down");
    return false;
  }
  scan.in_use = !state.clean;
  if (scan.in_use) AddInfo(scan, Kind::kIndexInUse, 0, "index", "in use when the daemon ended");
  if (state.digest.empty()) return true;
  const std::string digest = PFS_TRY(DigestOfData(index));
  if (digest != state.digest) {
    scan.AddToIndex(Kind::kIndexDigest, 0,
                    "data.mdb is " + digest + ", and was closed as " + state.digest);
  }
  return true;
}

// An index of other drives, or one whose making was cut short, is made anew.
bool IsOfTheseDrives(Scan& scan, const Snapshot& snapshot) {
  const std::string name = "pool_uuid";
  const auto sealed = snapshot.Get(Table::kMain, name);
  if (!sealed) {
    AddInfo(scan, Kind::kIndexStale, 0, "index", "its making was cut short");
    return false;
  }
  const auto pool = Unsealed(name, *sealed);
  const std::string& drives = scan.drives[0].file.pool;
  if (!pool || drives.empty() || pool->substr(0, pool->find(' ')) == drives) return true;
  scan.AddToIndex(Kind::kIndexPool, 0,
                  "it is of pool " + std::string(*pool) + ", and the drive of " + drives);
  return false;
}

}  // namespace

Status OpenIndex(Scan& scan) {
  for (const Drive& drive : scan.drives) {
    if (drive.number > 0 && StatBelow(drive.root.get(), "index/data.mdb").ok())
      AddInfo(scan, Kind::kIndexStray, drive.number, "index",
              "only the first drive's is used: is this their order in the configuration?");
  }
  Result<Fd> directory = OpenDirectory(scan.drives[0].root.get(), "index");
  if (!directory.ok()) {
    AddInfo(scan, Kind::kIndexAbsent, 0, "index", directory.status().message());
    return Ok();
  }
  scan.index_directory = std::move(*directory);
  struct stat st {};
  if (::fstat(scan.index_directory.get(), &st) == 0)
    CheckAccess(scan.drives[0], "index", st, 0, scan.report);
  PFS_TRY(LockIndex(scan));
  const Result<struct stat> data = StatBelow(scan.index_directory.get(), "data.mdb");
  if (!data.ok() || data->st_size == 0) {
    AddInfo(scan, Kind::kIndexAbsent, 0, "index", data.ok() ? "data.mdb is empty" : "no data.mdb");
    return Ok();
  }
  const bool used = PFS_TRY(JudgeState(scan));
  if (!used) return Ok();
  Result<std::unique_ptr<Snapshot>> snapshot = Snapshot::Open(scan.index_directory.get());
  if (!snapshot.ok()) {
    if (!snapshot.status().Is(Code::kCorrupt)) return snapshot.status();
    scan.AddToIndex(Kind::kIndexUnreadable, 0, snapshot.status().message());
    return Ok();
  }
  if (IsOfTheseDrives(scan, **snapshot)) scan.snapshot = std::move(*snapshot);
  return Ok();
}

}  // namespace prefixfs::fsck
