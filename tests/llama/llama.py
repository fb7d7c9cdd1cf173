#!/usr/bin/env python3
"""llama.cpp with its states on PrefixFS: what must hold (scenarios.py), and how long the first token takes (table.py).

The engine is a prebuilt llama.cpp (run.sh installs it), the model small and of random weights (gguf.py), the
filesystem on a loop device over memory.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench"))
import bench  # noqa: E402
import gguf  # noqa: E402
import scenarios  # noqa: E402
from ground import XFS_BYTES, Ground  # noqa: E402
from table import Table  # noqa: E402

FULL = {"lengths": [256, 1024, 2048, 4096], "rounds": 5, "kills": 60, "kill_tokens": 1024, "rereads": 300,
        "evict_states": 60, "evict_tokens": 128}
QUICK = {"lengths": [256], "rounds": 2, "kills": 16, "kill_tokens": 512, "rereads": 60,
         "evict_states": 18, "evict_tokens": 64}


def say(text):
    print(text, flush=True)


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short prompt and few rounds, as ctest does it")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also writes what was measured there")
    parser.add_argument("--only", choices=("scenarios", "table"), help="not the other")
    parser.add_argument("--seed", default="1", help="of the moments at which writers are killed (default 1)")
    parser.add_argument("--threads", type=int, help="of the engine (default: all CPUs; with --quick 1)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for prefixfs mount")
    parser.add_argument("--image-dir", type=pathlib.Path, help="where the XFS and the model are, instead of in memory")
    parser.add_argument("--build", type=pathlib.Path, default=bench.TOP / "build/release", help="build directory")
    parser.add_argument("--packages", type=pathlib.Path, default=bench.TOP / "build/llama",
                        help="where the engine is installed (run.sh does it)")
    parser.add_argument("--no-build", action="store_true", help="take what is built (read by run.sh)")
    for name, value in FULL.items():
        kind = {"type": int, "nargs": "+"} if isinstance(value, list) else {"type": int}
        parser.add_argument("--" + name.replace("_", "-"), metavar="N", help=f"instead of {value}, quick {QUICK[name]}",
                            **kind)
    options = parser.parse_args(arguments)
    for name, value in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.threads = options.threads or (1 if options.quick else os.cpu_count())
    return options


def check_machine(options):
    if os.geteuid() != 0:
        raise bench.BenchError("run as root: it mounts filesystems")
    if not os.path.exists("/dev/fuse"):
        raise bench.BenchError("/dev/fuse is missing: load the kernel module fuse")
    if not (options.packages / "node_modules/@node-llama-cpp").is_dir():
        raise bench.BenchError(f"{options.packages} has no engine; run tests/llama/run.sh")


def place():
    """In memory, so that no disk is in the figures, unless there is none to spare."""
    room = os.statvfs(bench.MEMORY)
    return bench.MEMORY if room.f_bavail * room.f_frsize > XFS_BYTES else pathlib.Path("/var/tmp")


def run(options):
    check_machine(options)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="prefixfs-test-llama-", dir=options.image_dir or place())))
        options.model = work / "model.gguf"
        gguf.write(options.model, gguf.Shape(), seed=1)
        ground = stack.enter_context(Ground(options, work))
        for scenario in scenarios.SCENARIOS if options.only != "table" else ():
            say(f"{scenario.__name__.replace('_', ' ')}: {scenario(ground, options)}")
        if options.only != "scenarios":
            print_table(ground, options)
    say(f"passed in {time.monotonic() - started:.0f} s")


def print_table(ground, options):
    table = Table(ground, options, say if not options.quick else lambda _: None)
    table.measure()
    facts = table.describe()
    say(f"\n{facts['date']}, kernel {facts['kernel']}, {facts['cpus']} CPUs, {options.threads} threads of the engine, "
        f"load {facts['load_before']:.1f}, image in {facts['image']}, medians of {options.rounds} rounds. "
        f"Milliseconds to the first token; in brackets what restoring took of them.\n\n{table.text()}\n")
    if options.json:
        options.json.write_text(json.dumps({**facts, "rows": table.rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(bench.run_program("llama", run, parse_options(sys.argv[1:])))
