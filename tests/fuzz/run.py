#!/usr/bin/env python3
"""Runs one fuzzer: tests/fuzz/run.py PROGRAM

Begins with the seeds that the program makes, tests/fuzz/seeds/NAME (inputs that once failed, kept so that they do not
again) and what earlier runs on this machine found worth keeping. 4 s; with PREFIXFS_FULL=1 120 s, or PREFIXFS_FUZZ_S
seconds. An input that fails is left in build/fuzz/Testing/failed: give it to the program as its only argument, mend
the fault, and add it to seeds/NAME.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MAX_BYTES = 4096
INPUT_SECONDS = 10  # one input that takes longer fails
MEMORY_MB = 3000


def seconds():
    return int(os.environ.get("PREFIXFS_FUZZ_S") or (120 if os.environ.get("PREFIXFS_FULL") else 4))


def run(program):
    name = program.name.removesuffix("_fuzz")
    build = program.parents[2]
    kept, failed = build / "corpus" / name, build / "Testing" / "failed"
    for folder in (kept, failed):
        folder.mkdir(parents=True, exist_ok=True)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="prefixfs-test-fuzz-", dir=memory) as scratch:
        seeds = pathlib.Path(scratch) / "seeds"
        seeds.mkdir()
        environment = os.environ | {"TMPDIR": scratch}
        subprocess.run([program], env=environment | {"PREFIXFS_FUZZ_SEEDS": str(seeds)}, check=True)
        command = [program, "-print_final_stats=1", f"-max_total_time={seconds()}", f"-timeout={INPUT_SECONDS}",
                   f"-rss_limit_mb={MEMORY_MB}", f"-max_len={MAX_BYTES}", f"-artifact_prefix={failed}/{name}-",
                   "-verbosity=1"]
        if (HERE / f"{name}.dict").exists():
            command.append(f"-dict={HERE}/{name}.dict")
        command += [kept, seeds] + [folder for folder in [HERE / "seeds" / name] if folder.exists()]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    output = done.stdout.decode(errors="replace")
    # Of a run that passed, only how it began and ended: the rest is a line for each input that was new.
    lines = output.splitlines()
    print("\n".join(lines if done.returncode != 0 else [line for line in lines if not line.startswith("#")]))
    rounds = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    if rounds:
        print(f"rounds: {rounds[1]}")
    return done.returncode if rounds else done.returncode or 1


if __name__ == "__main__":
    sys.exit(run(pathlib.Path(sys.argv[1]).resolve()))
