"""The rules of the tree that a program can check: who may include whom, and a few that keep files small and clean.

Each rule takes a file's path (relative to the top, with slashes) and its text, and returns what is wrong as a list
of texts, so that the tests can feed it planted faults.
"""

import re

MAX_LINES = 500
CODE_FOLDERS = ("cache", "fs", "rdma", "tools")

# Which folders the files of a folder may include from. Inside cache, a part may include itself and its bases; the
# files of cache/ itself are the facade and may include every part.
MAY_INCLUDE = {
    "tools": {"tools", "fs", "rdma", "cache"},
    "fs": {"fs", "cache"},
    "rdma": {"rdma", "cache"},
    "cache": {"cache"},
}
CACHE_PARTS = {
    "base": {"base"},
    "index": {"index", "base"},
    "store": {"store", "base"},
    "policy": {"policy", "base"},
    "naming": {"naming", "base"},
}
# The checker of drives must not repeat the daemon's mistakes, so it shares none of its code: what it may include
# besides its own folder is the layout of a record's head, and what has nothing to do with the format.
CHECKER = "tools/fsck/"
CHECKER_MAY_INCLUDE = ("tools/fsck/", "cache/base/", "cache/index/record_format.h")

# The record is the header of a backing file as well, so the store writes what the index defines.
EXTRA = {("store", "cache/index/record.h")}

# Headers that cost seconds a translation unit belong into .cc files.
HEAVY = ("nlohmann/", "toml++/", "CLI/", "spdlog/")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# Split, so that this file keeps its own rule.
REGISTRIES = re.compile(
    r"\b(" + "|".join(re.escape(".".join(parts)) for parts in (
        ("deb", "debian", "org"), ("security", "debian", "org"), ("snapshot", "debian", "org"),
        ("ftp", "debian", "org"), ("archive", "ubuntu", "com"), ("ports", "ubuntu", "com"),
        ("pypi", "org"), ("files", "pythonhosted", "org"), ("registry", "npmjs", "org"),
        ("crates", "io"), ("proxy", "golang", "org"), ("rubygems", "org"),
        ("docker", "io"), ("ghcr", "io"), ("quay", "io"), ("nvcr", "io"), ("gcr", "io"),
        ("dl", "fedoraproject", "org"), ("mirrors", "kernel", "org"), ("anaconda", "org"),
    )) + r")\b", re.IGNORECASE)


def is_code(path):
    return path.split("/")[0] in CODE_FOLDERS and path.endswith((".cc", ".h"))


def part_of(path):
    """The part of cache a path belongs to; None for the facade."""
    folders = path.split("/")
    return folders[1] if len(folders) > 2 else None


def check_includes(path, text):
    if not is_code(path):
        return []
    faults = []
    folder = path.split("/")[0]
    for _, target in INCLUDE.findall(text):
        root = target.split("/")[0]
        if root not in CODE_FOLDERS and root != "tests":
            continue
        if root not in MAY_INCLUDE[folder]:
            faults.append(f"{path} includes {target}: {folder} may include only {sorted(MAY_INCLUDE[folder])}")
        elif path.startswith(CHECKER) and not target.startswith(CHECKER_MAY_INCLUDE):
            faults.append(f"{path} includes {target}: {CHECKER} may include only {CHECKER_MAY_INCLUDE}")
        elif folder == "cache" and root == "cache":
            faults += check_cache_include(path, target)
    return faults


def check_cache_include(path, target):
    own, other = part_of(path), part_of(target)
    if own is None or (own, target) in EXTRA:
        return []
    if own not in CACHE_PARTS:
        return [f"{path}: cache/{own} has no place in the order of includes (tests/style/rules.py)"]
    if other not in CACHE_PARTS[own]:
        return [f"{path} includes {target}: cache/{own} may include only {sorted(CACHE_PARTS[own])} of cache"]
    return []


def check_heavy_headers(path, text):
    if not (is_code(path) and path.endswith(".h")):
        return []
    return [f"{path} includes {target}: heavy headers belong into .cc files"
            for _, target in INCLUDE.findall(text) if target.startswith(HEAVY)]


def check_pragma_once(path, text):
    if not path.endswith(".h") or re.search(r"^#pragma once$", text, re.MULTILINE):
        return []
    return [f"{path} has no #pragma once"]


def check_length(path, text):
    lines = text.count("\n")
    if not is_code(path) or lines <= MAX_LINES:
        return []
    return [f"{path} has {lines} lines: at most {MAX_LINES}, one idea a file"]


def check_registries(path, text):
    return [f"{path} names the registry host {host}: the machine's own configuration says where packages come from"
            for host in sorted(set(REGISTRIES.findall(text)))]


RULES = (check_includes, check_heavy_headers, check_pragma_once, check_length, check_registries)
