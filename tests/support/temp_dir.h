// TempDir: a directory of one test, removed with everything in it.
//
// What a killed test leaves behind (mounts, loop devices, directories) is cleared by the next test
// that makes a TempDir: the names carry the process id of their test.
#pragma once

#include <string>

namespace prefixfs::support {

class TempDir {
 public:
  // Under `base`, /tmp if empty.
  explicit TempDir(const std::string& base = {});
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Ends the FUSE connection of `mount` through fusectl, so that nobody can hang on it. Harmless if
// there is none.
void AbortFuse(const std::string& mount);

// Whether something is mounted exactly at `path` (read from mountinfo: never waits for a dead
// daemon).
bool IsMountPoint(const std::string& path);

// Unmounts whatever is mounted at `path` or below, deepest first, aborting FUSE connections.
void UnmountTree(const std::string& path);

}  // namespace prefixfs::support
