"""What a process does under a limit: ``python limited.py NAME DIRECTORY [CGROUP]``. Says what happened in one line."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
from promises import History, check_again
from python_driver import SMALL, PythonDriver

from offsetlog import Log, LogDir, restore, salvage
from offsetlog.errors import LimitExceededError

MIB = 1 << 20


def limit(what: int, amount: int) -> None:
    """Set a limit of this process."""
    resource.setrlimit(what, (amount, resource.getrlimit(what)[1]))


def open_files() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # without an object for each


def many_segments(directory: Path) -> str:
    """A log of 200 segments, 64 descriptors: written and read."""
    limit(resource.RLIMIT_NOFILE, 64)
    history = History()
    telling = PythonDriver(directory, 1, history.feed)
    answer = "works"
    for _ in range(200):
        telling.append()
        try:
            telling.roll()
        except OSError as error:
            # Rolled segments that wait for their sync hold descriptors, too.
            assert error.errno == errno.EMFILE  # noqa: PT017
            answer = "OSError"
            telling.flush()
            telling.roll()
    read = telling.log.log_end_offset
    # As many as it is told that it may; 256 by itself, which is more than there are.
    with Log.open(str(directory), max_open_files=16) as reader:
        assert sum(1 for _ in reader.scan()) == read
        assert all(reader.get(offset) is not None for offset in range(read))
    telling.close()
    check_again(directory, history)
    return answer


def many_logs(directory: Path) -> str:
    """More logs than descriptors: the one too many is refused, the others go on."""
    before = open_files()
    limit(resource.RLIMIT_NOFILE, 64)
    open_now: list[tuple[PythonDriver, History]] = []
    refused = None
    while refused is None:
        history = History()
        try:
            telling = PythonDriver(directory.with_name(f"topic{len(open_now)}-0"), 1, history.feed)
            open_now.append((telling, history))
            telling.append()
        except OSError as error:
            refused = error
    assert refused.errno == errno.EMFILE
    for number, (telling, history) in enumerate(open_now[:-1]):
        if number % 2 == 0:
            telling.close()
            check_again(directory.with_name(f"topic{number}-0"), history)
    for telling, _ in open_now[1:-1:2]:
        telling.append(flush=True)
        telling.close()
    open_now[-1][0].log.close()
    assert open_files() <= before, "descriptors were left open"
    return "OSError"


def roll_without_descriptors(directory: Path) -> str:
    """No descriptor is left for a new segment: the append that wants it is refused, and goes on when there is one."""
    history = History()
    telling = PythonDriver(directory, 1, history.feed)
    telling.append()
    free = open_files()
    # Not one more than there are.
    limit(resource.RLIMIT_NOFILE, free - 1)
    refused = False
    try:
        for _ in range(100):
            telling.append()
    except OSError as error:
        refused = error.errno == errno.EMFILE
    assert refused, "a roll needs descriptors, and there were none"
    history.pending = None
    limit(resource.RLIMIT_NOFILE, 64)
    for _ in range(100):
        telling.append()
    telling.close()
    check_again(directory, history)
    return "OSError"


def small_files(directory: Path) -> str:
    """No file may pass 1 MiB and segments are larger: the append is refused, and goes on in a new segment."""
    limit(resource.RLIMIT_FSIZE, MIB)
    history = History()
    telling = PythonDriver(directory, 1, history.feed, {**SMALL, "internal.segment.bytes": 64 * MIB, "segment.index.bytes": 100_000})
    refused = None
    while refused is None:
        try:
            telling.append()
        except OSError as error:
            refused = error
    assert refused.errno == errno.EFBIG
    assert (directory / f"{0:020}.log").stat().st_size <= MIB
    history.pending = None
    telling.roll()
    for _ in range(50):
        telling.append()
    telling.flush()
    telling.close()
    check_again(directory, history)
    return "OSError"


def memory_bomb(directory: Path) -> str:
    """A batch of a few kB that unpacks to 1 GiB, in 600 MiB of addresses."""
    with Log.open(str(directory), "a", {"max.message.bytes": 1 << 30}) as log:
        log.append_records([bytes(200 * MIB)], compression="zstd")
        log.append(b"after")
    limit(resource.RLIMIT_AS, 600 * MIB)
    try:
        with Log.open(str(directory), max_decompressed_bytes=1 << 30) as log:
            held = [bytes(100 * MIB) for _ in range(3)]
            read = [len(record.value or b"") for record in log.scan()]
            assert read == [200 * MIB, 5]
            del held
    except (MemoryError, LimitExceededError) as error:
        answer = type(error).__name__
    else:
        answer = "works"
    with Log.open(str(directory)) as log:
        found = log.get(1)
        assert found is not None
        assert found.value == b"after"
    return answer


def memory_columns(directory: Path) -> str:
    """The same value as a column, looked up and fetched, where there is no memory for a copy of it."""
    with Log.open(str(directory), "a", {"max.message.bytes": 1 << 30}, max_batch_bytes=1 << 30) as log:
        log.append(bytes(150 * MIB))
        log.append(b"after")
    limit(resource.RLIMIT_AS, 700 * MIB)
    answers = set()
    with Log.open(str(directory), max_batch_bytes=1 << 30) as log:
        held: list[bytes] = []
        ways: list[Callable[[], object]] = [
            lambda: log.get(0),
            lambda: log.fetch(0, max_bytes=1 << 30),
            lambda: pyarrow.table(log.scan(columns=["value"])).num_rows,
            lambda: list(log.scan()),
        ]
        for way in ways:
            held.clear()
            # Less is left each time, until there is not even the batch.
            for _ in range(12):
                try:
                    held.append(bytes(50 * MIB))
                    way()
                except MemoryError:
                    answers.add("MemoryError")
                    break
            else:
                answers.add("there was enough")
        held.clear()
        found = log.get(1)
        assert found is not None
        assert found.value == b"after"
    return " ".join(sorted(answers))


def memory_append(directory: Path) -> str:
    """Records larger than the addresses that are left."""
    history = History()
    telling = PythonDriver(directory, 1, history.feed, {**SMALL, "max.message.bytes": 1 << 30, "internal.segment.bytes": 1 << 30})
    telling.append()
    value = bytes(150 * MIB)
    limit(resource.RLIMIT_AS, 600 * MIB)
    try:
        telling.log.append_records([value] * 6)
    except MemoryError:
        answer = "MemoryError"
    else:
        answer = "works"
        telling.log.truncate_to(history.end)
    del value
    telling.append()
    telling.close()
    check_again(directory, history)
    return answer


def large_log(directory: Path) -> str:
    """2 GiB, read in a group of processes that may use 256 MiB."""
    with Log.open(str(directory)) as log:
        count = size = 0
        for record in log.scan():
            count += 1
            size += len(record.value or b"")
        assert count == log.log_end_offset
        assert size >= 2040 * MIB
        assert log.get(count - 1) is not None
    return "works"


def large_salvage(directory: Path) -> str:
    """1 GiB, read and written, in a group of processes that may use 256 MiB."""
    report = salvage(directory, directory.parent / "salvaged" / directory.name)
    assert (report.records, report.losses) == (1024, ())
    assert report.bytes_written >= 1024 * MIB
    return "works"


def large_restore(directory: Path) -> str:
    """The same log restored, which is also read back."""
    (directory.parent / "restored").mkdir()
    report = restore(directory, directory.parent / "restored")
    assert [(each.state, each.records) for each in report.partitions] == [("restored", 1024)]
    assert not report.has_losses
    return "works"


def large_why(directory: Path) -> str:
    """What holds 1 GiB of records, and who wrote them."""
    with LogDir.open(directory.parent) as log_dir:
        (deletion,) = log_dir.why(topics="topic")
        assert (deletion.question, deletion.topic) == ("deletion", "topic")
        assert log_dir.producers() == []
    return "works"


PARTITIONS, PRODUCERS, OF_ONE = 2_000, 20, 20_000
"""Partitions of `many`, producers of each of them, and those of one that has many."""
SALVAGED = 400


def sources(directory: Path) -> list[Path]:
    """The two log dirs with a replica of each partition, which `test_limits.py` makes."""
    return [directory.parent / name for name in ("one", "two")]


def many_restore(directory: Path) -> str:
    """Each partition from the better of two replicas, with all producers, and read back."""
    into = directory.parent / "restored"
    into.mkdir()
    report = restore(sources(directory), into)
    assert not report.has_losses
    assert {(each.state, len(each.other_replicas)) for each in report.partitions} == {("restored", 1)}
    assert sum(each.records or 0 for each in report.partitions) == PARTITIONS * PRODUCERS + OF_ONE
    with LogDir.open(into) as log_dir:
        assert len(log_dir.partitions()) == PARTITIONS + 1
        assert len(log_dir.producers(topics="one")) == OF_ONE
    return "works"


def many_salvage(directory: Path) -> str:
    """One partition after the other, as the command does it: a part of them, since each one is synced."""
    (source, _), records = sources(directory), 0
    for partition in (source / "one-0", *(source / f"many-{number}" for number in range(SALVAGED))):
        report = salvage(partition, directory.parent / "salvaged" / partition.name)
        assert (report.losses, report.taken_back) == ((), ())
        records += report.records
    assert records == SALVAGED * PRODUCERS + OF_ONE
    return "works"


def many_why(directory: Path) -> str:
    """An answer about deletion for each partition, and for each one with an open transaction another."""
    with LogDir.open(sources(directory)) as log_dir:
        answers = log_dir.why()
    assert [each.question for each in answers].count("deletion") == PARTITIONS + 1
    assert [each.reason for each in answers].count("open-transaction") == PARTITIONS
    return "works"


def many_producers(directory: Path) -> str:
    """All producers of all partitions, and those whose transaction is open."""
    with LogDir.open(sources(directory)) as log_dir:
        assert len(log_dir.producers()) == PARTITIONS * PRODUCERS + OF_ONE
        held = log_dir.producers(open_only=True)
    assert {(each.topic, each.transaction_first_offset) for each in held} == {("many", PRODUCERS - 1)}
    assert len(held) == PARTITIONS
    return "works"


RUNS: dict[str, Callable[[Path], str]] = {
    "many segments": many_segments,
    "many logs": many_logs,
    "roll without descriptors": roll_without_descriptors,
    "small files": small_files,
    "memory bomb": memory_bomb,
    "memory for columns": memory_columns,
    "memory for appending": memory_append,
    "large log": large_log,
    "large salvage": large_salvage,
    "large restore": large_restore,
    "large why": large_why,
    "many restore": many_restore,
    "many salvage": many_salvage,
    "many why": many_why,
    "many producers": many_producers,
}

if __name__ == "__main__":
    if len(sys.argv) > 3:
        Path(sys.argv[3], "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    print(RUNS[sys.argv[1]](Path(sys.argv[2])))
