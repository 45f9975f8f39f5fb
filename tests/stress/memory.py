"""Resident memory of a process, without what allocators keep for reuse."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None)
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8


def steady() -> None:
    """Start the script again with allocators that return freed memory to the system."""
    if os.environ.get("PYTHONMALLOC") != "malloc":  # Python's own allocator returns nothing that it can still use
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONMALLOC": "malloc"})
    # Otherwise malloc keeps large blocks in an arena for each thread, and that noise is ten times what is measured.
    LIBC.mallopt(M_ARENA_MAX, 1)
    LIBC.mallopt(M_MMAP_THRESHOLD, 64 * 1024)


def resident() -> int:
    """Bytes of resident memory, without what malloc keeps for reuse between its blocks."""
    gc.collect()
    LIBC.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def report(what: str, before: int, after: int) -> None:
    """Print how memory grew; more than 5% is an error."""
    assert after <= before * 1.05, f"resident memory grew from {before} to {after} bytes"
    print(f"{what}: {before / 2**20:.1f} MiB to {after / 2**20:.1f} MiB, {after / before - 1:+.1%}")
