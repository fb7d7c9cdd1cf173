// CheckTables: whether an index's tables agree with each other. Private to cache/index.
//
// inodes is the truth: every record is whole, and but for the root has exactly its own entry in
// dentries and in children, one in hashes if it has a hash, and a parent that is a directory. No
// table has an entry besides.
#pragma once

#include <lmdb.h>

#include "cache/base/status.h"
#include "cache/index/tables.h"

namespace prefixfs {

// Over a read transaction. kCorrupt with the first finding.
Status CheckTables(MDB_txn* txn, NameHash name_hash);

}  // namespace prefixfs
