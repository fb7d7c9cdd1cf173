#include "fs/session.h"

#include <fuse_lowlevel.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cache/base/memory.h"
#include "fs/filesystem.h"

namespace prefixfs {
namespace {

// libfuse's option parser takes ',' and '\' as its own.
std::string Escape(const std::string& value) {
  std::string escaped;
  for (const char c : value) {
    if (c == ',' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void LogFromLibfuse(fuse_log_level level, const char* format, va_list arguments) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  std::string_view line(text);
  while (line.ends_with('\n')) line.remove_suffix(1);
  spdlog::log(level <= FUSE_LOG_ERR ? spdlog::level::err : spdlog::level::debug, "libfuse: {}",
              line);
}

// Whether requests may come over io_uring. The kernel has to be told so before the mount.
bool AllowRing(Toggle wanted) {
#ifdef PREFIXFS_RING_REPLIES
  const bool safe = true;
#else
  const bool safe = false;  // a reply from another thread than the ring's may get lost
#endif
  if (wanted == Toggle::kOff || (wanted == Toggle::kAuto && !safe)) return false;
  constexpr const char* kSwitch = "/sys/module/fuse/parameters/enable_uring";
  std::fstream file(kSwitch, std::ios::in | std::ios::out);
  char allowed = 'N';
  file >> allowed;
  if (file && allowed == 'N') {
    file.clear();
    file.seekp(0);
    file << 'Y' << std::flush;
    if (file) spdlog::info("{} is set to Y: FUSE may use io_uring", kSwitch);
  }
  if (file) return true;
  if (wanted == Toggle::kOn)
    spdlog::warn("io_uring = on, but {} cannot be set: requests come over /dev/fuse", kSwitch);
  return false;
}

// A thread that libfuse starts for more requests at once, and that finds no memory for its buffer,
// ends the loop of all of them. Requests wait in the kernel meanwhile, so it is begun again. Not
// with the ring, which ends with the loop for good.
int Loop(fuse_session* session, fuse_loop_config* config, bool ring) {
  for (;;) {
    const int error = fuse_session_loop_mt(session, config);
    if (error != -ENOMEM || ring) return error;
    LogNoMemory();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    fuse_session_reset(session);
  }
}

}  // namespace

Result<std::unique_ptr<Session>> Session::Mount(Cache& cache, const std::string& mount_point) {
  fuse_set_log_func(LogFromLibfuse);
  std::unique_ptr<Session> session(new Session);
  session->filesystem_ = std::make_unique<Filesystem>(cache, mount_point);
  session->max_threads_ = static_cast<unsigned>(cache.config().max_threads);
  std::string options = "allow_other,default_permissions,subtype=prefixfs,fsname=" +
                        Escape(cache.config().nvme.front());
  if (AllowRing(cache.config().io_uring)) {
    options += ",io_uring,io_uring_q_depth=" + std::to_string(cache.config().io_uring_depth);
    session->filesystem_->WantRing();
  }
  std::vector<std::string> words{"prefixfsd", "-o", options};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  fuse_args args = FUSE_ARGS_INIT(static_cast<int>(argv.size()), argv.data());
  session->session_ = fuse_session_new(&args, &Filesystem::Operations(), sizeof(fuse_lowlevel_ops),
                                       session->filesystem_.get());
  fuse_opt_free_args(&args);
  if (session->session_ == nullptr)
    return Status(Code::kInvalid, "libfuse refused the session's options");
  if (fuse_session_mount(session->session_, mount_point.c_str()) != 0) {
    fuse_session_destroy(std::exchange(session->session_, nullptr));
    return Status(Code::kUnavailable,
                  "cannot mount on " + mount_point +
                      ": is it a directory, is /dev/fuse there, and are you root?");
  }
  return session;
}

Session::~Session() {
  filesystem_.reset();
  if (session_ != nullptr) fuse_session_destroy(session_);
}

Status Session::Run(std::function<void()> on_ready) {
  filesystem_->Attach(session_, std::move(on_ready));
  if (fuse_set_signal_handlers(session_) != 0)
    return Status(Code::kIo, "cannot set signal handlers");
  fuse_loop_config* loop = fuse_loop_cfg_create();
  fuse_loop_cfg_set_clone_fd(loop, 1);
  fuse_loop_cfg_set_max_threads(loop, max_threads_);
  fuse_loop_cfg_set_idle_threads(loop, max_threads_);
  const int error = Loop(session_, loop, filesystem_->ring());
  fuse_loop_cfg_destroy(loop);
  // Deferred requests are answered before the descriptor goes.
  filesystem_->Drain();
  fuse_remove_signal_handlers(session_);
  fuse_session_unmount(session_);
  return error < 0 ? Status::FromErrno(-error, "the FUSE loop ended") : Ok();
}

}  // namespace prefixfs
