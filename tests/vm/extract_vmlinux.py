#!/usr/bin/env python3
"""Writes the uncompressed kernel (ELF) that is packed in a bzImage: extract_vmlinux.py BZIMAGE VMLINUX."""

import pathlib
import struct
import subprocess
import sys


def main(source, target):
    data = pathlib.Path(source).read_bytes()
    # Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length.
    start = ((data[0x1F1] or 4) + 1) * 512 + struct.unpack_from("<I", data, 0x248)[0]
    payload = data[start:start + struct.unpack_from("<I", data, 0x24C)[0]]
    if payload.startswith(b"\xfd7zXZ\0"):
        command = ["xz", "-dc", "--single-stream"]
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        command = ["zstd", "-dcq"]
    else:
        sys.exit(f"{source}: packed in a way that is not known here: {payload[:6]!r}")
    # What follows the packed kernel is its length, which the unpacker complains about.
    unpacked = subprocess.run(command, input=payload, capture_output=True, check=False).stdout
    at = unpacked.find(b"\x7fELF")
    if at < 0:
        sys.exit(f"{source}: holds no ELF kernel")
    pathlib.Path(target).write_bytes(unpacked[at:])


if __name__ == "__main__":
    main(*sys.argv[1:])
