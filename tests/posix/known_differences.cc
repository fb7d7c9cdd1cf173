#include "tests/posix/known_differences.h"

namespace prefixfs::posix {
namespace {

constexpr Reason kReasons[] = {
    {"links",
     "A file has one name. link(2) is refused with EPERM, but for naming what O_TMPFILE made."},
    {"versions",
     "Each writer of a block has a version of its own. Two handles that do not share one open file "
     "description do not see each other's bytes, appends or locks; whichever version is closed or "
     "renamed last has the name. Files that several processes write or lock together belong under "
     "policy posix."},
    {"set_id",
     "The mount is nosuid, so set-user-ID and set-group-ID on a file mean nothing, and a write, or "
     "a "
     "chown that changes nothing, leaves them."},
    {"devices",
     "There are no device files in a cache: mknod of one is refused with EPERM, and "
     "RENAME_WHITEOUT "
     "with EINVAL."},
    {"symlinks", "A symbolic link may have 4,095 bytes, where XFS ends at 1,023."},
    {"not_empty",
     "A directory that is replaced or removed while it has entries answers ENOTEMPTY; POSIX allows "
     "EEXIST too, which is what XFS says for rename."},
    {"attributes",
     "A directory has a link count of 1, which says that it does not count its subdirectories, and "
     "size 0. statfs gives FUSE as the type. STATX_DIOALIGN is not told by FUSE."},
    {"xattrs",
     "Only attributes in the namespace user are kept; trusted, security and system (ACLs too) are "
     "EOPNOTSUPP."},
    {"ioctls",
     "ioctls are answered with ENOTTY, those of a particular filesystem too, and FICLONE with "
     "EOPNOTSUPP; versions use it underneath."},
    {"fallocate",
     "FUSE passes on four modes of fallocate: 0, KEEP_SIZE, PUNCH_HOLE and ZERO_RANGE. Collapsing, "
     "inserting and unsharing are EOPNOTSUPP."},
    {"removed", "A removed directory that a process is still in takes no unnamed files (ENOENT)."},
};

constexpr KnownDifference kKnown[] = {
    {"names.link", "link(\"f\", \"g\")", "0", "EPERM", kEverywhere, "links"},
    {"names.link", "linkat(AT_FDCWD, \"s\", AT_FDCWD, \"hs\", 0)", "0", "EPERM", kEverywhere,
     "links"},
    {"names.link", "st.st_nlink", "2", "1", kEverywhere, "links"},

    {"open.truncate", "Get(\"f\") #2", "'content'", "''", kBlocks, "versions"},
    {"open.twice", "after: 'f'", "file 0644 0:0 size 1 '+'", "file 0644 0:0 size 0 ''", kBlocks,
     "versions"},
    {"processes.append_two_handles", "Tally(\"f\")", "400 whole", "200 whole", kBlocks, "versions"},
    {"processes.flock", "flock(fd, LOCK_EX | LOCK_NB) #2", "EAGAIN", "0", kBlocks, "versions"},
    {"processes.flock", "flock(fd, LOCK_SH | LOCK_NB)", "EAGAIN", "0", kBlocks, "versions"},
    {"processes.record_locks", "SetLock(fd, F_GETLK, F_WRLCK, 0, 10)", "1", "2", kBlocks,
     "versions"},
    {"processes.record_locks", "SetLock(fd, F_SETLK, F_WRLCK, 0, 10) #2", "EAGAIN", "0", kBlocks,
     "versions"},

    {"permissions.setuid", "ModeOf(\"own\") #3", "493", "2541", kEverywhere, "set_id", true},
    {"permissions.setuid", "ModeOf(\"own\") #4", "493", "2541", kEverywhere, "set_id", true},
    {"permissions.setuid", "ModeOf(\"f\") #2", "511", "3583", kEverywhere, "set_id", true},

    {"names.special", "mknod(\"null\", S_IFCHR | 0666, makedev(1, 3))", "0", "EPERM", kEverywhere,
     "devices"},
    {"names.special", "mknod(\"block\", S_IFBLK | 0600, makedev(7, 0))", "0", "EPERM", kEverywhere,
     "devices"},
    {"rename.flags", "Rename2(\"file\", \"new\", RENAME_WHITEOUT)", "0", "EINVAL", kEverywhere,
     "devices"},

    {"names.symlink", "symlink(longest.c_str(), \"longest\")", "ENAMETOOLONG", "0", kEverywhere,
     "symlinks"},
    {"names.symlink", "readlink(\"longest\", text, sizeof text)", "ENOENT", "4095", kEverywhere,
     "symlinks"},
    {"names.symlink", "unlink(\"longest\")", "ENOENT", "0", kEverywhere, "symlinks"},

    {"rename.directories", "rename(\"empty\", \"full\")", "EEXIST", "ENOTEMPTY", kEverywhere,
     "not_empty"},

    {"attributes.links", "st.st_nlink", "3", "1", kEverywhere, "attributes"},
    {"attributes.links", "st.st_size > 0", "1", "0", kEverywhere, "attributes"},
    {"attributes.filesystem", "plain.f_type", "1481003842", "1702057286", kEverywhere,
     "attributes"},
    {"attributes.filesystem", "pathconf(\".\", _PC_LINK_MAX)", "2147483647", "127", kEverywhere,
     "attributes"},
    {"attributes.statx", "(stx.stx_mask & STATX_DIOALIGN) != 0", "1", "0", kEverywhere,
     "attributes"},

    {"attributes.xattr", "setxattr(\"f\", \"trusted.x\", \"1\", 1, 0)", "0", "EOPNOTSUPP",
     kEverywhere, "xattrs"},
    {"attributes.xattr", "getxattr(\"f\", \"trusted.none\", value, sizeof value)", "ENODATA",
     "EOPNOTSUPP", kEverywhere, "xattrs"},
    {"attributes.xattr", "setxattr(\"f\", \"security.x\", \"1\", 1, 0)", "0", "EOPNOTSUPP",
     kEverywhere, "xattrs"},
    {"attributes.xattr", "getxattr(\"f\", \"system.posix_acl_access\", value, sizeof value)",
     "ENODATA", "EOPNOTSUPP", kEverywhere, "xattrs"},

    {"attributes.ioctl", "ioctl(fd, FS_IOC_GETFLAGS, &value)", "0", "ENOTTY", kEverywhere,
     "ioctls"},
    {"attributes.ioctl", "ioctl(other, FICLONE, fd)", "0", "EOPNOTSUPP", kEverywhere, "ioctls"},

    {"data.reshape", "fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, kBlock)", "0", "EOPNOTSUPP",
     kEverywhere, "fallocate"},
    {"data.reshape", "fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, kBlock)", "0", "EOPNOTSUPP",
     kEverywhere, "fallocate"},
    {"data.reshape", "fallocate(fd, FALLOC_FL_UNSHARE_RANGE, 0, kBlock)", "0", "EOPNOTSUPP",
     kEverywhere, "fallocate"},

    {"processes.removed_directory", "open(\".\", O_TMPFILE | O_RDWR, 0600)", "opened", "ENOENT",
     kEverywhere, "removed"},
};

}  // namespace

std::span<const KnownDifference> KnownDifferences() { return kKnown; }
std::span<const Reason> Reasons() { return kReasons; }

}  // namespace prefixfs::posix
