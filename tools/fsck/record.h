// Record: a second reader of the format that index and headers are in, written from
// docs/DATA_FORMAT.md and not from the daemon's code, so that a mistake in one shows in the other.
#pragma once

#include <string>
#include <string_view>

#include "cache/index/record_format.h"

namespace prefixfs::fsck {

// The texts point into the bytes that were read.
struct Record {
  record_format::Head head{};
  std::string_view name, hash, target;

  bool IsDirectory() const { return S_ISDIR(head.mode); }
  bool IsFile() const { return S_ISREG(head.mode); }
  bool Has(FileState state) const { return head.state == static_cast<uint8_t>(state); }
  bool has_checksum() const { return head.checksum_kind != 0; }
};

// Why the bytes are no record; empty if they are one that keeps every rule.
std::string ReadRecord(std::string_view bytes, Record* record);

// The header, or the file in records/, that belongs to a record of the index.
std::string HeaderOf(std::string_view record);

// Names of the fields in which a header says something else than the index: "name, size". What the
// daemon changes in the index only is not looked at: access times, space on the drive, what a
// directory's children do to its times.
std::string Differences(const Record& index, const Record& header);

}  // namespace prefixfs::fsck
