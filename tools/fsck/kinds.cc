#include "tools/fsck/kinds.h"

#include <cstddef>
#include <iterator>

namespace prefixfs::fsck {
namespace {

constexpr KindText kTexts[] = {
    {"drive-file", "PREFIXFS is missing or damaged"},
    {"drive-pool", "the drive belongs to another pool"},
    {"drive-slot", "the drive has the slot or the uuid of another"},
    {"drive-absent", "a drive that blocks are on was not given"},
    {"layout-missing", "a directory of the layout is missing"},
    {"foreign", "something that is not ours where only our files may be"},
    {"stranger", "something that is not ours beside our files"},
    {"access", "an owner or a mode that lets others in"},
    {"index-absent", "there is no index: the next start makes one"},
    {"index-stale", "the system went down: the next start makes the index anew"},
    {"index-in-use", "the daemon was killed: the next start settles what is left"},
    {"index-stray", "an index on a drive that is not the first"},
    {"index-state", "STATE is missing or damaged"},
    {"index-digest", "data.mdb was changed after a clean stop"},
    {"index-unreadable", "LMDB cannot read the index"},
    {"index-pages", "the pages of data.mdb do not add up"},
    {"index-pool", "the index describes other drives"},
    {"setting", "a setting of the index is missing or damaged"},
    {"next-ino", "an inode number that was never given"},
    {"inode-record", "a record in the index is damaged or breaks a rule"},
    {"root-missing", "there is no root"},
    {"dentry-without-inode", "a directory entry without an inode"},
    {"dentry-missing", "an inode without its directory entry"},
    {"dentry-mismatch", "a directory entry that is not its inode's"},
    {"name-twice", "two inodes with one name"},
    {"child-extra", "an entry in children that is not its inode's"},
    {"child-missing", "an inode that is not in children"},
    {"child-type", "children has another type than the inode"},
    {"hash-extra", "an entry in hashes that is not its inode's"},
    {"hash-missing", "an inode whose hash is not in hashes"},
    {"model-missing", "a model that is not in models"},
    {"model-damaged", "an entry of models is damaged"},
    {"parent-missing", "a parent that is no directory"},
    {"parent-loop", "a directory that is its own ancestor"},
    {"block-twice", "two inodes with one backing file"},
    {"trash-damaged", "an entry of trash is damaged"},
    {"trash-named", "a block in use is marked as trash"},
    {"trash", "removed, and its file not yet: the next start does that"},
    {"block-missing", "the backing file is gone"},
    {"block-orphan", "a backing file that no inode names"},
    {"block-size", "the backing file has another size"},
    {"block-content", "the content does not match its checksum"},
    {"block-unreadable", "the backing file cannot be read"},
    {"block-fan-out", "a backing file in another directory than its name says"},
    {"block-drive", "the backing file is on another drive than its inode says"},
    {"block-copy", "one more file with the name of a backing file"},
    {"block-incoming", "a block that is still in incoming/, where the next start would remove it"},
    {"header-missing", "a block without a header: an index made anew would not have it"},
    {"header-damaged", "a header that is damaged or another block's"},
    {"header-differs", "a header that says something else than the index"},
    {"incoming", "a file in incoming/ that nobody names: the next start removes it"},
    {"unsettled", "a file that was being written: the next start settles it"},
    {"dropped", "a block that the next start cannot keep"},
    {"quarantine", "a file that was put aside, for somebody to look at and remove"},
    {"record-missing", "a directory or link without its file in records/"},
    {"record-orphan", "a file in records/ of an inode that is gone"},
    {"record-damaged", "a file in records/ that is damaged"},
    {"record-differs", "a file in records/ that says something else than the index"},
    {"record-old", "an older file in records/ beside a current one on another drive"},
};
static_assert(std::size(kTexts) == static_cast<size_t>(Kind::kCount));

}  // namespace

const KindText& TextOf(Kind kind) { return kTexts[static_cast<size_t>(kind)]; }

}  // namespace prefixfs::fsck
