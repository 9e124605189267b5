"""Limits of the system: the work is done, or an error says which limit it was. Never a dead process, never a lost record."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disks import MEMORY, MissingError, needed
from driver import Driver, command, listen
from limited import OF_ONE, PARTITIONS, PRODUCERS
from promises import History, check_all
from rows import row

from offsetlog import Log

MIB = 1 << 20
# What the process may answer.
ANSWERS = {
    "many segments": {"works", "OSError"},
    "many logs": {"OSError"},
    "roll without descriptors": {"OSError"},
    "small files": {"OSError"},
    "memory bomb": {"MemoryError", "LimitExceededError", "works"},
    "memory for columns": {"MemoryError"},
    "memory for appending": {"MemoryError", "works"},
}
CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory that goes away."""
    parent = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="offsetlog-limits-", dir=parent) as made:
        yield Path(made, "topic-0")


def limited(name: str, directory: Path, *more: str) -> str:
    """What a process answered that was under a limit."""
    program = Path(__file__).with_name("limited.py")
    arguments = [sys.executable, str(program), name, str(directory), *more]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{name}: ended with {done.returncode}\n{done.stderr}"
    return done.stdout.strip()


@pytest.mark.parametrize("name", ANSWERS)
def test_limited(name: str) -> None:
    """Descriptors, sizes of files, addresses."""
    with row(21, name, "runs", 1) as part, scratch() as directory:
        assert limited(name, directory) in ANSWERS[name]
        part.count()


def test_killed_by_a_limit() -> None:
    """A program that does not ignore SIGXFSZ is killed at 1 MiB: what it acknowledged is there."""
    with row(21, "killed by the largest size of files", "runs", 1) as part, scratch() as directory:
        history = History()
        history.start(1)
        options: dict[str, int | str] = {"appends": 100_000, "internal.segment.bytes": 64 * MIB, "segment.index.bytes": 100_000}
        with Driver(command(directory, 1, **options), before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))) as driver:
            listen(history, driver.lines())
            assert driver.process.returncode == -signal.SIGXFSZ
        assert len(history.acked) > 500
        check_all(directory, history, power=False)
        part.count()


@contextmanager
def memory_group(size: int) -> Iterator[Path]:
    """A group of processes that may use so much memory."""
    first = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    group = first / f"offsetlog-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        msg = f"no group of processes can be made: {error}"
        raise MissingError(msg) from error
    try:
        knob = group / ("memory.limit_in_bytes" if first != CGROUPS else "memory.max")
        try:
            knob.write_text(str(size), encoding="ascii")
        except OSError as error:
            msg = f"no limit of memory for groups of processes: {error}"
            raise MissingError(msg) from error
        yield group
    finally:
        group.rmdir()


def make_large(directory: Path, segments: int) -> None:
    """Batches of 1 MiB of zeros each, 512 MiB a segment, almost nothing of which is on the disk."""
    with Log.open(str(directory), "a", {"max.message.bytes": 2 * MIB, "segment.bytes": 1 << 30}) as log:
        log.append(bytes(MIB), timestamp=1)
    first = directory / f"{0:020}.log"
    batch = first.read_bytes()
    head = batch[:96].rstrip(b"\0")
    per_segment = 512
    for path in directory.iterdir():
        path.unlink()
    for segment in range(segments):
        with (directory / f"{segment * per_segment:020}.log").open("wb") as file:
            for slot in range(per_segment):
                offset = segment * per_segment + slot
                file.seek(slot * len(batch))
                # The base offset is the one field that no checksum covers.
                file.write(offset.to_bytes(8, "big") + head[8:])
            file.truncate(per_segment * len(batch))


def test_little_memory() -> None:
    """A log of 2 GiB is read in 256 MiB."""
    with row(21, "2 GiB read in 256 MiB", "runs", 1) as part, scratch() as directory:
        make_large(directory, 4)
        with needed(part), memory_group(256 * MIB) as group:
            assert limited("large log", directory, str(group)) == "works"
        part.count()


@pytest.mark.parametrize("name", ["large salvage", "large restore", "large why"])
def test_operators_need_little_memory(name: str) -> None:
    """On a real disk: what is written counts as the group's own where the disk is memory."""
    with row(21, f"{name}: 1 GiB in 256 MiB", "runs", 1) as part, tempfile.TemporaryDirectory(prefix="offsetlog-limits-") as made:
        directory = Path(made, "topic-0")
        make_large(directory, 2)
        with needed(part), memory_group(256 * MIB) as group:
            assert limited(name, directory, str(group)) == "works"
        part.count()


def written(directory: Path, producers: int, *, is_open: bool) -> Path:
    """A log with a record of each producer; the last one's transaction is open."""
    with Log.open(str(directory), "a") as log:
        for number in range(producers):
            last = is_open and number == producers - 1
            log.append_records([(b"key", b"value")], producer_id=number, producer_epoch=0, base_sequence=0, transactional=last)
    for file in directory.glob(".offsetlog*"):
        file.unlink()
    return directory


@pytest.fixture(scope="module")
def many() -> Iterator[Path]:
    """Two log dirs with a replica of each partition: the same files under several names, which no operator may change."""
    with scratch() as place:
        made = place.parent
        of_many, of_one = written(made / "made/many-0", PRODUCERS, is_open=True), written(made / "made/one-0", OF_ONE, is_open=False)
        for name in ("one", "two"):
            for directory in (made / name / of_one.name, *(made / name / f"many-{number}" for number in range(PARTITIONS))):
                directory.mkdir(parents=True)
                for file in (of_one if directory.name == of_one.name else of_many).iterdir():
                    (directory / file.name).hardlink_to(file)
        yield made


@pytest.mark.parametrize(
    "name", ["many why", "many producers", *(pytest.param(name, marks=pytest.mark.proof) for name in ("many restore", "many salvage"))]
)
def test_operators_need_little_memory_for_many(name: str, many: Path) -> None:
    """Of 2,000 partitions, with two replicas and 20 producers each, and of one with 20,000 producers."""
    what = f"{name}: 2,000 partitions in 256 MiB"
    with row(21, what, "runs", 1) as part, tempfile.TemporaryDirectory(prefix="offsetlog-limits-") as made:
        for log_dir in ("one", "two"):
            Path(made, log_dir).symlink_to(many / log_dir)
        with needed(part), memory_group(256 * MIB) as group:
            assert limited(name, Path(made, "topic-0"), str(group)) == "works"
        part.count()
