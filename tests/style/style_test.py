#!/usr/bin/env python3
"""The tree keeps the rules of rules.py, and each rule finds a planted fault."""

import os
import pathlib
import re
import subprocess
import unittest

import rules

TOP = pathlib.Path(__file__).resolve().parents[2]
TEXT_LIMIT = 4 << 20


def tracked_files():
    """What git tracks or would track; every file but build outputs where there is no git."""
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={TOP}", "-C", str(TOP), "ls-files", "--cached", "--others",
         "--exclude-standard", "-z"],
        capture_output=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        return sorted({os.fsdecode(name) for name in listing.stdout.split(b"\0") if name})
    skipped = {"build", ".git", "__pycache__"}
    return sorted(str(path.relative_to(TOP)) for path in TOP.rglob("*")
                  if path.is_file() and not skipped & set(path.relative_to(TOP).parts))


def text_of(path):
    """None for what is gone, no regular file, or no text."""
    full = TOP / path
    if full.is_symlink() or not full.is_file() or full.stat().st_size > TEXT_LIMIT:
        return None
    data = full.read_bytes()
    return None if b"\0" in data else data.decode("utf-8", errors="replace")


class TreeTest(unittest.TestCase):
    def test_the_tree_keeps_every_rule(self):
        files = tracked_files()
        self.assertIn("cache/base/status.h", files, "the list of files is not of this tree")
        faults = []
        for path in files:
            text = text_of(path)
            if text is not None:
                faults += [fault for rule in rules.RULES for fault in rule(path, text)]
        self.assertEqual(faults, [], "\n" + "\n".join(faults))


class DocumentsTest(unittest.TestCase):
    def test_every_kind_of_finding_is_documented(self):
        kinds = set(re.findall(r'\{"([a-z-]+)",', text_of("tools/fsck/kinds.cc")))
        documented = set(re.findall(r"^\| `([a-z-]+)` \|", text_of("docs/FSCK.md"), re.MULTILINE))
        self.assertTrue(kinds)
        self.assertEqual(kinds, documented)


class PlantedFaultTest(unittest.TestCase):
    def includes(self, path, target):
        return rules.check_includes(path, f'#include "{target}"\n')

    def test_the_lower_folders_never_include_the_upper_ones(self):
        self.assertTrue(self.includes("cache/store.cc", "fs/session.h"))
        self.assertTrue(self.includes("cache/base/fd.h", "rdma/pool.h"))
        self.assertTrue(self.includes("fs/session.cc", "tools/mount.h"))
        self.assertTrue(self.includes("rdma/pool.cc", "tools/mount.h"))
        self.assertTrue(self.includes("fs/session.cc", "tests/support/tree.h"))

    def test_fs_and_rdma_never_include_each_other(self):
        self.assertTrue(self.includes("fs/session.cc", "rdma/pool.h"))
        self.assertTrue(self.includes("rdma/pool.cc", "fs/session.h"))

    def test_the_checker_shares_no_code_with_the_daemon(self):
        for target in ("cache/index/record.h", "cache/index/index.h", "cache/store/drive.h", "cache/cache.h",
                       "tools/mounts.h", "fs/session.h"):
            self.assertTrue(self.includes("tools/fsck/record.cc", target), target)
        for target in ("cache/index/record_format.h", "cache/base/status.h", "tools/fsck/report.h"):
            self.assertEqual(self.includes("tools/fsck/record.cc", target), [])
        self.assertEqual(self.includes("tools/cmd_fsck.cc", "tools/fsck/fsck.h"), [])

    def test_the_allowed_directions_are_allowed(self):
        for path, target in (("tools/prefixfs.cc", "fs/session.h"), ("tools/prefixfs.cc", "rdma/pool.h"),
                             ("fs/session.cc", "cache/store/drive.h"), ("rdma/pool.cc", "cache/base/fd.h"),
                             ("cache/store.cc", "cache/index/index.h"),
                             ("cache/store/drive.cc", "cache/index/record.h"),
                             ("cache/index/index.cc", "cache/base/status.h"),
                             ("fs/session.cc", "fuse_lowlevel.h")):
            self.assertEqual(self.includes(path, target), [])

    def test_the_parts_of_cache_do_not_reach_sideways_or_up(self):
        for path, target in (("cache/index/index.cc", "cache/store/drive.h"),
                             ("cache/store/drive.cc", "cache/index/index.h"),
                             ("cache/policy/lru.cc", "cache/naming/naming.h"),
                             ("cache/base/fd.h", "cache/index/record.h"),
                             ("cache/naming/naming.cc", "cache/cache.h"),
                             ("cache/new_part/new.cc", "cache/base/fd.h")):
            self.assertTrue(self.includes(path, target), path)

    def test_spaces_around_the_include_do_not_hide_it(self):
        self.assertTrue(rules.check_includes("cache/a.cc", '  #  include "fs/session.h"\n'))

    def test_heavy_headers_are_found_in_headers_only(self):
        text = "#include <nlohmann/json.hpp>\n"
        self.assertTrue(rules.check_heavy_headers("fs/control.h", text))
        self.assertEqual(rules.check_heavy_headers("fs/control.cc", text), [])

    def test_a_header_without_pragma_once_is_found(self):
        self.assertTrue(rules.check_pragma_once("fs/a.h", "// #pragma once is missing\nint a;\n"))
        self.assertEqual(rules.check_pragma_once("fs/a.h", "// A.\n#pragma once\n"), [])

    def test_a_file_that_is_too_long_is_found(self):
        self.assertTrue(rules.check_length("fs/a.cc", "\n" * (rules.MAX_LINES + 1)))
        self.assertEqual(rules.check_length("fs/a.cc", "\n" * rules.MAX_LINES), [])

    def test_a_registry_host_is_found_in_any_file(self):
        self.assertTrue(rules.check_registries("packaging/a.sh", "curl https://" + "deb." + "debian.org/x"))
        self.assertTrue(rules.check_registries("README.md", "from " + "pypi." + "org"))
        self.assertEqual(rules.check_registries("README.md", "ask your mirror"), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
