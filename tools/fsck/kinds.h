// The kinds of findings: a name that programs can rely on, and a sentence for people. The table in
// docs/FSCK.md lists the same.
#pragma once

#include <cstdint>
#include <span>

namespace prefixfs::fsck {

enum class Severity : uint8_t {
  kInfo,   // normal, or put right by the daemon's next start: nothing is lost or wrong
  kError,  // must not be
};

enum class Kind : uint8_t {
  // Drives.
  kDriveFile,
  kDrivePool,
  kDriveSlot,
  kDriveAbsent,
  kLayoutMissing,
  kForeign,
  kStranger,
  kAccess,
  // The index as a whole.
  kIndexAbsent,
  kIndexStale,
  kIndexInUse,
  kIndexStray,
  kIndexState,
  kIndexDigest,
  kIndexUnreadable,
  kIndexPages,
  kIndexPool,
  kSetting,
  kNextIno,
  // Records and the tables that follow from them.
  kInodeRecord,
  kRootMissing,
  kDentryWithoutInode,
  kDentryMissing,
  kDentryMismatch,
  kNameTwice,
  kChildExtra,
  kChildMissing,
  kChildType,
  kHashExtra,
  kHashMissing,
  kModelMissing,
  kModelDamaged,
  kParentMissing,
  kParentLoop,
  kBlockTwice,
  kTrashDamaged,
  kTrashNamed,
  kTrash,
  // Backing files.
  kBlockMissing,
  kBlockOrphan,
  kBlockSize,
  kBlockContent,
  kBlockUnreadable,
  kBlockFanOut,
  kBlockDrive,
  kBlockCopy,
  kBlockIncoming,
  kHeaderMissing,
  kHeaderDamaged,
  kHeaderDiffers,
  kIncoming,
  kUnsettled,
  kDropped,
  kQuarantine,
  // Files of directories, links and special files.
  kRecordMissing,
  kRecordOrphan,
  kRecordDamaged,
  kRecordDiffers,
  kRecordOld,
  kCount,
};

struct KindText {
  const char* name;
  const char* about;
};

const KindText& TextOf(Kind kind);

}  // namespace prefixfs::fsck
