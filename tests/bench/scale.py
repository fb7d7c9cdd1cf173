#!/usr/bin/env python3
"""How the cost of each operation, of memory and of a start grows with the number of blocks.

A mount for each size, each on an XFS of its own on a loop device over memory, filled first and then measured in
turns. Prints a table for each layout, and writes what was measured as JSON and as a plot (SVG) where it is told to.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import random
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import bench  # noqa: E402
import scale_plot  # noqa: E402

LAYOUTS = {"flat": "one directory", "tree": "vLLM's tree"}
# What is read off the daemon, beside the measures of scale_io.
FACTS = {
    "rss_mb": "RssAnon of the daemon, MB",
    "rss_fresh_mb": "RssAnon after a fresh start, MB",
    "rss_writing_mb": "RssAnon at most while the blocks were made, MB",
    "index_mb": "index file, MB",
    "descriptors": "open descriptors of the daemon",
    "fill_per_s": "blocks made a second, 4 processes",
    "start_s": "start after a clean stop, s",
    "start_killed_s": "start after SIGKILL, s",
    "stop_s": "stop, s",
}


@contextlib.contextmanager
def xfs_in_memory(work, size):
    """A new XFS over a sparse file in memory."""
    image, mount = work / "image", work / "xfs"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(size)
    with contextlib.ExitStack() as stack:
        stack.callback(image.unlink)
        stack.callback(mount.rmdir)
        device, _direct = bench.attach_loop(image, 512)
        stack.callback(bench.call, "losetup", "--detach", device, quiet=False)
        bench.call("mkfs.xfs", "-q", "-f", device)
        bench.call("mount", "-t", "xfs", "-o", "noatime", device, mount)
        stack.callback(bench.unmount, mount)
        yield mount


class Mount:
    """A PrefixFS mount whose daemon can be looked at, stopped, killed and started."""

    def __init__(self, options, backing, path):
        self.options, self.path = options, path
        self.drive = backing / "tier"
        self.tool = options.build / "tools/prefixfs"

    def start(self):
        """Seconds until the mount answered."""
        arguments = [a for value in self.options.set for a in ("--set", value)]
        start = time.monotonic()
        bench.call(self.tool, "mount", "--nvme", self.drive, "--capacity", self.options.capacity,
                   "--set", 'min_free="64M"', "--set", 'reserve_initial="4K"', *arguments, self.path)
        self.path.stat()
        return time.monotonic() - start

    def stop(self):
        start = time.monotonic()
        bench.call(self.tool, "umount", self.path)
        return time.monotonic() - start

    def pid(self):
        return int((self.drive / "daemon.pid").read_text())

    def kill(self):
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.01)
        bench.call(self.tool, "umount", self.path)

    def rss_mb(self):
        for line in pathlib.Path(f"/proc/{self.pid()}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1000
        raise bench.BenchError("no RssAnon in /proc/PID/status")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid()}/fd"))

    def index_mb(self):
        return (self.drive / "index/data.mdb").stat().st_blocks * 512 / 1e6

    def stats(self):
        return json.loads((self.path / ".prefixfs/stats").read_text())

    def backing_open_us(self, samples, seed):
        """First open + close of backing files, without a mount in between, after their inodes were dropped."""
        choice = random.Random(seed)
        folders = sorted((self.drive / "blocks").iterdir())
        paths = [os.path.join(folder, name) for folder in choice.sample(folders, min(32, len(folders)))
                 for name in os.listdir(folder)]
        paths = choice.sample(paths, min(samples, len(paths)))
        self.forget_names()
        times = []
        for path in paths:
            start = time.perf_counter_ns()
            os.close(os.open(path, os.O_RDONLY))
            times.append(time.perf_counter_ns() - start)
        return statistics.median(times) / 1000

    def settle(self):
        """Until every block has its checksum, so that nothing runs beside the measures."""
        while self.stats()["unchecked_blocks"] > 0:
            time.sleep(0.2)
        bench.call("sync", "--file-system", self.drive)

    @staticmethod
    def forget_names():
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")
        time.sleep(0.5)


@contextlib.contextmanager
def mounted(options, work):
    """A mount of its own on an XFS of its own, below `work`."""
    with contextlib.ExitStack() as stack:
        work.mkdir()
        stack.callback(work.rmdir)
        path = work / "mnt"
        path.mkdir()
        stack.callback(path.rmdir)
        mount = Mount(options, stack.enter_context(xfs_in_memory(work, options.image_size)), path)
        mount.start()
        stack.callback(bench.unmount, path)
        stack.callback(bench.call, mount.tool, "umount", path, quiet=False)
        yield mount


class Scale:
    def __init__(self, options):
        self.options = options
        self.program = options.build / "tests/bench/scale_io"
        lines = bench.call(self.program, "--list").splitlines()
        self.measures = {name: (title, cold == "1") for name, title, cold in (line.split("\t") for line in lines)}

    def scale_io(self, mount, layout, count, *arguments):
        return bench.call(self.program, "--dir", mount.path, "--layout", layout, "--count", count,
                          "--samples", self.options.samples, *arguments)

    def fill(self, mount, layout, count):
        """Blocks made a second, and the most memory the daemon took meanwhile."""
        highest, done, start = 0.0, 0, time.monotonic()
        # In pieces, to look at the daemon between them.
        while done < count:
            step = min(count, done + max(1000, count // 20))
            self.scale_io(mount, layout, step, "--fill", "--from", done, "--writers", self.options.writers)
            done = step
            highest = max(highest, mount.rss_mb())
            say(f"{layout}: {done} of {count} blocks")
        return count / (time.monotonic() - start), highest

    def measure(self, mounts, layout):
        """The sizes take turns within every round, so that whatever else the machine does meets all of them."""
        figures = {count: {name: [] for name in [*self.measures, "backing_open"]} for count in mounts}
        for turn in range(self.options.rounds):
            # One seed a round: what write has made is what unlink removes.
            for name, (_title, cold) in self.measures.items():
                for count, mount in mounts.items():
                    # Of a million names one listing is long enough, and in the tree it takes minutes.
                    if name == "list" and turn > 0 and count >= 1_000_000:
                        continue
                    if cold:
                        mount.forget_names()
                    figures[count][name].append(float(self.scale_io(
                        mount, layout, count, "--cpu", self.options.cpu, "--measure", name, "--seed", turn + 1)))
            for count, mount in mounts.items():
                figures[count]["backing_open"].append(mount.backing_open_us(self.options.samples, turn + 1))
            say(f"{layout}: round {turn + 1} of {self.options.rounds}")
        return {count: {name: statistics.median(values) for name, values in of_size.items()}
                for count, of_size in figures.items()}

    def starts(self, mount, count):
        starts, stops, killed, fresh = [], [], [], []
        for _ in range(self.options.starts):
            stops.append(mount.stop())
            starts.append(mount.start())
            fresh.append(mount.rss_mb())
            mount.kill()
            killed.append(mount.start())
        if mount.stats()["blocks"] != count:
            raise bench.BenchError(f"{mount.stats()['blocks']} blocks instead of {count} after the starts")
        return {"start_s": statistics.median(starts), "start_killed_s": statistics.median(killed),
                "stop_s": statistics.median(stops), "rss_fresh_mb": statistics.median(fresh)}

    def run_layout(self, work, layout):
        with contextlib.ExitStack() as stack:
            mounts, facts = {}, {}
            for count in self.options.sizes:
                mount = stack.enter_context(mounted(self.options, work / f"{layout}-{count}"))
                mounts[count] = mount
                per_s, highest = self.fill(mount, layout, count)
                facts[count] = {"fill_per_s": per_s, "rss_writing_mb": highest}
            for mount in mounts.values():
                mount.settle()
            figures = self.measure(mounts, layout)
            for count, mount in mounts.items():
                mount.settle()
                facts[count].update(rss_mb=mount.rss_mb(), descriptors=mount.descriptors(), index_mb=mount.index_mb())
                facts[count].update(self.starts(mount, count))
                say(f"{layout}, {count}: {json.dumps({**figures[count], **facts[count]})}")
            return {count: {**figures[count], **{name: facts[count][name] for name in FACTS}} for count in mounts}

    def titles(self):
        return {**{name: title + ", us" for name, (title, _cold) in self.measures.items()},
                "backing_open": "the same of backing files on XFS itself, inodes unknown, us", **FACTS}


def say(text):
    print(text, file=sys.stderr, flush=True)


def size_text(count):
    return f"{count // 1_000_000}M" if count % 1_000_000 == 0 else f"{count // 1000}k" if count % 1000 == 0 else str(count)


def print_table(results, titles, sizes, layout):
    print(f"\n{LAYOUTS[layout]}:\n")
    rows = [["", *(size_text(s) for s in sizes), f"{size_text(sizes[-1])} / {size_text(sizes[0])}"]]
    for name, title in titles.items():
        values = [results[layout][size][name] for size in sizes]
        growth = f"{values[-1] / values[0]:.2f}x" if values[0] > 0 and title.endswith(", us") else ""
        rows.append([title, *(f"{v:.2f}" if v < 10 else f"{v:.1f}" if v < 1000 else f"{v:.0f}" for v in values),
                     growth])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("| " + " | ".join(cells) + " |")
        if number == 0:
            print("|" + "|".join(["-" * (widths[0] + 2)] + ["-" * (w + 1) + ":" for w in widths[1:]]) + "|")


def print_per_million(results, sizes, layout):
    first, last = sizes[0], sizes[-1]
    if last <= first:
        return
    for name in ("rss_mb", "rss_fresh_mb"):
        more = results[layout][last][name] - results[layout][first][name]
        print(f"{FACTS[name].split(',')[0]}: {more / (last - first) * 1e6:.0f} MB more per million blocks.")


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=lambda t: [int(s) for s in t.split(",")],
                        default=[1000, 10_000, 100_000, 1_000_000], help="blocks, rising, with commas between")
    parser.add_argument("--layout", action="append", choices=list(LAYOUTS), help="only these; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="of each measure; the median counts (default 3)")
    parser.add_argument("--starts", type=int, default=3, help="starts of each kind; the median counts (default 3)")
    parser.add_argument("--samples", type=int, default=1000, help="operations in a round (default 1000)")
    parser.add_argument("--writers", type=int, default=4, help="processes that make the blocks (default 4)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for prefixfs mount")
    parser.add_argument("--capacity", default="7G", help="of the mount (default 7G)")
    parser.add_argument("--image-size", type=int, default=10 << 30, help="bytes of the XFS (default 10 GiB, sparse)")
    parser.add_argument("--memory", type=pathlib.Path, default=bench.MEMORY, help="where the XFS's image goes")
    parser.add_argument("--build", type=pathlib.Path, default=bench.TOP / "build/release", help="build directory")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the CPU of the measures")
    parser.add_argument("--no-build", action="store_true", help="take what is built (read by run.sh)")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    parser.add_argument("--plot", type=pathlib.Path, help="write the plot here (SVG)")
    return parser.parse_args(arguments)


def run(options):
    if os.geteuid() != 0:
        raise bench.BenchError("run as root: it mounts filesystems")
    scale = Scale(options)
    layouts = options.layout or list(LAYOUTS)
    with tempfile.TemporaryDirectory(prefix="prefixfs-scale-", dir=options.memory) as work:
        results = {layout: scale.run_layout(pathlib.Path(work), layout) for layout in layouts}
    print(f"{time.strftime('%Y-%m-%d')}, kernel {platform.release()}, {os.cpu_count()} CPUs ({bench.cpu_model()}), "
          f"XFS on a loop device over memory, blocks of 4 KiB, medians of {options.rounds} rounds of "
          f"{options.samples} operations, one thread pinned to CPU {options.cpu}.")
    for layout in layouts:
        print_table(results, scale.titles(), options.sizes, layout)
        print_per_million(results, options.sizes, layout)
    if options.json:
        options.json.write_text(json.dumps({"sizes": options.sizes, "titles": scale.titles(), "results": results},
                                           indent=1) + "\n")
    if options.plot:
        options.plot.write_text(scale_plot.draw(results, scale.titles(), LAYOUTS))


if __name__ == "__main__":
    sys.exit(bench.run_program("scale", run, parse_options(sys.argv[1:])))
