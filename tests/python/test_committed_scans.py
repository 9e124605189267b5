"""Scans of committed records while the log is cut, compacted, closed and damaged under them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from make_log import crc32c
from writing import Clock, python

from offsetlog import CorruptBatchError, InvalidRecordError, Log, Record, Scan, WritableLog
from offsetlog._options import OnCorrupt

COMMITTED = {"isolation_level": "read_committed"}

REWRITES = """
import sys
from offsetlog import Log
with Log.open(sys.argv[1], "a") as log:
    log.truncate_to(500)
    for number in range(20):
        log.append_records([b"NEW" + b"." * 9000], producer_id=1, producer_epoch=99, base_sequence=number, transactional=True)
    if {ends}:
        log.append_marker(1, 99, commit={commits})
    for _ in range(400):
        log.append(b"after" + b"." * 9000)
"""


@pytest.mark.parametrize("end", ["open", "abort", "commit"])
def test_another_process_cuts_the_log_and_writes_other_transactions(tmp_path: Path, end: str) -> None:
    path = tmp_path / "orders-0"
    with Log.open(path, "a") as log:
        while log.log_end_offset < 800:
            epoch = log.log_end_offset // 10
            for number in range(9):
                log.append_records(
                    [b"old" + b"." * 9000], producer_id=1, producer_epoch=epoch, base_sequence=number, transactional=True
                )
            log.append_marker(1, epoch, commit=end != "commit")
    with Log.open(path) as reader:
        scan = reader.scan(**COMMITTED)  # type: ignore[arg-type]
        under_way = iter(scan)
        first = [] if end == "commit" else [next(under_way)]
        python(REWRITES.format(ends=end != "open", commits=end == "commit"), path)
        values = [(record.value or b"")[:3] for record in [*first, *under_way]]
        fresh = [(record.value or b"")[:3] for record in reader.scan(**COMMITTED)]  # type: ignore[arg-type]
    assert fresh.count(b"NEW") == (20 if end == "commit" else 0)
    assert values.count(b"NEW") == fresh.count(b"NEW")
    assert values.count(b"aft") in {0, fresh.count(b"aft")}


def hidden(path: Path, log: WritableLog) -> None:
    """Cut the log, leave a transaction open and damage what is behind it, so that nobody knows the last stable offset."""
    log.truncate_to(2)
    log.append_records([b"OPEN1", b"OPEN2"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(b"behind")
    log.append(b"last")
    log.close()
    segment = path / f"{1:020d}.log"
    damaged = bytearray(segment.read_bytes())
    damaged[damaged.index(b"behind")] ^= 1
    segment.write_bytes(damaged)
    without_state(path)


def without_state(path: Path) -> None:
    for state in (*path.glob("*.snapshot"), path / ".offsetlog.state"):
        state.unlink(missing_ok=True)


@pytest.mark.parametrize("stop", [None, 4])
@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_an_open_transaction_is_not_committed_because_damage_hides_it(tmp_path: Path, on_corrupt: OnCorrupt, stop: int | None) -> None:
    path = tmp_path / "orders-0"
    log = Log.open(path, "a", clock=Clock())
    log.append(b"plain")
    log.roll()
    for value in (b"a", b"b", b"c", b"d"):
        log.append(value)
    scan = log.scan(stop=stop, on_corrupt=on_corrupt, **COMMITTED)  # type: ignore[arg-type]
    under_way = iter(scan)
    assert next(under_way).value == b"plain"
    hidden(path, log)
    found: list[bytes | None] = []
    if on_corrupt == "raise":
        with pytest.raises(CorruptBatchError):
            found.extend(record.value for record in under_way)
        assert found in ([], [b"a"])
        return
    found.extend(record.value for record in under_way)
    assert found == [b"a", b"last"][: 1 if stop else 2]
    assert next((hole.start, hole.stop) for hole in scan.report.holes) == (2, 4)
    assert len(scan.report.holes) == (1 if stop else 2)


def begun(log: WritableLog, on_corrupt: OnCorrupt, *more: bytes) -> tuple[Scan, Iterator[Record]]:
    """Begin a scan that has opened the first segment: a transaction and the old value of a key are in the next one."""
    log.append(b"plain", key=b"p")
    log.roll()
    log.append_records([b"t"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_marker(1, 0, commit=True)
    log.append(b"old", key=b"k")
    for value in more:
        log.append(value, key=value)
    log.roll()
    scan = log.scan(on_corrupt=on_corrupt, **COMMITTED)  # type: ignore[arg-type]
    under_way = iter(scan)
    assert next(under_way).value == b"plain"
    return scan, under_way


def compacted(log: WritableLog) -> None:
    """Move the newest value of the key behind the end that the scan began with."""
    log.append(b"new", key=b"k")
    log.roll()
    log.compact()


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_damage_behind_a_compaction_is_told(tmp_path: Path, on_corrupt: OnCorrupt) -> None:
    """Damage hides the new last stable offset: the newest value of the key is returned, or the damage is raised."""
    path = tmp_path / "orders-0"
    with Log.open(path, "a", clock=Clock()) as log:
        scan, under_way = begun(log, on_corrupt)
        compacted(log)
        log.append(b"behind")
        log.append(b"last")
    active = path / f"{5:020d}.log"
    damaged = bytearray(active.read_bytes())
    damaged[damaged.index(b"behind")] ^= 1
    active.write_bytes(damaged)
    without_state(path)
    if on_corrupt == "raise":
        with pytest.raises(CorruptBatchError):
            list(under_way)
        return
    assert [record.value for record in under_way] == [b"new", b"last"]
    assert [(hole.start, hole.stop) for hole in scan.report.holes] == [(5, 6)]


@pytest.mark.parametrize("which", ["magic", "length", "payload"])
def test_damage_at_the_old_end_hides_no_newer_value(tmp_path: Path, which: str) -> None:
    """It lies between the end that the scan began with, and the newest value of the key."""
    path = tmp_path / "orders-0"
    with Log.open(path, "a", clock=Clock()) as log:
        scan, under_way = begun(log, "skip", b"other")
        log.append(b"filler", key=b"f")
        compacted(log)
        log.append(b"last")
    (segment,) = [each for each in path.glob("*.log") if b"filler" in each.read_bytes()]
    damaged = bytearray(segment.read_bytes())
    at = 0
    while b"filler" not in damaged[at : (behind := at + 12 + struct.unpack(">i", damaged[at + 8 : at + 12])[0])]:
        at = behind
    at += {"magic": 16, "length": 8, "payload": damaged[at:].index(b"filler")}[which]
    damaged[at] ^= 0x70
    segment.write_bytes(damaged)
    without_state(path)
    assert [record.value for record in under_way] == [b"other", b"new", b"last"]
    assert [(hole.start, hole.stop) for hole in scan.report.holes] == [(5, 6)]


def test_a_stop_above_the_last_stable_offset_is_reached_once_it_rises(tmp_path: Path) -> None:
    """A compaction takes the old value of a key away, and the new one lies between that offset and the stop."""
    path = tmp_path / "orders-0"
    with Log.open(path, "a", {"internal.segment.bytes": 20_000}, clock=Clock()) as log:
        for number in range(3):
            log.append(b"." * 15_000, key=b"pad%d" % number)
            if number == 1:
                log.append(b"old", key=b"k")
            log.roll()
        log.append_records([(b"u", b"t")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        log.append(b"new", key=b"k")
        log.append(b"x", key=b"x")
        assert log.last_stable_offset == 4
        with Log.open(path) as reader:
            under_way = iter(reader.scan(stop=7, **COMMITTED))  # type: ignore[arg-type]
            keys = [next(under_way).key]
            log.append_marker(1, 0, commit=True)
            log.roll()
            log.append(b"z", key=b"z")
            log.compact()
            keys += [record.key for record in under_way]
    assert b"k" in keys
    assert b"z" not in keys


def test_damage_of_a_copied_log_is_no_refusal(tmp_path: Path) -> None:
    source = tmp_path / "a" / "orders-0"
    with Log.open(source, "a", clock=Clock()) as log:
        log.append_records([b"t"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_marker(1, 0, commit=True)
        log.append(b"x")
    segment = source / f"{0:020d}.log"
    damaged = bytearray(segment.read_bytes())
    at = 12 + struct.unpack(">i", damaged[8:12])[0]
    end = at + 12 + struct.unpack(">i", damaged[at + 8 : at + 12])[0]
    damaged[at + 61 + 4] = 6
    damaged[at + 17 : at + 21] = struct.pack(">I", crc32c(bytes(damaged[at + 21 : end])))
    segment.write_bytes(damaged)
    without_state(source)
    with Log.open(source) as log, Log.open(tmp_path / "b" / "orders-0", "a", clock=Clock()) as copy:
        with pytest.raises(InvalidRecordError) as caught:
            copy.append_log(log)
        assert caught.value.path == str(source)
