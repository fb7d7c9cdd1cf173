#!/usr/bin/env python3
"""Every measure of scale_io gives a figure in both layouts, and the plot has a line for each."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import scale_plot  # noqa: E402

SCALE_IO = sys.argv.pop(1) if len(sys.argv) > 1 else "scale_io"
COUNT = 40


def run(*arguments):
    return subprocess.run([SCALE_IO, *arguments], capture_output=True, text=True, check=False)


class ScaleIoTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="prefixfs-test-bench-", dir="/var/tmp")
        self.addCleanup(directory.cleanup)
        self.dir = directory.name

    def files(self):
        return [name for _, _, names in os.walk(self.dir) for name in names]

    def test_every_measure_gives_a_positive_figure_in_both_layouts(self):
        listing = run("--list")
        self.assertEqual(listing.returncode, 0, listing.stderr)
        names = [line.split("\t")[0] for line in listing.stdout.splitlines()]
        self.assertGreaterEqual(len(names), 9)
        for layout in ("flat", "tree"):
            place = os.path.join(self.dir, layout)
            os.mkdir(place)
            at = ["--dir", place, "--layout", layout, "--count", str(COUNT)]
            # In two steps, as the sizes of the benchmark follow each other.
            for start, end in (("0", "10"), ("10", str(COUNT))):
                result = run("--dir", place, "--layout", layout, "--fill", "--from", start, "--count", end)
                self.assertEqual(result.returncode, 0, result.stderr)
            for name in names:
                with self.subTest(layout=layout, measure=name):
                    result = run(*at, "--measure", name, "--samples", "20")
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertGreater(float(result.stdout), 0)
        # What the write measure has made, the unlink measure has removed.
        self.assertEqual(len(self.files()), 2 * COUNT)
        self.assertFalse([name for name in self.files() if not name.endswith(".bin")])

    def test_a_listing_that_lacks_a_name_is_an_error(self):
        self.assertEqual(run("--dir", self.dir, "--fill", "--count", "10").returncode, 0)
        os.unlink(os.path.join(self.dir, self.files()[0]))
        result = run("--dir", self.dir, "--count", "10", "--measure", "list")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("9 names instead of 10", result.stderr)

    def test_the_plot_has_a_line_for_each_measure_and_layout(self):
        sizes = [1000, 10_000]
        titles = {"a": "access, us", "b": "unlink <b>, us", "c": "memory, MB"}
        results = {layout: {size: {"a": 40.0, "b": size / 10, "c": 1.0} for size in sizes} for layout in ("flat", "tree")}
        svg = scale_plot.draw(results, titles, {"flat": "one", "tree": "many"})
        self.assertEqual(svg.count("<polyline"), 4)
        self.assertIn("unlink &lt;b&gt;", svg)
        self.assertNotIn("memory", svg)


if __name__ == "__main__":
    unittest.main(verbosity=2)
