#!/usr/bin/env python3
"""What it costs to compare a block with its checksum when it is opened: key `verify`.

Blocks on one XFS in memory are opened, read whole and closed: from the directory itself, and through mounts that differ
in `verify` alone. Before each pass the mounts are made anew, so that every open is the first after a start; "cold": the
page cache was dropped as well. Systems take turns in every round; the table has medians of all blocks and rounds.
"""

import argparse
import contextlib
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import bench  # noqa: E402

SYSTEMS = {"native XFS": None, "verify = never": "never", "verify = first": "first", "verify = always": "always"}
ROWS = {
    "cold": "first open after a start, page cache cold",
    "hot": "first open after a start, page cache hot",
    "again": "the same blocks once more, page cache hot",
}


class System:
    def __init__(self, options, work, backing, verify):
        self.options, self.work, self.verify = options, work, verify
        self.backing = backing
        self.stack = contextlib.ExitStack()
        self.path = None

    def start(self):
        if self.verify is None:
            self.path = self.backing
            return
        self.path = self.stack.enter_context(
            bench.prefixfs(self.backing, self.work, self.options, f"verify={self.verify}", "scrub_rate=0"))

    def stop(self):
        self.stack.close()
        with contextlib.suppress(FileNotFoundError):
            (self.work / (self.backing.name + ".mnt")).rmdir()

    def block(self, number):
        return self.path / f"block{number}"

    def fill(self):
        self.start()
        data = os.urandom(self.options.block_bytes)
        for number in range(self.options.blocks):
            temporary = self.path / f"block{number}.tmp"
            temporary.write_bytes(data)
            temporary.rename(self.block(number))
        if self.verify is not None:
            while '"unchecked_blocks": 0,' not in (self.path / ".prefixfs/stats").read_text():
                time.sleep(0.1)
        self.stop()

    def read_all(self, buffer):
        any_cpu = os.sched_getaffinity(0)  # for the daemons
        os.sched_setaffinity(0, {self.options.cpu})
        times = []
        for number in range(self.options.blocks):
            path = self.block(number)
            start = time.perf_counter_ns()
            descriptor = os.open(path, os.O_RDONLY)
            got = os.preadv(descriptor, [buffer], 0)
            os.close(descriptor)
            times.append((time.perf_counter_ns() - start) / 1000)
            if got != len(buffer):
                raise bench.BenchError(f"{path}: {got} bytes instead of {len(buffer)}")
        os.sched_setaffinity(0, any_cpu)
        return times


def measure(options, systems):
    figures = {name: {row: [] for row in ROWS} for name in systems}
    buffer = bytearray(options.block_bytes)
    for number in range(options.rounds + 1):
        for name, system in systems.items():
            taken = {}
            for row in ("cold", "hot"):
                system.start()
                if row == "cold":
                    bench.call("sync")
                    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
                    time.sleep(0.5)
                taken[row] = system.read_all(buffer)
                if row == "hot":
                    taken["again"] = system.read_all(buffer)
                system.stop()
            if number > 0:  # the first round warms up
                for row, times in taken.items():
                    figures[name][row] += times
        bench.show_progress(number + 1, options.rounds + 1)
    return figures


def print_table(options, figures, description):
    print(f"{time.strftime('%Y-%m-%d')}, kernel {platform.release()}, {os.cpu_count()} CPUs ({bench.cpu_model()}), "
          f"{description}; open, read and close of {options.blocks} blocks of {options.block_bytes >> 20} MiB, us, "
          f"medians of {options.rounds} rounds.\n")
    rows = [["", *figures]]
    for row, title in ROWS.items():
        rows.append([title, *(f"{statistics.median(of_system[row]):.0f}" for of_system in figures.values())])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("| " + " | ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]) + " |")
        if number == 0:
            print("|" + "|".join(["-" * (widths[0] + 2)] + ["-" * (w + 1) + ":" for w in widths[1:]]) + "|")


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default 5)")
    parser.add_argument("--blocks", type=int, default=64, help="of each system (default 64)")
    parser.add_argument("--block-bytes", type=int, default=8 << 20, help="default 8 MiB")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for prefixfs mount")
    parser.add_argument("--build", type=pathlib.Path, default=bench.TOP / "build/release", help="build directory")
    parser.add_argument("--image-size", type=int, default=6 << 30, help="bytes of memory for the XFS (default 6 GiB)")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the CPU of the reader")
    parser.add_argument("--no-build", action="store_true", help="take what is built (read by run.sh)")
    return parser.parse_args(arguments)


def run(options):
    if os.geteuid() != 0:
        raise bench.BenchError("run as root: it mounts filesystems")
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="prefixfs-test-bench-", dir=bench.MEMORY)))
        backing, description = stack.enter_context(bench.xfs_in_memory(work, options.image_size, 4096))
        systems = {}
        for name, verify in SYSTEMS.items():
            own = backing / name.replace(" ", "_").replace("=", "")
            own.mkdir()
            systems[name] = System(options, work, own, verify)
            stack.callback(systems[name].stop)
            systems[name].fill()
        print_table(options, measure(options, systems), description)


if __name__ == "__main__":
    sys.exit(bench.run_program("verify", run, parse_options(sys.argv[1:])))
