"""What the engine works on: an XFS on a loop device over memory, and mounts of PrefixFS with their blocks on it."""

import json
import os
import pathlib

import bench

XFS_BYTES = 2 << 30


class Ground:
    """A context manager. `native` is a directory of the XFS itself, `mount` is PrefixFS."""

    def __init__(self, options, work):
        self.tool = options.build / "tools/prefixfs"
        if not self.tool.exists():
            raise bench.BenchError(f"{self.tool} is not built")
        self.settings = options.set
        self.xfs, self.mount, self.small = work / "xfs", work / "mnt", work / "small"
        self.native = self.xfs / "native"
        self.image = work / "image"
        self.device = None
        for directory in (self.xfs, self.mount, self.small):
            directory.mkdir()

    def __enter__(self):
        try:
            with open(self.image, "wb") as file:
                file.truncate(XFS_BYTES)
            self.device, _ = bench.attach_loop(self.image, 4096)
            bench.call("mkfs.xfs", "-q", "-f", "-K", self.device)
            self.mount_all()
            self.native.mkdir()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.umount_small()
        self.umount_all()
        if self.device:
            bench.call("losetup", "--detach", self.device, quiet=False)
        self.image.unlink(missing_ok=True)

    def mount_all(self):
        bench.call("mount", "-t", "xfs", "-o", "noatime", self.device, self.xfs)
        self.mount_prefixfs("tier", self.mount, XFS_BYTES // 2)

    def umount_all(self):
        self.umount_prefixfs(self.mount)
        if os.path.ismount(self.xfs):
            bench.unmount(self.xfs)

    def mount_prefixfs(self, tier, mount, capacity, *more):
        settings = [argument for value in [*self.settings, *more] for argument in ("--set", value)]
        bench.call(self.tool, "mount", "--nvme", self.xfs / tier, "--capacity", capacity, *settings, mount)

    def umount_prefixfs(self, mount):
        if os.path.ismount(mount):
            bench.call(self.tool, "umount", mount, quiet=False)
        if os.path.ismount(mount):
            bench.unmount(mount)

    def mount_small(self, capacity, *more):
        self.mount_prefixfs("small-tier", self.small, capacity, *more)

    def umount_small(self):
        self.umount_prefixfs(self.small)

    def remount(self):
        """Both filesystems anew: nothing of them is in memory afterwards."""
        self.umount_all()
        self.mount_all()

    def drop_caches(self):
        bench.call("sync", "--file-system", self.xfs)
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")

    @staticmethod
    def statistic(mount, key):
        return json.loads((mount / ".prefixfs/stats").read_text())[key]
