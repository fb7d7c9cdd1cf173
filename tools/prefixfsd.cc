// prefixfsd: the daemon behind one mount.
#include <execinfo.h>
#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "cache/cache.h"
#include "fs/session.h"
#include "tools/foreground.h"
#include "tools/log_thread.h"
#include "tools/mount_options.h"
#include "tools/service_manager.h"

namespace prefixfs {
namespace {

// Tells the one who waits on --ready-fd, once.
class Ready {
 public:
  explicit Ready(int fd) : fd_(fd) {}
  void Say(std::string line) {
    if (!fd_.valid()) return;
    for (char& c : line) {
      if (c == '\n') c = ' ';
    }
    line += '\n';
    (void)!::write(fd_.get(), line.data(), line.size());
    fd_.Reset();
  }

 private:
  Fd fd_;
};

bool IsSyslogThere() { return ::access("/dev/log", W_OK) == 0; }

Status StartLog(const MountOptions& options) {
  const Config& config = options.config;
  spdlog::sink_ptr sink;
  // Whoever started the daemon by hand reads stderr, as a service manager does; a detached one has
  // none worth reading.
  const bool detached = !options.foreground && ::getsid(0) == ::getpid();
  if (config.log == "syslog" || (config.log == "auto" && detached && IsSyslogThere())) {
    sink = std::make_shared<spdlog::sinks::syslog_sink_mt>("prefixfsd", 0, LOG_DAEMON, true);
  } else if (config.log == "stderr" || (config.log == "auto" && !detached)) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    const std::string path =
        config.log == "auto" ? config.nvme.front() + "/daemon.log" : config.log;
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    } catch (const spdlog::spdlog_ex& error) {
      return Status(Code::kInvalid, "log = \"" + path + "\": " + error.what());
    }
  }
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("prefixfsd", sink));
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  spdlog::flush_on(spdlog::level::info);
  return Ok();
}

// Every block being written takes a descriptor, so as many as the system gives.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    spdlog::warn("open files stay limited to {}", before);
    return;
  }
  spdlog::info("at most {} open files ({} before)", limit.rlim_cur, before);
}

// DIR/daemon.pid: for `prefixfs umount` and for the message of a second daemon on the same
// directory.
class PidFile {
 public:
  explicit PidFile(const std::string& directory) : path_(directory + "/daemon.pid") {
    std::ofstream(path_) << ::getpid() << '\n';
  }
  ~PidFile() { (void)::unlink(path_.c_str()); }

 private:
  std::string path_;
};

// Null for a daemon that is on its own: for that one a signal is the end at once.
Result<std::unique_ptr<Foreground>> StartForeground(const MountOptions& options) {
  if (!options.foreground) return std::unique_ptr<Foreground>();
  service_manager::TellStarting("opening " + options.config.nvme.front());
  return Foreground::Start(
      options.mount_point, options.stop_wait_ms,
      "serving " + options.mount_point + " from " + options.config.nvme.front());
}

Status Serve(const MountOptions& options, Ready& ready) {
  RaiseDescriptorLimit();
  // What clients ask for is kept in the index; of the daemon's own files none is for others to
  // write.
  ::umask(022);
  std::unique_ptr<Foreground> foreground = PFS_TRY(StartForeground(options));
  std::unique_ptr<Cache> cache = PFS_TRY(Cache::Open(options.config));
  const LogThread log;  // not before the index is checked, for which there may be no other thread
  PidFile pid(options.config.nvme.front());
  Status served = Ok();
  {
    std::unique_ptr<Session> session = PFS_TRY(Session::Mount(*cache, options.mount_point));
    spdlog::info("prefixfsd {} serves {}", PREFIXFS_VERSION, options.mount_point);
    served = session->Run([&] {
      ready.Say("ok");
      if (foreground) foreground->Begin();
    });
    foreground.reset();
  }
  const Status closed = cache->Close();
  return served.ok() ? closed : served;
}

// An exception that unwinds through C, as one in a call_once does, makes glibc load libgcc at that
// moment; where it is for want of memory, that fails and ends the process. So it is loaded now.
void LoadUnwinder() {
  void* frame = nullptr;
  (void)::backtrace(&frame, 1);
}

// What the system refuses while the daemon starts is an error like any other. Later on, requests
// and background threads answer for themselves (cache/base/memory.h), and no thread is needed any
// more.
Status ServeWithin(const MountOptions& options, Ready& ready) {
  try {
    return Serve(options, ready);
  } catch (const std::bad_alloc&) {
    return Status(Code::kNoMemory, "not enough memory to start");
  } catch (const std::system_error& error) {
    return Status(Code::kRejected, std::string("no thread could be started (") + error.what() +
                                       "): raise TasksMax of the service, or ulimit -u");
  }
}

int Main(int argc, char** argv) {
  Result<MountOptions> options = ParseMountOptions(argc, argv, "prefixfsd");
  if (!options.ok()) {
    std::fprintf(stderr, "prefixfsd: %s\n", options.status().message().c_str());
    return kExitUsage;
  }
  LoadUnwinder();
  Ready ready(options->ready_fd);
  Status status = StartLog(*options);
  if (status.ok()) status = ServeWithin(*options, ready);
  if (!status.ok()) {
    spdlog::error("{}", status.ToString());
    ready.Say(status.message().empty() ? status.ToString() : status.message());
    return kExitFailed;
  }
  spdlog::info("unmounted {}", options->mount_point);
  return kExitOk;
}

}  // namespace
}  // namespace prefixfs

int main(int argc, char** argv) { return prefixfs::Main(argc, argv); }
