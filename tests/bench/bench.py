#!/usr/bin/env python3
"""Sets up the filesystems to compare on one XFS, measures them in turns, prints one table.

All of them work on one XFS filesystem on a loop device over memory, so no disk is in the figures: what differs is
what each puts between the program and XFS. bench_io does the work, the same for all, pinned to one CPU; the systems
take turns in every round, and the table has the medians. The first round warms up and does not count.
"""

import argparse
import contextlib
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
MEMORY = pathlib.Path("/dev/shm")
MOUNT_BOUND_S = 30


class BenchError(Exception):
    """What the user has to know; printed without a traceback."""


def call(*arguments, quiet=True):
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0 and quiet:
        command = " ".join(str(a) for a in arguments)
        raise BenchError(f"{command}: {(result.stderr or result.stdout).strip()}")
    return result.stdout.strip()


def attach_loop(image, sector):
    """The loop device, and whether it bypasses the page cache of the image."""
    for direct in ("on", "off"):
        result = subprocess.run(["losetup", "--find", "--show", f"--direct-io={direct}",
                                 f"--sector-size={sector}", str(image)],
                                capture_output=True, text=True, check=False)
        if result.returncode == 0:
            device = result.stdout.strip()
            flag = call("losetup", "--noheadings", "--output", "DIO", device)
            return device, flag.strip() == "1"
    raise BenchError(f"losetup: {result.stderr.strip()}")


@contextlib.contextmanager
def xfs_in_memory(work, size, sector):
    """Mounts a new XFS over a file in memory; yields its directory and a description."""
    image, mount = work / "image", work / "xfs"
    mount.mkdir()
    with open(image, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)  # no page of memory is found while a clock runs
    with contextlib.ExitStack() as stack:
        device, direct = attach_loop(image, sector)
        stack.callback(call, "losetup", "--detach", device, quiet=False)
        call("mkfs.xfs", "-q", "-f", device)
        call("mount", "-t", "xfs", "-o", "noatime", device, mount)
        stack.callback(unmount, mount)
        yield mount, (f"XFS on a loop device over tmpfs, direct-io {'on' if direct else 'off'}, sectors of "
                      f"{sector} B")


def unmount(mount):
    """Waits for stragglers for a few seconds, then lets go lazily rather than leave a mount behind."""
    for _ in range(25):
        if subprocess.run(["umount", str(mount)], capture_output=True, check=False).returncode == 0:
            return
        if not os.path.ismount(mount):
            return
        time.sleep(0.2)
    call("umount", "--lazy", mount, quiet=False)


@contextlib.contextmanager
def native(backing, _work, _options):
    yield backing


@contextlib.contextmanager
def passthrough_hp(backing, work, _options, *arguments, ring=False):
    program = TOP / "build/deps/libfuse/bin/passthrough_hp"
    if not program.exists():
        raise BenchError("absent: libfuse is the system's own, which comes without its examples")
    mount = work / (backing.name + ".mnt")
    mount.mkdir()
    with open(work / "passthrough_hp.log", "wb") as log:
        process = subprocess.Popen([program, "--foreground", *arguments, backing, mount], stdout=log, stderr=log,
                                   env={**os.environ, "FUSE_URING_ENABLE": "1" if ring else "0"})
    try:
        deadline = time.monotonic() + MOUNT_BOUND_S
        while not os.path.ismount(mount):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError("did not mount: " + (work / "passthrough_hp.log").read_text().strip())
            time.sleep(0.05)
        yield mount
    finally:
        unmount(mount)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def prefixfs(backing, work, options, *more):
    tool = options.build / "tools/prefixfs"
    if not tool.exists():
        raise BenchError(f"absent: {tool} is not built")
    mount = work / (backing.name + ".mnt")
    mount.mkdir()
    settings = [argument for value in [*options.set, *more] for argument in ("--set", value)]
    call(tool, "mount", "--nvme", backing, "--capacity", options.image_size // 2, *settings, mount)
    try:
        yield mount
    finally:
        call(tool, "umount", mount, quiet=False)
        if os.path.ismount(mount):
            unmount(mount)


@contextlib.contextmanager
def passthrough_hp_ring(backing, work, options):
    switch = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
    if not switch.exists():
        raise BenchError("absent: this kernel has no FUSE over io_uring")
    switch.write_text("Y")  # as the daemon of PrefixFS does
    with passthrough_hp(backing, work, options, ring=True) as mount:
        yield mount


@contextlib.contextmanager
def passthrough_hp_served(backing, work, options):
    with passthrough_hp(backing, work, options, "--nopassthrough") as mount:
        yield mount


@contextlib.contextmanager
def prefixfs_served(backing, work, options):
    with prefixfs(backing, work, options, "passthrough=off") as mount:
        yield mount


SYSTEMS = {"native XFS": native, "passthrough_hp": passthrough_hp, "passthrough_hp, io_uring": passthrough_hp_ring,
           "PrefixFS": prefixfs}
# As on a kernel without passthrough. The first is what the others are compared with.
SERVED = {"passthrough_hp --nopassthrough": passthrough_hp_served, "PrefixFS, passthrough off": prefixfs_served}
SERVED_MEASURES = ("read_hot", "read_direct", "write_2m", "odd_small", "odd_large")


class Bench:
    def __init__(self, options, backing, directories, base, only=None):
        self.options = options
        self.backing = backing
        self.directories = directories
        self.program = options.build / "tests/bench/bench_io"
        lines = call(self.program, "--list").splitlines()
        self.base = base
        self.measures = [line.split("\t") for line in lines]
        if only:
            self.measures = [m for m in self.measures if m[0] in only]
        self.figures = {name: {m[0]: [] for m in self.measures} for name in directories}

    def bench_io(self, directory, *arguments):
        return call(self.program, "--dir", directory, "--cpu", self.options.cpu,
                    "--names", self.options.names, "--write-bytes", self.options.write_bytes,
                    *arguments)

    def prepare(self):
        for directory in self.directories.values():
            self.bench_io(directory, "--prepare")
        self.settle()

    def settle(self):
        call("sync", "--file-system", self.backing)

    def forget_names(self):
        """Drops the kernel's names and inodes of every filesystem, and lets the daemons hear of it."""
        self.settle()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")
        time.sleep(0.5)

    def round(self, number, progress):
        names = list(self.directories)
        turn = number % len(names)
        for measure, _title, _unit, cold in self.measures:
            for name in names[turn:] + names[:turn]:
                if cold == "1":
                    self.forget_names()
                figure = float(self.bench_io(self.directories[name], "--measure", measure))
                if number > 0:
                    self.figures[name][measure].append(figure)
                self.settle()
                progress()

    def run(self):
        total = (self.options.rounds + 1) * len(self.measures) * len(self.directories)
        done = 0

        def progress():
            nonlocal done
            done += 1
            show_progress(done, total)

        for number in range(self.options.rounds + 1):
            self.round(number, progress)

    def median(self, name, measure):
        return statistics.median(self.figures[name][measure])


def show_progress(done, total):
    if not sys.stderr.isatty():
        return
    filled = 40 * done // total
    end = "\n" if done == total else ""
    print(f"\r[{'#' * filled}{'.' * (40 - filled)}] {done}/{total}", end=end, file=sys.stderr, flush=True)


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def cells_of(bench, measure, unit):
    """The figures of one row; behind each but the base, its ratio to that: above 1 is better."""
    cells = []
    base = bench.median(bench.base, measure) if bench.base in bench.directories else None
    for name in bench.directories:
        value = bench.median(name, measure)
        text = f"{value:.1f}"
        if base and name != bench.base:
            ratio = value / base if unit == "GiB/s" else base / value
            text += f" ({ratio:.2f}x)"
        cells.append(text)
    return cells


def print_table(bench, description, absent):
    rows = [["", "unit", *bench.directories]]
    for measure, title, unit, _cold in bench.measures:
        rows.append([title, unit, *cells_of(bench, measure, unit)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print(f"{time.strftime('%Y-%m-%d')}, kernel {platform.release()}, {os.cpu_count()} CPUs ({cpu_model()}), "
          f"{description}, medians of {bench.options.rounds} rounds, the thread pinned to CPU {bench.options.cpu} "
          "(a second to the next).")
    print(f"In brackets: how it compares with {bench.base}, 1.00x is as fast.\n")
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("| " + " | ".join(cells) + " |")
        if number == 0:
            print("|" + "|".join(["-" * (widths[0] + 2)] + ["-" * (w + 1) + ":" for w in widths[1:]]) + "|")
    for name, reason in absent.items():
        print(f"\n{name}: {reason}")


def start_systems(systems, options, stack, work, backing):
    directories, absent = {}, {}
    for name, start in systems.items():
        if options.system and name not in options.system:
            continue
        own = backing / name.replace(" ", "_").replace(",", "")
        own.mkdir()
        try:
            directories[name] = stack.enter_context(start(own, work, options))
        except BenchError as error:
            absent[name] = str(error)
    return directories, absent


def compare(systems, only, options, work, backing, description):
    """One table."""
    with contextlib.ExitStack() as stack:
        directories, absent = start_systems(systems, options, stack, work, backing)
        if not directories:
            if absent:
                raise BenchError("nothing to measure: " + "; ".join(absent.values()))
            return
        bench = Bench(options, backing, directories, next(iter(systems)), only)
        bench.prepare()
        bench.run()
        print_table(bench, description, absent)
        print()


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default 7)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for prefixfs mount")
    parser.add_argument("--system", action="append", choices=[*SYSTEMS, *SERVED],
                        help="only these; may be repeated")
    parser.add_argument("--measure", action="append", metavar="NAME", help="only these (bench_io --list)")
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build/release", help="build directory")
    parser.add_argument("--image-size", type=int, default=6 << 30, help="bytes of memory for the XFS (default 6 GiB)")
    parser.add_argument("--sector-size", type=int, default=4096, choices=[512, 4096], help="of the device")
    parser.add_argument("--write-bytes", type=int, default=512 << 20, help="bytes a write measure writes")
    parser.add_argument("--names", type=int, default=2000, help="names to stat")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the CPU of the thread measured")
    parser.add_argument("--no-build", action="store_true", help="take what is built (read by run.sh)")
    return parser.parse_args(arguments)


def check_machine(options):
    if os.geteuid() != 0:
        raise BenchError("run as root: it mounts filesystems")
    if not os.path.exists("/dev/fuse"):
        raise BenchError("/dev/fuse is missing: load the kernel module fuse")
    room = os.statvfs(MEMORY)
    if room.f_bavail * room.f_frsize < options.image_size:
        raise BenchError(f"{MEMORY} has no room for {options.image_size >> 20} MiB; see --image-size")
    if not (options.build / "tests/bench/bench_io").exists():
        raise BenchError(f"{options.build}/tests/bench/bench_io is not built; run tests/bench/run.sh")


def run(options):
    check_machine(options)
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="prefixfs-test-bench-", dir=MEMORY)))
        backing, description = stack.enter_context(xfs_in_memory(work, options.image_size, options.sector_size))
        for systems, only in ((SYSTEMS, options.measure), (SERVED, options.measure or SERVED_MEASURES)):
            compare(systems, only, options, work, backing, description)


def run_program(name, work, options):
    """Exit status of a benchmark whose errors are for its user, and which cleans up however it is stopped."""
    options.build = options.build.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        work(options)
    except BenchError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run_program("bench", run, parse_options(sys.argv[1:])))
