// IndexState: the small file STATE beside the LMDB file that says who used the index last and
// whether they closed it. Private to cache/index.
//
// It is not kept in LMDB because it must be trustworthy when the LMDB file is not: it is replaced
// whole and synced, so "in use" is on the disk before the first unsynced page, and "clean" only
// after the last. A clean state also has the digest of the LMDB file: where that still holds, the
// file is the one that was closed, and need not be checked page by page.
#pragma once

#include <string>

#include "cache/base/status.h"

namespace prefixfs {

struct IndexState {
  std::string boot_id;
  bool clean = false;
  std::string digest;  // DigestOfData as it was at Close; empty if in use or not known
};

// A state that is absent or unreadable is not clean and of no boot. kNoDescriptors if that is not
// known.
Result<IndexState> ReadIndexState(int directory_fd);
Status WriteIndexState(int directory_fd, const IndexState& state);
// Size and XXH3-128 of the whole of data.mdb, as text.
Result<std::string> DigestOfData(int directory_fd);

}  // namespace prefixfs
