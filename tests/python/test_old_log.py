"""``OldLog``: partitions of Kafka 0.7 as a consumer of that age read them.

No broker of 0.7 runs here. What must be read is worked out beside the bytes, by the rules of FORMAT.md («Message of Kafka 0.7»): an
entry has the position of its first byte, and all messages of a compressed set have that of the set.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from old_layout import gzipped, message, partition, snappied
from writing import tree

from offsetlog import (
    ConfigError,
    CorruptBatchError,
    DecompressionLimitError,
    LimitExceededError,
    Log,
    LogDirError,
    OffsetOutOfRangeError,
    OldLog,
    OldRecord,
    convert,
)
from offsetlog._offsetlog import run_cli

Made = tuple[bytes, list[OldRecord]]


def one(value: bytes, at: int, magic: int) -> Made:
    """An entry of one message at this position."""
    entry = message(value, magic=magic)
    return entry, [OldRecord(at, at + len(entry), value)]


def of_set(values: list[bytes], at: int, pack: Callable[[bytes], bytes]) -> Made:
    """A compressed set: one cannot go on within it, only behind its last message."""
    entry = pack(b"".join(message(value, magic=slot % 2) for slot, value in enumerate(values)))
    found = [OldRecord(at, at, value) for value in values]
    found[-1] = found[-1]._replace(next_offset=at + len(entry))
    return entry, found


def written(path: Path, chosen: random.Random, start: int) -> list[OldRecord]:
    """A random partition of three files; what a consumer gets of it."""
    files, found, at = [], list[OldRecord](), start
    for _ in range(3):
        content = b""
        for _ in range(chosen.randint(1, 60)):
            values = [chosen.randbytes(chosen.choice((0, 1, 40, 5000))) for _ in range(chosen.randint(1, 5))]
            kind = chosen.random()
            made = one(values[0], at, 0) if kind < 0.3 else one(values[0], at, 1) if kind < 0.6 else None
            entry, records = made or of_set(values, at, gzipped if kind < 0.8 else snappied)
            content += entry
            found += records
            at += len(entry)
        files.append(content)
    partition(path, files, start=start)
    return found


@pytest.mark.parametrize("round_number", range(20))
def test_messages_have_the_positions_of_their_entries(tmp_path: Path, round_number: int) -> None:
    seed = os.environ.get("OFFSETLOG_SEED") or str(random.SystemRandom().randrange(10**9))
    print(f"OFFSETLOG_SEED={seed}")
    chosen = random.Random(f"{seed} {round_number}")
    start = chosen.choice((0, 123_456, 2**40))
    wanted = written(tmp_path / "clicks-7", chosen, start)
    before = tree(tmp_path)
    log = OldLog.open(tmp_path / "clicks-7")
    assert (log.topic, log.partition, log.path) == ("clicks", 7, str(tmp_path / "clicks-7"))
    end = wanted[-1].next_offset
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (start, end, end - start)
    assert list(log.scan()) == wanted
    # As a consumer went on: from where the last message said.
    for record in chosen.sample(wanted, 5):
        assert list(log.scan(record.offset)) == [other for other in wanted if other.offset >= record.offset]
        assert log.read(record.offset) == tuple(other for other in wanted if other.offset == record.offset)
    assert list(log.scan(end)) == []
    assert log.read(end) == ()
    assert list(pickle.loads(pickle.dumps(log)).scan()) == wanted
    assert repr(log) == f"OldLog({str(tmp_path / 'clicks-7')!r}, offsets {start} to {end})"
    assert tree(tmp_path) == before
    report = convert(log.path, tmp_path / "new" / "clicks-7")
    with Log.open(report.path) as new:
        assert [record.value for record in new.scan()] == [record.value for record in wanted]


def test_only_places_of_entries_are_read(tmp_path: Path) -> None:
    log = OldLog.open(partition(tmp_path / "clicks-7", [message(b"one") + message(b"two")], start=50))
    assert [record.value for record in log.read(63)] == [b"two"]
    for wrong in (51, 62, 75):
        with pytest.raises(ConfigError, match=f"start: {wrong} found, the position of an entry expected"):
            log.read(wrong)
    for outside in (0, 49, 77):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.scan(outside)
        assert (caught.value.requested, caught.value.log_start_offset, caught.value.log_end_offset) == (outside, 50, 76)
    with pytest.raises(TypeError, match="start must be an int"):
        log.scan("50")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"OldLog\.open"):
        OldLog()


def test_an_unfinished_end_is_the_end_and_damage_is_named(tmp_path: Path) -> None:
    """What stands before damage is given first."""
    whole = message(b"one") + message(b"two")
    log = OldLog.open(partition(tmp_path / "clicks-0", [whole + message(b"never")[:-2]]))
    assert [record.value for record in log.scan()] == [b"one", b"two"]
    damaged = bytearray(message(b"three"))
    damaged[-1] ^= 1
    log = OldLog.open(partition(tmp_path / "clicks-1", [whole, bytes(damaged) + whole]))
    scan = log.scan()
    assert [next(scan).value, next(scan).value] == [b"one", b"two"]
    with pytest.raises(CorruptBatchError) as caught:
        next(scan)
    assert (caught.value.position, caught.value.offset) == (0, len(whole))
    assert str(caught.value.path).endswith(f"{len(whole):020}.kafka")


def test_limits_hold(tmp_path: Path) -> None:
    path = partition(tmp_path / "clicks-7", [message(bytes(100_000)) + gzipped(message(bytes(100_000)))])
    assert [len(record.value) for record in OldLog.open(path).scan()] == [100_000, 100_000]
    with pytest.raises(LimitExceededError):
        list(OldLog.open(path, max_batch_bytes=99_999).scan())
    with pytest.raises(DecompressionLimitError):
        list(OldLog.open(path, max_decompressed_bytes=99_999).scan())


def test_directories_that_are_no_such_partition(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OldLog.open(tmp_path / "missing-0")
    with pytest.raises(LogDirError, match="not topic-partition"):
        OldLog.open(partition(tmp_path / "clicks", [message(b"one")]))
    hole = partition(tmp_path / "clicks-1", [message(b"one")])
    (hole / f"{100:020}.kafka").write_bytes(message(b"two"))
    with pytest.raises(LogDirError, match="begins at position 100 of the partition, 13 expected"):
        OldLog.open(hole)


@pytest.mark.parametrize("verb", ["cat", "ls", "explain", "recover"])
def test_the_command_line_says_what_to_do(tmp_path: Path, verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    """For the partition directory, and for the log dir around it."""
    path = partition(tmp_path / "clicks-7", [message(b"one")])
    before = tree(tmp_path)
    for named in (path, tmp_path):
        offset = ["0"] if verb == "explain" else []
        assert run_cli(["offsetlog", verb, *offset, str(named)]) == 2
        said = capfd.readouterr()
        assert "a partition of Kafka 0.7 (.kafka files); `offsetlog convert` makes a current directory of it" in said.err
        # The list names it all the same, with nothing known.
        rows = [line.split()[:3] for line in said.out.splitlines()[1:]]
        assert rows == ([["clicks", "7", "-"]] if verb == "ls" else [])
    assert tree(tmp_path) == before
