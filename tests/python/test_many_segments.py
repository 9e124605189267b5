"""The newest record of a log that has grown to ten thousand segments: the right one after each roll, and no answer looks at all of them."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from offsetlog import Log

SEGMENTS = 10_000
IN_OPEN, IN_Q_OVERFLOW, IN_NONBLOCK = 0x20, 0x4000, 0o4000


class Opens:
    """Which files of a folder were opened, by whomever: the system tells."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._watch = libc.inotify_init1(IN_NONBLOCK)
        assert self._watch >= 0, os.strerror(ctypes.get_errno())
        assert libc.inotify_add_watch(self._watch, os.fsencode(folder), IN_OPEN) >= 0, os.strerror(ctypes.get_errno())

    def since(self) -> Counter[str]:
        """How often each was opened since this was asked last; an empty name is the folder itself, which was listed."""
        found: Counter[str] = Counter()
        while True:
            try:
                data = os.read(self._watch, 1 << 16)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                _, mask, _, length = struct.unpack_from("iIII", data, at)
                assert not mask & IN_Q_OVERFLOW
                found[data[at + 16 : at + 16 + length].rstrip(b"\0").decode()] += 1
                at += 16 + length

    def close(self) -> None:
        os.close(self._watch)


@contextmanager
def opens_in(folder: Path) -> Iterator[Opens]:
    opens = Opens(folder)
    try:
        yield opens
    finally:
        opens.close()


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder on a file system in memory, where there is one: forty thousand files are made."""
    memory = Path("/dev/shm")  # noqa: S108  # a folder of its own is made in it
    path = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def segments_in(opened: Counter[str]) -> int:
    """Of how many segments any file was opened."""
    return len({name.partition(".")[0] for name in opened if name[:1].isdigit()})


def value_of(number: int) -> bytes:
    return b"%060d" % number


@pytest.mark.slow
def test_the_newest_record_of_ten_thousand_segments() -> None:
    """One batch a segment. The writer and a reader that was opened before the first roll are asked behind each, another one at the end."""
    settings = {"internal.segment.bytes": 130, "segment.index.bytes": 100}
    with in_memory() as folder, Log.open(folder / "orders-0", "a", settings, clock=lambda: 1_700_000_000_000) as writer:
        path = folder / "orders-0"
        writer.append(value_of(0))
        with Log.open(path) as early, Log.open(path) as idle, opens_in(path) as opens:
            assert idle.log_end_offset == 1

            def check(log: Log, number: int) -> None:
                opens.since()
                record = log.get(number)
                assert record is not None
                assert (record.offset, record.value) == (number, value_of(number))
                assert log.log_end_offset == number + 1
                opened = opens.since()
                # However many there are: the one that it is in, and at most the one that was the last before.
                assert segments_in(opened) <= 2, (number, opened)
                if number % 100 == 0 or number == SEGMENTS - 1:
                    assert value_of(number) in log.fetch(number).records
                    assert log.get(number - 1).value == value_of(number - 1)  # type: ignore[union-attr]
                    opened = opens.since()
                    assert segments_in(opened) <= 2, (number, opened)

            for number in range(1, SEGMENTS):
                opens.since()
                assert writer.append(value_of(number)) == number
                # The one that ends and the one that begins.
                assert segments_in(opens.since()) <= 2, number
                for log in (writer, early):
                    check(log, number)
            check(idle, SEGMENTS - 1)
            # Whoever reads several segments is seen to open them.
            opens.since()
            assert [record.value for record in early.scan(7000, 7050)] == list(map(value_of, range(7000, 7050)))
            assert segments_in(opens.since()) >= 50
            for log in (writer, early, idle):
                assert len(log.segments) == SEGMENTS
