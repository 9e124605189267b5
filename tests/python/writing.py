"""What the tests of appending share: a directory's bytes, a log's state, refusals that change neither, processes that die."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypedDict, TypeVar, Unpack

import pytest
from make_log import batch, crc32c

from offsetlog import Log, OffsetLogError, WritableLog
from offsetlog._values import Segment

# Files of ours in a partition directory.
LOCK = ".offsetlog.lock"
STATE = ".offsetlog.state"
CONFIG = ".offsetlog.config"
CUT = "offsetlog-cut"

NOW = 1_700_000_000_000
FIRST = f"{0:020}.log"

E = TypeVar("E", bound=BaseException)


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def tree(folder: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes | None]:
    """Names below a folder with their bytes; ``None`` for folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name not in without:
            found[str(path.relative_to(folder))] = None if path.is_dir() else path.read_bytes()
    return found


def times(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of change of everything below a folder but our lock files, which every opening signs."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name != LOCK:
            status = path.stat()
            found[str(path.relative_to(folder))] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


class State(NamedTuple):
    """What a log says of itself."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int | None
    recovery_point: int
    config: dict[str, object]
    segments: tuple[Segment, ...]
    size_bytes: int


def state(log: WritableLog) -> State:
    """Everything that an append could move."""
    return State(
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.leader_epoch,
        log.recovery_point,
        dict(log.config.to_dict()),
        log.segments,
        log.size_bytes,
    )


def refused(log: WritableLog, action: Callable[[], object], kind: type[E], match: str | None = None) -> E:
    """Run `action`: it raises exactly this class with this text, which pickles, and all bytes and the log's state are as before."""
    path = Path(log.path)
    before, bytes_before = state(log), tree(path)
    with pytest.raises(kind, match=match) as caught:
        action()
    error = caught.value
    assert type(error) is kind
    if isinstance(error, OffsetLogError):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))
    assert state(log) == before
    assert tree(path) == bytes_before
    return error


def values(log: Log) -> list[bytes | None]:
    """The values of all records."""
    return [record.value for record in log.scan()]


def offsets(log: Log) -> list[int]:
    """The offsets of all records."""
    return [record.offset for record in log.scan()]


# Small index files: an active segment's are as large as they may become, and the tests compare every byte.
SMALL = {"segment.index.bytes": 1000}


def filled(path: Path, count: int = 3, *, segments: int = 1) -> Path:
    """A cleanly closed log of `count` batches of two records each, in so many segments."""
    with Log.open(path, "a", SMALL, clock=Clock()) as log:
        for number in range(count):
            if number and number * segments // count != (number - 1) * segments // count:
                log.roll()
            log.append_records([(b"k%d" % number, b"v%d" % number), (b"l%d" % number, b"w%d" % number)])
    return path


class Fields(TypedDict, total=False):
    """Fields of a batch that are not as they should be, or not as usual."""

    codec: int
    base_timestamp: int
    attributes: int
    record_count: int
    last_offset_delta: int
    payload: bytes
    leader_epoch: int


def coded(*rows: bytes, base_offset: int = 0, producer: tuple[int, int, int] = (-1, -1, -1), **fields: Unpack[Fields]) -> bytes:
    """An encoded batch of these values, as a producer or a leader sends it; `producer` is id, epoch and base sequence."""
    fields.setdefault("base_timestamp", NOW)
    data = bytearray(batch(base_offset, [(b"k", value) for value in rows], **fields))
    if producer[0] >= 0:
        struct.pack_into(">qhi", data, 43, *producer)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def writing_calls(log: WritableLog) -> list[Callable[[], object]]:
    """All that asks for a log which is open for appending."""
    return [
        lambda: log.append(b"v"),
        lambda: log.append_records([b"v"]),
        lambda: log.append_batches(coded(b"v")),
        lambda: log.append_as_follower(coded(b"v", base_offset=6)),
        lambda: log.append_marker(1, 0, commit=True),
        lambda: log.writer(),  # noqa: PLW0108  # looked up when it is called
        lambda: log.flush(),  # noqa: PLW0108
        lambda: log.roll(),  # noqa: PLW0108
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(0),
        lambda: log.delete_records_before(1),
        lambda: log.end_offset_for_epoch(0),
        lambda: log.config,
        lambda: setattr(log, "config", {}),
        lambda: log.recovery_point,
        lambda: log.durable_end_offset,
        lambda: log.recovery_report,
    ]


def abandon(log: WritableLog) -> None:
    """Leave the files as a killed process does."""
    log._abandon()  # noqa: SLF001  # made for tests


def environment() -> dict[str, str]:
    """The environment for a child that imports what this process imports."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}


def python(program: str, *arguments: object, seconds: float = 300) -> str:
    """Run a program to its end and return what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=seconds,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@contextmanager
def running(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A program that runs beside the test, waited for until it prints a line; killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.strip() == "ready", line
            yield process
        finally:
            process.kill()
            process.wait()


# As a broker does, and as another program of ours: POSIX locks, of every lock file that is named.
HOLD = """
import fcntl, sys
files = [open(path, "a+b") for path in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("ready", flush=True)
sys.stdin.readline()
"""
