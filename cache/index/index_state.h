// IndexState: the small file STATE beside the LMDB file that says who used the index last and
// whether they closed it. Private to cache/index.
//
// It is not kept in LMDB because it must be trustworthy when the LMDB file is not: it is replaced
// whole and synced, so "in use" is on the disk before the first unsynced page, and "clean" only
// after the last.
#pragma once

#include <string>

#include "cache/base/status.h"

namespace prefixfs {

struct IndexState {
  std::string boot_id;
  bool clean = false;
};

// A state that is absent or unreadable is not clean and of no boot.
IndexState ReadIndexState(int directory_fd);
Status WriteIndexState(int directory_fd, const IndexState& state);

}  // namespace prefixfs
