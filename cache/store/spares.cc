#include "cache/store/spares.h"

#include <chrono>

namespace prefixfs {

void Spares::Start() { maker_ = std::make_unique<WorkerPool>(1, 1); }

void Spares::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  maker_.reset();
  std::deque<SpareFile> left;
  {
    MutexLock lock(mutex_);
    left.swap(files_);
  }
  for (const SpareFile& file : left) remove_(file);
}

void Spares::Want() {
  if (filling_ || stopping_ || maker_ == nullptr) return;
  filling_ = maker_->Submit([this] { Fill(); }).ok();
}

std::optional<SpareFile> Spares::Take() {
  MutexLock lock(mutex_);
  // In rounds, so that the maker is not woken for each.
  if (files_.size() <= kKept / 2) Want();
  if (files_.empty()) return std::nullopt;
  SpareFile file = std::move(files_.front());
  files_.pop_front();
  return file;
}

Result<SpareFile> Spares::Take(int64_t wait_ms) {
  if (maker_ == nullptr) return make_();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  MutexLock lock(mutex_);
  uint64_t round = rounds_;
  for (;;) {
    if (files_.size() <= kKept / 2) Want();
    if (!files_.empty()) {
      SpareFile file = std::move(files_.front());
      files_.pop_front();
      return file;
    }
    // A round that was under way may have failed for what is over by now: the next one counts.
    if (rounds_ >= round + 2 && !failure_.ok()) return failure_;
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) return Code::kTimedOut;
    made_.WaitFor(mutex_, left);
  }
}

void Spares::Fill() {
  Status status = Ok();
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (files_.size() >= kKept || stopping_ || !status.ok()) {
        filling_ = false;
        ++rounds_;
        failure_ = status;
        made_.NotifyAll();
        return;
      }
    }
    Result<SpareFile> file = Code::kNoMemory;
    try {
      file = make_();
    } catch (const std::bad_alloc&) {
      // It is the status.
    }
    status = file.status();
    if (!file.ok()) continue;
    MutexLock lock(mutex_);
    files_.push_back(std::move(file).value());
    made_.NotifyOne();
  }
}

}  // namespace prefixfs
