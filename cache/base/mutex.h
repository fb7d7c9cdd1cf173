// Mutex with Clang's thread-safety annotations
// (https://clang.llvm.org/docs/ThreadSafetyAnalysis.html). The order in which locks are taken is in
// docs/ARCHITECTURE.md.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define PFS_ATTRIBUTE(x) __attribute__((x))
#else
#define PFS_ATTRIBUTE(x)
#endif

#define PFS_CAPABILITY(x) PFS_ATTRIBUTE(capability(x))
#define PFS_SCOPED_CAPABILITY PFS_ATTRIBUTE(scoped_lockable)
#define PFS_GUARDED_BY(x) PFS_ATTRIBUTE(guarded_by(x))
#define PFS_REQUIRES(...) PFS_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define PFS_EXCLUDES(...) PFS_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define PFS_ACQUIRE(...) PFS_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define PFS_TRY_ACQUIRE(...) PFS_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define PFS_RELEASE(...) PFS_ATTRIBUTE(release_capability(__VA_ARGS__))
#define PFS_NO_ANALYSIS PFS_ATTRIBUTE(no_thread_safety_analysis)

namespace prefixfs {

class PFS_CAPABILITY("mutex") Mutex {
 public:
  void lock() PFS_ACQUIRE() { mutex_.lock(); }
  bool try_lock() PFS_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() PFS_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class PFS_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) PFS_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() PFS_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// For a Mutex that try_lock has taken.
class PFS_SCOPED_CAPABILITY AdoptedLock {
 public:
  explicit AdoptedLock(Mutex& mutex) PFS_REQUIRES(mutex) : mutex_(mutex) {}
  ~AdoptedLock() PFS_RELEASE() { mutex_.unlock(); }
  AdoptedLock(const AdoptedLock&) = delete;
  AdoptedLock& operator=(const AdoptedLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits with the Mutex held; the Mutex is held again on return.
class CondVar {
 public:
  void Wait(Mutex& mutex) PFS_REQUIRES(mutex) { cv_.wait(mutex); }
  template <typename Duration>
  bool WaitFor(Mutex& mutex, Duration duration) PFS_REQUIRES(mutex) {
    return cv_.wait_for(mutex, duration) == std::cv_status::no_timeout;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable_any cv_;
};

}  // namespace prefixfs
