"""A log that is truncated while a follower reads it: going on where the error says, a program has each record of the log once.

Before, the follower learned of truncations between its scans only: it returned new records in place of truncated ones that it was about
to return, and then named an offset before them.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from writing import environment, python

from offsetlog import Log, LogConfig, OffsetOutOfRangeError, WritableLog
from offsetlog._options import IsolationLevel

# Some batches in a segment; and more bytes in one than are read or decoded ahead.
SIZES = {"small segments": (3000, 100), "one segment": (1 << 30, 100), "more than is read ahead": (1 << 30, 60_000)}

OTHER = """
import random, sys
from pathlib import Path
from offsetlog import Log
from test_follow_cuts import append
path, value_bytes = sys.argv[1], int(sys.argv[2])
for line in sys.stdin:
    cut, epoch, count = map(int, line.split())
    with Log.open(path, "a") as writer:
        writer.truncate_to(cut)
        append(writer, random.Random(line), count, value_bytes, epoch)
    print("done", flush=True)
"""


class Tail:
    """A program that follows a log and goes on where an error says that it was cut."""

    def __init__(self, log: Log, isolation: IsolationLevel) -> None:
        self.log = log
        self.isolation = isolation
        self.has: dict[int, bytes] = {}
        self.cuts = 0
        self.begin(0)

    def begin(self, start: int) -> None:
        self.followed = self.log.scan(start, isolation_level=self.isolation).follow(timeout_ms=0)

    def read(self, count: int) -> bool:
        """Read so many records; whether there were as many."""
        for _ in range(count):
            try:
                record = next(self.followed, None)
            except OffsetOutOfRangeError as error:
                self.go_on(error)
                continue
            if record is None:
                # Nothing came in time, which has ended it.
                self.begin(max(self.has, default=-1) + 1)
                return False
            assert record.offset not in self.has
            self.has[record.offset] = record.value or b""
        return True

    def go_on(self, error: OffsetOutOfRangeError) -> None:
        cut = error.log_end_offset
        assert cut is not None
        self.cuts += 1
        there = {record.offset: record.value for record in self.log.scan(cut)}
        again = [offset for offset, value in self.has.items() if offset >= cut and there.get(offset) == value]
        assert not again, f"going on at {cut} returns {again} again"
        self.has = {offset: value for offset, value in self.has.items() if offset < cut}
        self.begin(cut)

    def end(self) -> None:
        """Read all; what was read is what is there."""
        while self.read(1000):
            pass
        assert sorted(self.has.items()) == [(record.offset, record.value) for record in self.log.scan()]


def test_what_it_was_about_to_return(tmp_path: Path) -> None:
    """The truncation is above what was returned, so there is nothing to be told: the new records come in their place."""
    with Log.open(tmp_path / "t-0", "a") as writer, Log.open(tmp_path / "t-0") as log:
        for number in range(10):
            writer.append(b"%d".ljust(60_000) % number)
        followed = log.scan().follow(timeout_ms=0)
        # Decoded ahead is what fits into 512 KiB, and twice as much each time, so the first record comes alone.
        assert next(followed).offset == 0
        writer.truncate_to(7)
        for number in range(5):
            writer.append(b"new %d".ljust(60_000) % number)
        values = [int((record.value or b"").split()[-1]) for record in followed]
        assert values == [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4]


def append(writer: WritableLog, chance: random.Random, count: int, value_bytes: int, epoch: int = 0) -> None:
    for _ in range(count):
        values = [b"%d" % chance.getrandbits(63) for _ in range(chance.randint(1, 4))]
        writer.append_records([value.ljust(value_bytes) for value in values], leader_epoch=epoch)


def change(writer: WritableLog, chance: random.Random, value_bytes: int) -> None:
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        end = writer.log_end_offset
        writer.truncate_to(chance.randint(max(0, end - 12), end))
        append(writer, chance, chance.choice([0, 1, 3, 8]), value_bytes)
    append(writer, chance, chance.choice([0, 1, 3, 8]), value_bytes)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("whose", ["the writer", "a reader", "writers that come and go"])
@pytest.mark.parametrize("seed", range(4))
def test_in_the_process_that_truncates(tmp_path: Path, whose: str, size: str, isolation: IsolationLevel, seed: int) -> None:
    chance = random.Random(f"{whose} {size} {isolation} {seed}")
    segment_bytes, value_bytes = SIZES[size]
    config = LogConfig.from_dict({"internal.segment.bytes": segment_bytes})
    path = tmp_path / "t-0"
    with Log.open(path, "a", config=config) as first, Log.open(path) as reader:
        append(first, chance, 10, value_bytes)
        if whose == "writers that come and go":
            first.close()
        tail = Tail(first if whose == "the writer" else reader, isolation)
        for _ in range(60):
            tail.read(chance.choice([0, 1, 2, 5, 20, 200]))
            if whose == "writers that come and go":
                with Log.open(path, "a", config=config) as writer:
                    change(writer, chance, value_bytes)
            else:
                change(first, chance, value_bytes)
        tail.end()
        assert tail.cuts


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_another_leader_in_another_process(tmp_path: Path, size: str, isolation: IsolationLevel, seed: int) -> None:
    """It is known by its epoch, as KIP-320 has it."""
    chance = random.Random(f"{size} {isolation} {seed}")
    segment_bytes, value_bytes = SIZES[size]
    config = LogConfig.from_dict({"internal.segment.bytes": segment_bytes})
    path = tmp_path / "t-0"
    with Log.open(path, "a", config=config) as writer:
        append(writer, chance, 10, value_bytes)
    with Log.open(path) as reader, other_process(path, value_bytes) as told:
        tail = Tail(reader, isolation)
        for epoch in range(1, 40):
            tail.read(chance.choice([0, 1, 2, 5, 20, 200]))
            # A broker truncates between batches.
            borders = [batch.base_offset for batch in reader.batches()][-5:] or [reader.log_end_offset]
            told(chance.choice(borders), epoch, chance.choice([0, 1, 3, 8]))
        tail.end()
        assert tail.cuts


@contextmanager
def other_process(path: Path, value_bytes: int) -> Iterator[Callable[..., None]]:
    """A function that lets it truncate to an offset, and append so many batches in a leader epoch."""
    command = [sys.executable, "-c", OTHER, str(path), str(value_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def tell(*numbers: int) -> None:
            print(*numbers, file=process.stdin, flush=True)
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"

        yield tell
        process.stdin.close()
        assert process.wait(300) == 0


FAILED = """
import resource, signal, sys
from offsetlog import Log, OffsetLogError, OffsetOutOfRangeError
path = sys.argv[1]
writer = Log.open(path, "a")
reader = Log.open(path)
for number in range(10):
    writer.append(b"%d" % number, leader_epoch=number // 6)
followed = reader.scan().follow(timeout_ms=0)
assert [next(followed).offset for _ in range(10)] == list(range(10))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
try:
    writer.truncate_to(5)
except OSError as error:
    print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
try:
    writer.close()
except OffsetLogError:
    pass
with Log.open(path, "a") as again:
    print(again.log_end_offset)
    for number in range(10):
        again.append(b"other %d" % number, leader_epoch=7)
    try:
        print([record.offset for record in followed])
    except OffsetOutOfRangeError as error:
        print(error.log_end_offset)
"""


def test_a_truncation_that_failed_half_way(tmp_path: Path) -> None:
    """The records are gone, the leader epochs could not be written; who opens the log next writes in the place of what was read."""
    assert python(FAILED, tmp_path / "t-0").split() == ["OSError", "5", "5"]
