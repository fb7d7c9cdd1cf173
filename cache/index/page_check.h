// CheckPages: reads an LMDB 0.9 data file (data version 1) page by page, without LMDB. Private to
// cache/index.
//
// LMDB believes what its pages say about themselves. A damaged header, a page on the free list that
// is in use, or a branch key that sends a search astray would lead it to lose data later, or to
// crash, though a walk over the entries finds nothing wrong. So this follows every tree from its
// root and checks that each page is what and where it says, that keys are in order and within their
// branch's bounds, that no page has two uses, that the free list is well formed, and that both meta
// pages are of the transactions they name (an old one dressed up as new would bring back an old
// index). Page layout: struct MDB_page, MDB_node, MDB_db and MDB_meta of mdb.c in LMDB 0.9.
#pragma once

#include <cstdint>
#include <span>

#include "cache/base/status.h"

namespace prefixfs {

// `file` is the whole data file. kCorrupt with the first finding; kNotFound if nothing was ever
// committed.
Status CheckPages(std::span<const uint8_t> file);

}  // namespace prefixfs
