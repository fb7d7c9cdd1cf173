#include "tools/fsck/fsck.h"

#include "tools/fsck/scan.h"

namespace prefixfs::fsck {

Result<Report> Run(const Options& options) {
  if (options.drives.empty()) return Status(Code::kInvalid, "no drive was given");
  Report report;
  report.repaired = options.repair;
  Scan scan(report);
  scan.checksums = options.checksums;
  scan.drives = PFS_TRY(OpenDrives(options.drives, report));
  PFS_TRY(OpenIndex(scan));
  if (scan.snapshot != nullptr) {
    CheckTables(scan);
    CheckTree(scan);
  }
  // Records first: without an index they say which directories there are.
  PFS_TRY(CheckRecords(scan));
  PFS_TRY(CheckFiles(scan));
  if (options.repair) Repair(scan);
  return report;
}

}  // namespace prefixfs::fsck
