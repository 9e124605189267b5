"""A file system that is soon full: a tmpfs whose bytes and names are counted out, for programs in a mount namespace of their own.

Nobody else sees the mount, and it ends with the process, whatever happens.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from writing import environment

PAGE = 4096
MS_REMOUNT, MNT_DETACH = 32, 2
UNSHARE = {"root": ["unshare", "--mount"], "a user namespace": ["unshare", "--user", "--map-root-user", "--mount"]}
PROBE = 'd=$(mktemp -d) && mount -t tmpfs -o size=4096 tmpfs "$d"; s=$?; umount "$d"; rmdir "$d"; exit $s'
PROGRAM = "import sys, importlib; getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(*sys.argv[3:])"

_libc = ctypes.CDLL(None, use_errno=True)


@cache
def _unshare() -> list[str] | None:
    """How a namespace is to be had here."""
    for command in UNSHARE.values():
        try:
            if subprocess.run([*command, "sh", "-c", PROBE], capture_output=True, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            continue
    return None


def run_there(module: str, function: str, *arguments: object) -> str:
    """Call a function of a test module in a process that may mount; return what it printed."""
    command = _unshare()
    if command is None:
        pytest.skip("no tmpfs can be mounted here: neither as root nor in a user namespace")
    program = [sys.executable, "-c", PROGRAM, module, function, *map(str, arguments)]
    done = subprocess.run([*command, *program], capture_output=True, text=True, env=environment(), check=False, timeout=900)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-6000:]}"
    return done.stdout


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _resize(self, options: str) -> None:
        if _libc.mount(None, os.fsencode(self.path), None, MS_REMOUNT, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(self.path))

    def free_pages(self) -> int:
        """Return how many pages of 4096 bytes are free."""
        return os.statvfs(self.path).f_bavail

    def leave(self, pages: int | None = None, *, names: int | None = None) -> None:
        """Let this many pages, or names of files, be free, whatever is used; as many as anybody wants where it is not said."""
        status = os.statvfs(self.path)
        size = 1 << 30 if pages is None else (status.f_blocks - status.f_bfree + pages) * PAGE
        count = 1 << 20 if names is None else status.f_files - status.f_ffree + names
        # A size of 0 is no limit.
        self._resize(f"size={max(size, PAGE)},nr_inodes={count}")


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount a tmpfs with room for all; :meth:`SmallDisk.leave` takes it away."""
    path.mkdir(parents=True, exist_ok=True)
    if _libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, b"size=1073741824,nr_inodes=1048576") != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    try:
        yield SmallDisk(path)
    finally:
        # What an error holds may keep files open.
        _libc.umount2(os.fsencode(path), MNT_DETACH)
