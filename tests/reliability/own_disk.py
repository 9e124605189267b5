"""A disk that the test owns: a loop device over a file served by ``fuse_file.py``, with its record of writes and flushes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from disks import MissingError, attach, mount, own_mounts, unmount
from fuse_file import FLUSHED, RECORD


class Event(NamedTuple):
    """A write, or a flush of all writes before it (`data` is none). The time is in ns."""

    time: int
    position: int
    data: bytes | None


class OwnDisk:
    """A disk at work."""

    def __init__(self, server: subprocess.Popen[str], record: Path, mounted: Path) -> None:
        self._server = server
        self._record = record
        self.mounted = mounted

    def _ask(self, words: str) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(words + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def refuse(self, marker: bytes) -> None:
        """From now on, answer each write that contains these bytes with EIO."""
        self._ask(f"refuse {marker.hex()}")

    def heal(self) -> int:
        """Refuse nothing any more; how many writes were refused."""
        return self._ask("heal")

    def events(self) -> list[Event]:
        """What reached the disk so far."""
        data, at, found = self._record.read_bytes(), 0, []
        while at < len(data):
            time, kind, position, count = RECORD.unpack_from(data, at)
            at += RECORD.size
            found.append(Event(time, position, None if kind == FLUSHED else data[at : at + count]))
            at += count
        return found


@contextmanager
def own_disk(kind: str, image: Path, options: str = "") -> Iterator[OwnDisk]:
    """Mount a file system on a disk of our own."""
    own_mounts()
    if not Path("/dev/fuse").exists():
        msg = "no /dev/fuse"
        raise MissingError(msg)
    file, record, mounted = (image.with_name(image.name + end) for end in (".file", ".record", ".mount"))
    file.touch()
    record.unlink(missing_ok=True)
    mounted.mkdir(exist_ok=True)
    program = Path(__file__).with_name("fuse_file.py")
    with subprocess.Popen(
        [sys.executable, str(program), str(image), str(file), str(record)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            if server.stdout.readline() != "ready\n":
                msg = "FUSE is not allowed here"
                raise MissingError(msg)
            device, path = attach(file)
            try:
                mount(kind, path, mounted, options)
            finally:
                os.close(device)
            try:
                yield OwnDisk(server, record, mounted)
            except BaseException:
                unmount(mounted, lazily=True)
                raise
            unmount(mounted)
        finally:
            unmount(file, lazily=True)
            server.kill()
