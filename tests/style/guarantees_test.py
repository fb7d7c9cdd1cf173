#!/usr/bin/env python3
"""Every row of docs/GUARANTEES.md names a test, and every test that it names is there."""

import pathlib
import re
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = re.compile(r"`([a-z0-9_]+_test)`")


def rows(text):
    """Of the tables whose last column names tests; of others the text around them does."""
    counts, before = False, ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and not before.startswith("|"):
            counts = cells[-1] == "test"
        if line.startswith("|") and counts and not set(line) <= set("|- "):
            yield cells
        before = line


def faults_of(text, programs, sources):
    """`programs`: names known to the build. `sources`: the texts of all tests."""
    faults = []
    for cells in rows(text):
        shown_by = cells[-1]
        if shown_by in ("test", "the same"):
            continue
        names = PROGRAM.findall(shown_by)
        if not names:
            faults.append(f"no test: {cells[0]}")
        faults += [f"{name} is not there: {cells[0]}" for name in names if name not in programs]
        filters = re.findall(r"\b[A-Z]\w+", PROGRAM.sub("", shown_by))
        faults += [f"no test is called {word}...: {cells[0]}" for word in filters if word not in sources]
    return faults


class GuaranteesTest(unittest.TestCase):
    def test_every_promise_has_a_test_that_is_there(self):
        lists = "\n".join(path.read_text() for path in (TOP / "tests").rglob("CMakeLists.txt"))
        programs = set(re.findall(r"prefixfs_(?:mount|unit)_test\((\w+)", lists))
        sources = "\n".join(path.read_text() for path in (TOP / "tests").rglob("*_test.cc"))
        text = (TOP / "docs/GUARANTEES.md").read_text()
        self.assertGreater(len(list(rows(text))), 40)
        self.assertEqual(faults_of(text, programs, sources), [])

    def test_a_row_without_a_test_and_tests_that_are_not_there_are_found(self):
        found = faults_of("| promise | bound | test |\n|---|---|---|\n| a | 1 |\n| b | 2 | `x_test` |\n"
                          "| c | 3 | `y_test` NotThere |\n| d | 4 | `y_test` There |\n", {"y_test"}, "There")
        self.assertEqual(found, ["no test: a", "x_test is not there: b", "no test is called NotThere...: c"])


if __name__ == "__main__":
    unittest.main()
