"""Rows that keep their offsets, and the batches of one log appended to another; Kafka's own opinion is in tests/oracle/test_restore.py."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from writing import Clock, abandon

from offsetlog import AppendInfo, Log, WritableLog
from offsetlog.errors import ConfigError, LogClosedError, RecordRejectedError, UnexpectedAppendOffsetError

NOTHING = AppendInfo(-1, -1, -1, -1, False)


def table(offsets: list[int | None], **more: pa.Array) -> pa.Table:
    values = pa.array([f"at {offset}".encode() for offset in offsets], pa.binary())
    return pa.table({"value": values, "offset": pa.array(offsets, pa.int64()), **more})


def stored(log: Log) -> list[tuple[int, bytes | None, int]]:
    return [(record.offset, record.value, record.leader_epoch) for record in log.scan()]


@pytest.fixture
def log(tmp_path: Path) -> WritableLog:
    return Log.open(tmp_path / "orders-0", "a", clock=Clock())


def test_gaps_stay_gaps_and_epochs_begin_batches(log: WritableLog) -> None:
    epochs = pa.array([0, 0, None, 3, -1, 3, 4], pa.int32())
    info = log.append_arrow(table([5, 6, 9, 10, 2**31 + 20, 2**33, 2**33 + 1], leaderEpoch=epochs), preserve_offsets=True)
    assert (info.base_offset, info.last_offset) == (5, 2**33 + 1)
    assert [(batch.base_offset, batch.last_offset, batch.leader_epoch) for batch in log.batches()] == [
        (5, 9, 0),
        (10, 10, 3),
        # More than 2^31 offsets are no batch.
        (2**31 + 20, 2**31 + 20, 3),
        (2**33, 2**33, 3),
        (2**33 + 1, 2**33 + 1, 4),
    ]
    assert [offset for offset, _, _ in stored(log)] == [5, 6, 9, 10, 2**31 + 20, 2**33, 2**33 + 1]
    assert log.append(b"next") == 2**33 + 2
    assert log.leader_epoch == 4


def test_without_the_option_a_log_gives_its_own(log: WritableLog) -> None:
    log.append_arrow(table([5, 3, None], leaderEpoch=pa.array([9, 1, 2], pa.int32())))
    assert [(offset, epoch) for offset, _, epoch in stored(log)] == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (table([4, 4]), RecordRejectedError, "row 1: offset 4 found, 5 or more expected"),
        (table([7, 2]), RecordRejectedError, "row 1: offset 2 found, 8 or more"),
        (table([4, None]), RecordRejectedError, "row 1: no offset"),
        (table([-1]), RecordRejectedError, "row 0: offset -1"),
        (table([2**63 - 1]), RecordRejectedError, "row 0: offset"),
        (table([1, 2], leaderEpoch=pa.array([2, 1], pa.int32())), RecordRejectedError, "row 1: leader epoch 1 found behind 2"),
        (table([1], leaderEpoch=pa.array([-2], pa.int32())), RecordRejectedError, "leader epoch -2"),
        (table([2, 3]), UnexpectedAppendOffsetError, "2"),
        (pa.table({"value": [b"x"]}), ConfigError, 'no column "offset"'),
        (pa.table({"value": [b"x"], "offset": pa.array([7], pa.int32())}), ConfigError, '"offset" is Int32, Int64 expected'),
        (pa.table({"value": [b"x"], "offset": [7], "leaderEpoch": ["a"]}), ConfigError, '"leaderEpoch" is'),
    ],
)
def test_refused_before_anything_is_appended(log: WritableLog, data: pa.Table, error: type[Exception], match: str) -> None:
    log.append_records([b"one", b"two", b"three"])
    before = stored(log)
    with pytest.raises(error, match=match):
        log.append_arrow(data, preserve_offsets=True)
    assert stored(log) == before
    assert log.log_end_offset == 3


def test_order_holds_over_the_batches_of_a_stream(log: WritableLog) -> None:
    first, second = table([1, 2]), table([2, 3])
    reader = pa.RecordBatchReader.from_batches(first.schema, [*first.to_batches(), *second.to_batches()])
    with pytest.raises(RecordRejectedError, match="row 2: offset 2"):
        log.append_arrow(reader, preserve_offsets=True)
    assert log.log_end_offset == 0


def test_batches_move_behind_others(log: WritableLog, tmp_path: Path) -> None:
    with Log.open(tmp_path / "aside-0", "a", {"internal.segment.bytes": 400}, clock=Clock()) as aside:
        for number in range(20):
            aside.append_records([b"a%d" % number, b"b%d" % number], compression="lz4", leader_epoch=number)
        log.append(b"first", leader_epoch=3)
        info = log.append_log(aside, leader_epoch=30)
        assert (info.base_offset, info.last_offset) == (1, 40)
        assert [value for _, value, _ in stored(log)] == [b"first", *(record.value for record in aside.scan())]
        assert {epoch for offset, _, epoch in stored(log) if offset} == {30}
        assert [batch.size_bytes for batch in log.batches()][1:] == [batch.size_bytes for batch in aside.batches()]
        assert log.append_log(aside, start=38).base_offset == 41
        assert log.append_log(aside, start=40) == NOTHING
        with pytest.raises(ConfigError, match="offset 37 is inside the batch that begins at 36"):
            log.append_log(aside, start=37)
        with pytest.raises(UnexpectedAppendOffsetError):
            log.append_log(aside, preserve_offsets=True)
    assert log.log_end_offset == 43


def test_offsets_stay_where_that_is_asked_for(log: WritableLog, tmp_path: Path) -> None:
    with Log.open(tmp_path / "aside-0", "a", clock=Clock()) as aside:
        aside.append_arrow(table([7, 9], leaderEpoch=pa.array([1, 2], pa.int32())), preserve_offsets=True)
        log.append(b"first")
        info = log.append_log(aside, preserve_offsets=True, flush=True)
    assert (info.base_offset, info.last_offset) == (7, 9)
    assert stored(log) == [(0, b"first", 0), (7, b"at 7", 1), (9, b"at 9", 2)]
    assert log.durable_end_offset == 10


def test_an_empty_log_and_a_closed_one(log: WritableLog, tmp_path: Path) -> None:
    with Log.open(tmp_path / "aside-0", "a") as aside:
        assert log.append_log(aside) == NOTHING
    with pytest.raises(LogClosedError):
        log.append_log(aside)
    with pytest.raises(ConfigError, match="mode"), Log.open(tmp_path / "orders-0") as reader:
        reader.append_log(log)  # type: ignore[attr-defined]


def test_a_log_onto_itself_doubles_it_once(log: WritableLog) -> None:
    log.append_records([b"one", b"two"])
    assert log.append_log(log).last_offset == 3
    assert [value for _, value, _ in stored(log)] == [b"one", b"two"] * 2


def test_two_threads_move_at_once(log: WritableLog, tmp_path: Path) -> None:
    """Chunks of both may alternate; each batch is there whole, and once."""
    asides = []
    for number in range(2):
        aside = Log.open(tmp_path / f"aside-{number}", "a", clock=Clock())
        for _ in range(20):
            aside.append_records([bytes([number]) + os.urandom(50_000) for _ in range(10)])
        asides.append(aside)
    threads = [threading.Thread(target=log.append_log, args=(aside,)) for aside in asides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [value for _, value, _ in stored(log)]
    for number, aside in enumerate(asides):
        assert [value for value in found if value and value[0] == number] == [record.value for record in aside.scan()]
        aside.close()
    assert len(found) == 400


def test_what_was_moved_survives_a_kill(log: WritableLog, tmp_path: Path) -> None:
    with Log.open(tmp_path / "aside-0", "a", clock=Clock()) as aside:
        aside.append_records([b"one", b"two"])
        log.append_log(aside)
    abandon(log)
    with Log.open(tmp_path / "orders-0", "a", clock=Clock()) as again:
        assert [value for _, value, _ in stored(again)] == [b"one", b"two"]
