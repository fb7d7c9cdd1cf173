// What a drive does that nobody waits for, or not for long; and how it is known that it does
// nothing at all.
#include <spdlog/spdlog.h>

#include <chrono>

#include "cache/base/descriptors.h"
#include "cache/store/drive.h"

namespace prefixfs {
namespace {
// Each stands for a block or directory that was there, so what is queued is bounded anyway.
constexpr size_t kMaxChores = size_t{1} << 32;
}  // namespace

Drive::Drive()
    : spares_([this] { return MakeSpare(); },
              [this](const SpareFile& file) { (void)Unlink(file.block, false).ok(); }) {}

Result<SpareFile> Drive::MakeSpare() {
  SpareFile file{RandomBlockId(), {}};
  file.fd = PFS_TRY(Create(file.block));
  if (Status room = LeavesReserve(file.fd); !room.ok()) {
    (void)Unlink(file.block, false).ok();
    return room;
  }
  return file;
}

void Drive::StartChores() {
  chores_ = std::make_unique<WorkerPool>(1, kMaxChores);
  spares_.Start();
}

void Drive::StopChores() {
  if (chores_ == nullptr) return;
  spares_.Stop();
  chores_->Stop();  // what it is asked to do from now on is done by who asks
}

void Drive::Post(std::function<void()> work) {
  if (chores_ == nullptr || !chores_->Submit(work).ok()) work();
}

void Drive::PostAndWait(std::function<void()> work, int64_t wait_ms) {
  struct Done {
    Mutex mutex;
    CondVar changed;
    bool done PFS_GUARDED_BY(mutex) = false;
  };
  const auto done = std::make_shared<Done>();
  Post([done, work = std::move(work)] {
    work();
    MutexLock lock(done->mutex);
    done->done = true;
    done->changed.NotifyAll();
  });
  if (stalled()) return;
  const Waiting waiting(Wait::kChores, slot());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  MutexLock lock(done->mutex);
  while (!done->done) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) return;
    done->changed.WaitFor(done->mutex, left);
  }
}

void Drive::LookForStall(int64_t now_ns) {
  // Both are looked at, whatever the first says.
  const bool reads_stall = reads_.Look(now_ns), writes_stall = writes_.Look(now_ns);
  const bool stalled = reads_stall || writes_stall;
  if (stalled_.exchange(stalled, std::memory_order_relaxed) == stalled) return;
  if (stalled) {
    spdlog::warn("drive {} does not answer: what needs it waits, new blocks go to others", path_);
  } else {
    spdlog::info("drive {} answers again", path_);
  }
}

}  // namespace prefixfs
