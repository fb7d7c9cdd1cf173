#!/usr/bin/env python3
"""The tally of tests/run.sh --full: tests and rounds by build and label, from ctest's results.

A test tells of its rounds by a line with "rounds: N" in its output, as often as it likes; they are added up.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

PRESETS = ("fuzz", "asan", "tsan", "release")
ROUNDS = re.compile(r"\brounds: ([0-9][0-9,']*)")


class Row:
    def __init__(self):
        self.passed = self.failed = self.skipped = self.rounds = 0
        self.seconds = 0.0

    def add(self, case, rounds):
        status = case.get("status")
        if status == "run":
            self.passed += 1
        elif status in ("notrun", "disabled"):
            self.skipped += 1
        else:
            self.failed += 1
        self.rounds += rounds
        self.seconds += float(case.get("time", "0"))


def rounds_in(text):
    return sum(int(re.sub(r"[,']", "", number)) for number in ROUNDS.findall(text or ""))


def labels_of(build):
    """The label of each test by name, as ctest knows them."""
    listing = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"],
                             capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        return {}
    labels = {}
    for test in json.loads(listing.stdout).get("tests", []):
        for entry in test.get("properties", []):
            if entry["name"] == "LABELS":
                labels[test["name"]] = "+".join(entry["value"])
    return labels


def rows_of(build, labels):
    rows = collections.defaultdict(Row)
    for results in sorted((build / "Testing").glob("*.xml")):
        for case in ElementTree.parse(results).getroot().iter("testcase"):
            output = case.findtext("system-out")
            rows[labels.get(case.get("name"), "other")].add(case, rounds_in(output))
    return rows


def main(top, seconds):
    table = [("build", "label", "passed", "failed", "skipped", "rounds", "seconds")]
    total = Row()
    for preset in PRESETS:
        build = pathlib.Path(top) / "build" / preset
        for label, row in sorted(rows_of(build, labels_of(build)).items()):
            table.append((preset, label, row.passed, row.failed, row.skipped, f"{row.rounds:,}", f"{row.seconds:.0f}"))
            for name in ("passed", "failed", "skipped", "rounds", "seconds"):
                setattr(total, name, getattr(total, name) + getattr(row, name))
    table.append(("all", "", total.passed, total.failed, total.skipped, f"{total.rounds:,}", f"{total.seconds:.0f}"))
    widths = [max(len(str(row[i])) for row in table) for i in range(len(table[0]))]
    print("\nTally")
    for row in table:
        left = [str(cell).ljust(width) for cell, width in zip(row[:2], widths[:2])]
        right = [str(cell).rjust(width) for cell, width in zip(row[2:], widths[2:])]
        print("  " + "  ".join(left + right))
    print(f"  {int(seconds) // 60} min {int(seconds) % 60} s in all, with the builds")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
