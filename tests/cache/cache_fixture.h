// A cache over a temporary directory, and short words for what engines do to it.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "cache/cache.h"

namespace prefixfs {

class CacheFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "prefixfs-cache-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    config_.nvme = {directory_ + "/nvme"};
    config_.capacity = {.bytes = 64 << 20};
    config_.min_free = {.bytes = 0};
    config_.reserve_initial = 1 << 20;
    config_.space_wait_ms = 200;
    config_.lease_ms = 0;
    Start();
  }
  void TearDown() override {
    cache_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Start() {
    Result<std::unique_ptr<Cache>> cache = Cache::Open(config_);
    ASSERT_TRUE(cache.ok()) << cache.status().ToString();
    cache_ = std::move(cache).value();
  }
  void Restart() {
    cache_.reset();
    Start();
  }

  Caller Self() { return cache_->MakeCaller(static_cast<pid_t>(::syscall(SYS_gettid)), 0, 0); }
  // init is no descendant of this test.
  Caller Stranger() { return cache_->MakeCaller(1, 0, 0); }

  Result<Created> Create(std::string_view name, int flags = O_WRONLY | O_EXCL,
                         Ino parent = kRootIno) {
    return cache_->Create(parent, name, 0644, flags, Self(), true);
  }
  void WriteTo(const Handle& handle, const std::string& content, off_t at = 0) {
    Result<int> fd = cache_->DataFd(handle);
    ASSERT_TRUE(cache_->PrepareWrite(handle, content.size(), true).ok());
    fd = cache_->DataFd(handle);
    ASSERT_TRUE(fd.ok());
    ASSERT_EQ(::pwrite(*fd, content.data(), content.size(), at),
              static_cast<ssize_t>(content.size()));
  }
  void CloseFile(HandlePtr handle) {
    EXPECT_TRUE(cache_->Flush(*handle, Self()).ok());
    cache_->Release(std::move(handle));
  }
  void Put(std::string_view name, const std::string& content, Ino parent = kRootIno) {
    Result<Created> created = Create(name, O_WRONLY | O_EXCL, parent);
    ASSERT_TRUE(created.ok()) << created.status().ToString();
    WriteTo(*created->handle, content);
    CloseFile(std::move(created->handle));
  }
  // 0 if absent.
  Ino Find(std::string_view name, const Caller& caller, Ino parent = kRootIno) {
    double timeout;
    Result<Entry> entry = cache_->Lookup(parent, name, caller, &timeout);
    return entry.ok() ? entry->inode.ino : 0;
  }
  // As the kernel does it: open, and once more by name if the answer is ESTALE.
  Result<HandlePtr> Open(std::string_view name, int flags, const Caller& caller) {
    for (int round = 0;; ++round) {
      const Ino ino = Find(name, caller);
      if (ino == 0) return Code::kNotFound;
      Result<HandlePtr> handle = cache_->Open(ino, flags, caller, true);
      if (handle.ok() || !handle.status().Is(Code::kStale) || round == 1) return handle;
    }
  }
  std::string ContentOf(const Handle& handle) {
    Result<int> fd = cache_->DataFd(handle);
    if (!fd.ok()) return "<" + fd.status().ToString() + ">";
    std::string content(1 << 20, '\0');
    const ssize_t got = ::pread(*fd, content.data(), content.size(), 0);
    content.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return content;
  }
  std::string Read(std::string_view name) {
    Result<HandlePtr> handle = Open(name, O_RDONLY, Stranger());
    if (!handle.ok()) return "<" + handle.status().ToString() + ">";
    std::string content = ContentOf(**handle);
    cache_->Release(std::move(handle).value());
    return content;
  }
  void AwaitChecksums() {
    while (cache_->MakeReport().unchecked > 0) ::usleep(1000);
  }

  std::string directory_;
  Config config_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace prefixfs
