// LoopFs: a filesystem of its own on a loop device, unmounted and detached in the destructor. Needs
// root.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/fd.h"
#include "tests/support/temp_dir.h"

namespace prefixfs::support {

class LoopFs {
 public:
  // `type` is "xfs" (at least 300 MiB) or "ext4". The image is sparse, in /dev/shm where memory
  // allows, else in /tmp. `sector_bytes`: the device's logical block, 512 or 4096. `mkfs`: more
  // arguments for it.
  LoopFs(const std::string& type, uint64_t bytes, uint32_t sector_bytes = 512,
         const std::vector<std::string>& mkfs = {});
  ~LoopFs();
  LoopFs(const LoopFs&) = delete;
  LoopFs& operator=(const LoopFs&) = delete;

  const std::string& path() const { return path_; }
  const std::string& device() const { return device_; }

  // Cuts the filesystem off as a dying device would: every later access is EIO (XFS only).
  void ShutDown();
  // Whoever writes to it waits until Thaw, or until this process is gone.
  void Freeze();
  void Thaw();
  // As the kernel does after an error: later writes fail, reads may go on.
  void RemountReadOnly();
  // Unmount and mount again; the page cache is gone, a shut down filesystem lives again.
  void Remount();

 private:
  void Attach();
  void MountIt();

  std::string type_;
  uint32_t sector_bytes_;
  TempDir mount_dir_;
  TempDir image_dir_;
  std::string image_;
  std::string device_;
  std::string path_;
  pid_t thawer_ = -1;  // a process that thaws it when its pipe says so, or ends
  Fd thaw_;
};

// Sum of st_blocks * 512 of all regular files below `path`, as an outside `du` sees them. Files may
// vanish meanwhile.
uint64_t DiskUsage(const std::string& path);

}  // namespace prefixfs::support
