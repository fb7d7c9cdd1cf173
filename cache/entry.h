// What Cache is asked and answers with: names, open handles, changes of attributes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cache/index/record.h"
#include "cache/open_files.h"
#include "cache/process.h"

namespace prefixfs {

// A name's inode as a client sees it now, and how long the kernel may believe it.
struct Entry {
  Inode inode;
  uint32_t links = 1;  // 0: open, but without a name
  double entry_timeout_s = 0;
  double attr_timeout_s = 0;
};

// One open handle. Give it back with Release, exactly once.
struct Handle {
  FilePtr file;
  bool writer = false;
  ProcessId opener;
};
using HandlePtr = std::unique_ptr<Handle>;

struct Created {
  Entry entry;
  HandlePtr handle;
};

// What setattr asks for; absent members stay.
struct AttributeChange {
  std::optional<uint32_t> mode, uid, gid;
  std::optional<uint64_t> size;
  std::optional<int64_t> atime_ns, mtime_ns;
  bool kill_set_id = false;  // the caller may not keep setuid and setgid bits
  bool touch = false;  // atime set to "now" and nothing else: a touch, which refreshes recency
};

struct DirectoryEntry {
  Entry entry;
  uint64_t cookie = 0;  // where the next List goes on
  bool settled = true;  // false: its name may soon be of another file, so nobody should remember it
};

// Told, without locks held, what happens behind the kernel's back. Calls must return at once.
class CacheListener {
 public:
  virtual ~CacheListener() = default;
  // The inode has no name and no open handle: whatever is held for it can go.
  virtual void OnGone(Ino ino) = 0;
  // A name the kernel may still believe in is absent now (a block failed its checksum).
  virtual void OnInvalid(Ino parent, const std::string& name) = 0;
};

}  // namespace prefixfs
