"""``convert`` and ``salvage`` keep what a log knows of its producers, also where only deleted records and snapshots tell it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import PARTITIONS, Golden

from offsetlog import Log, LogDir, OutOfOrderSequenceError, WritableLog, convert, salvage

Made = Callable[[Path, Path], object]
VERBS: dict[str, Made] = {
    "convert": convert,
    "convert to zstd": lambda old, new: convert(old, new, compression="zstd"),
    "salvage": salvage,
}


def sent(log: WritableLog, sequence: int) -> tuple[int, bool]:
    """Three records of producer 7: their first offset, and whether they were there already."""
    found = log.append_records([b"x" * 100] * 3, producer_id=7, producer_epoch=0, base_sequence=sequence)
    return found.base_offset, found.duplicate


def others(log: WritableLog, count: int) -> None:
    for _ in range(count):
        log.append(b"plain" * 20)


def deleted(path: Path, *, segments: bool) -> WritableLog:
    """A log whose records of producer 7, and the first ones of a transaction of producer 9, are deleted."""
    config = {"internal.segment.bytes": 400 if segments else 1 << 20, "file.delete.delay.ms": 0}
    log = Log.open(path, "a", config=config)
    for slot in range(5):
        assert sent(log, 3 * slot) == (3 * slot, False)
    others(log, 10)
    log.append_records([b"t"], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    others(log, 10)
    log.delete_records_before(30)
    log.maintain()
    assert (log.last_stable_offset, log.log_start_offset, log.log_end_offset) == (30, 30, 36)
    return log


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize("segments", [True, False], ids=["segments deleted", "one segment"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_retry_of_deleted_records_is_recognised(tmp_path: Path, verb: str, segments: bool, is_open: bool) -> None:
    """As on the old log: the batch that was sent is a duplicate, a gap is refused, and the open transaction holds readers back."""
    old, new = tmp_path / "old/t-0", tmp_path / "new/t-0"
    log = deleted(old, segments=segments)
    if not is_open:
        log.close()
    VERBS[verb](old, new)
    with Log.open(new) as reader:
        assert reader.last_stable_offset == 30
    log.close()
    for path in (old, new):
        with Log.open(path, "a") as written:
            assert (written.last_stable_offset, written.log_start_offset, written.log_end_offset) == (30, 30, 36)
            assert sent(written, 12) == (12, True)
            with pytest.raises(OutOfOrderSequenceError):
                sent(written, 99)
            assert sent(written, 15) == (36, False)
            # The marker ends the transaction that began among the deleted records.
            written.append_marker(9, 0, commit=False, coordinator_epoch=0, transaction_version=1)
            assert written.last_stable_offset == 40


@pytest.mark.parametrize("verb", VERBS)
def test_producers_that_went_on_are_those_of_their_last_batches(tmp_path: Path, verb: str) -> None:
    """Batches behind the log start offset count; a transaction that began before it and goes on behind it is one."""
    old, new = tmp_path / "old/t-0", tmp_path / "new/t-0"
    with deleted(old, segments=True) as log:
        log.append_records([b"t"], producer_id=9, producer_epoch=0, base_sequence=1, transactional=True)
        assert sent(log, 15) == (37, False)
        others(log, 5)
    VERBS[verb](old, new)
    for path in (old, new):
        with Log.open(path, "a") as written:
            assert written.last_stable_offset == 30
            assert sent(written, 15) == (37, True)
            found = written.append_records([b"t"], producer_id=9, producer_epoch=0, base_sequence=1, transactional=True)
            assert (found.base_offset, found.duplicate) == (36, True)
            written.append_marker(9, 0, commit=True, coordinator_epoch=0, transaction_version=1)
            assert written.last_stable_offset == written.log_end_offset
            committed = [record.offset for record in written.scan(isolation_level="read_committed")]
            assert committed[:11] == [*range(30, 41)]


def test_a_transaction_that_ended_is_not_opened_again(tmp_path: Path) -> None:
    """It began among the deleted records, and its marker is behind them."""
    old, new = tmp_path / "old/t-0", tmp_path / "new/t-0"
    with deleted(old, segments=True) as log:
        log.append_marker(9, 0, commit=False, coordinator_epoch=3, transaction_version=1)
        others(log, 5)
    convert(old, new)
    with Log.open(new, "a") as written:
        assert written.last_stable_offset == written.log_end_offset == 42


def test_damage_among_deleted_records_is_told(tmp_path: Path) -> None:
    """It hides producers and no record that can be read."""
    old = tmp_path / "old/t-0"
    with deleted(old, segments=False):
        pass
    for snapshot in old.glob("*.snapshot"):
        snapshot.unlink()
    (file,) = old.glob("*.log")
    content = bytearray(file.read_bytes())
    content[8:12] = b"\xff\xff\xff\xff"
    file.write_bytes(content)
    report = convert(old, tmp_path / "new/t-0")
    assert (report.records, report.missing_offsets) == (6, ())
    (warning,) = report.warnings
    assert "of producers is not taken over" in warning


def test_markers_of_later_batches_are_not_known_before_them(tmp_path: Path) -> None:
    """The newest snapshot knows of two producers only their last markers, which are in the log: none of them is known at its begin."""
    (golden,) = [
        each for each in PARTITIONS if each.name == "g-txn-1" and "4.3.0" in str(each.directory) and "clean" in str(each.directory)
    ]
    convert(golden.directory, tmp_path / "g-txn-1", compression="gzip")
    found = {path.name: read_snapshot(path) for path in tmp_path.glob("*/*.snapshot")}
    # As in the old directory: producer 4 with two records, and no marker.
    old = read_snapshot(golden.directory / f"{2:020}.snapshot")
    assert old == [(4, 0, None)]
    assert found[f"{2:020}.snapshot"] == old
    assert found[f"{81:020}.snapshot"] == read_snapshot(golden.directory / f"{81:020}.snapshot")


def read_snapshot(path: Path) -> list[tuple[int, int, int | None]]:
    """Producer id, epoch and coordinator epoch of each producer."""
    lines = [json.loads(line) for line in run([sys.executable, "-m", "offsetlog", "dump", str(path)]).splitlines()]
    return [(each["producer_id"], each["producer_epoch"], each["coordinator_epoch"]) for each in lines if each["type"] == "producer"]


def run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
def test_the_producers_of_a_broker_are_kept(golden: Golden, tmp_path: Path) -> None:
    """Each one as it was in the old directory: epochs, sequences, offsets, open transactions."""
    old = golden.copy(tmp_path / "old")
    convert(old, tmp_path / "new" / golden.name)
    with LogDir.open(tmp_path / "old") as before, LogDir.open(tmp_path / "new") as after:
        wanted = [producer._replace(path="") for producer in before.producers()]
        assert [producer._replace(path="") for producer in after.producers()] == wanted
