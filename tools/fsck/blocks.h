// BlockCheck: one backing file after the other, against the index, or, where there is none, as the
// next start would judge it.
#pragma once

#include <string>

#include "tools/fsck/content.h"
#include "tools/fsck/scan.h"

namespace prefixfs::fsck {

// A backing file as the walk of a drive met it.
struct BackingFile {
  const Drive* drive = nullptr;
  std::string path;  // below the drive
  Block block{};
  bool incoming = false;
};

class BlockCheck {
 public:
  explicit BlockCheck(Scan& scan);

  // Where it ought to be; whatever is found elsewhere is held back and met last, so that of two
  // files of one name the right one counts.
  bool IsInPlace(const BackingFile& file);
  void Check(const BackingFile& file);
  // Once all files were met: inodes without one.
  void CheckMissing();

 private:
  void CheckUnnamed(const BackingFile& file);
  void CheckPlace(const BackingFile& file, const Entry& entry);
  void CheckNamed(const BackingFile& file, const Entry& entry);
  bool CheckSize(const BackingFile& file, const Entry& entry, uint64_t size);
  void CheckHeader(const BackingFile& file, const Record& record, int fd);
  void CheckContent(const BackingFile& file, const Record& record, int fd);
  // Without an index.
  void JudgeAlone(const BackingFile& file);
  std::string WhyDropped(const Record& header, uint64_t size);

  struct Found {
    Kind kind;
    Severity severity = Severity::kError;
    std::string what = {};
    Remedy remedy = Remedy::kNone;
    bool drops_index = false;
  };
  void Add(const BackingFile& file, uint64_t ino, Found found);

  Scan& scan_;
  Progress progress_;
};

}  // namespace prefixfs::fsck
