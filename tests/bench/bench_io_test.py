#!/usr/bin/env python3
"""Every measure of bench_io gives a figure on a small directory and leaves no temporary behind."""

import os
import subprocess
import sys
import tempfile
import unittest

BENCH_IO = sys.argv.pop(1) if len(sys.argv) > 1 else "bench_io"
SMALL = ["--big-bytes", str(8 << 20), "--files", "4", "--names", "8", "--samples", "8",
         "--write-bytes", str(16 << 20), "--passes", "1"]


def run(*arguments):
    return subprocess.run([BENCH_IO, *arguments], capture_output=True, text=True, check=False)


class BenchIoTest(unittest.TestCase):
    def setUp(self):
        # Not /tmp: it may be a tmpfs without O_DIRECT.
        directory = tempfile.TemporaryDirectory(prefix="prefixfs-test-bench-", dir="/var/tmp")
        self.addCleanup(directory.cleanup)
        self.dir = directory.name

    def test_every_measure_gives_a_positive_figure(self):
        listing = run("--list")
        self.assertEqual(listing.returncode, 0, listing.stderr)
        names = [line.split("\t")[0] for line in listing.stdout.splitlines()]
        self.assertGreaterEqual(len(names), 7)
        for name in names:
            with self.subTest(measure=name):
                result = run("--dir", self.dir, "--prepare", "--measure", name, *SMALL)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertGreater(float(result.stdout), 0)

    def test_prepare_makes_whole_files_and_clean_removes_all(self):
        self.assertEqual(run("--dir", self.dir, "--prepare", *SMALL).returncode, 0)
        files = os.listdir(self.dir)
        self.assertEqual(len(files), 1 + 4 + 8 + 16 + 1)
        self.assertFalse([name for name in files if name.endswith(".tmp")])
        self.assertEqual(run("--dir", self.dir, "--clean", *SMALL).returncode, 0)
        self.assertEqual(os.listdir(self.dir), [])

    def test_an_unprepared_directory_is_an_error_with_a_message(self):
        result = run("--dir", self.dir, "--measure", "read_hot", *SMALL)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("big.bin", result.stderr)

    def test_an_unknown_measure_is_refused(self):
        result = run("--dir", self.dir, "--measure", "nonsense", *SMALL)
        self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
