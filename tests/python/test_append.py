"""Every public call of a log in mode "a": what it does when all is well."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from frames import all_frames, frames
from make_log import batch
from writing import FIRST, LOCK, NOW, SMALL, STATE, Clock, coded, filled, offsets, state, tree, values, writing_calls

import offsetlog
from offsetlog import AppendInfo, Log, LogConfig, Record, WritableLog, Writer

# What this and the other files of appending call; a new method fails the test at the end until somebody tests it.
TESTED = {
    "append",
    "append_arrow",
    "append_as_follower",
    "append_batches",
    "append_log",
    "append_marker",
    "append_records",
    "compact",
    "config",
    "delete_records_before",
    "durable_end_offset",
    "end_offset_for_epoch",
    "flush",
    "maintain",
    "recovery_point",
    "recovery_report",
    "roll",
    "truncate_fully_and_start_at",
    "truncate_to",
    "writer",
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    """A new log whose clock stands still."""
    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=Clock()) as log:
        yield log


def only_record(log: Log) -> Record:
    (record,) = log.scan()
    return record


def test_a_new_log_is_made_and_empty(tmp_path: Path) -> None:
    path = tmp_path / "orders-7"
    with Log.open(path, "a") as log:
        assert (log.topic, log.partition, log.path, log.mode, log.closed) == ("orders", 7, str(path), "a", False)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (0, 0, 0, 0)
        assert (log.leader_epoch, log.recovery_point, log.size_bytes, log.topic_id) == (None, 0, 0, None)
        assert [segment.base_offset for segment in log.segments] == [0]
        assert log.config == LogConfig()
        assert values(log) == []
        assert "orders-7" in repr(log)
        assert "0 to 0" in repr(log)
    assert log.closed
    assert {FIRST, "leader-epoch-checkpoint", LOCK, STATE} <= set(tree(path))


def test_folders_above_a_new_log_are_made_too(tmp_path: Path) -> None:
    with Log.open(tmp_path / "data" / "logs" / "orders-0", "a") as log:
        log.append(b"a")
    assert [path.name for path in tmp_path.glob("*/*/*")] == ["orders-0"]


def test_append_gives_offsets_and_keeps_every_field(log: WritableLog) -> None:
    assert log.append(b"paid", key=b"order-7", headers=[("trace", b"1"), ("trace", None), ("", b"")], timestamp=NOW + 5) == 0
    record = only_record(log)
    assert (record.offset, record.key, record.value, record.timestamp, record.timestamp_type) == (0, b"order-7", b"paid", NOW + 5, 0)
    assert record.headers == (("trace", b"1"), ("trace", None), ("", b""))
    assert (record.leader_epoch, record.producer_id, record.is_transactional, record.is_control) == (0, -1, False, False)
    assert log.append(None) == 1
    assert log.append(b"") == 2
    assert values(log) == [b"paid", None, b""]
    assert log.get(1) == list(log.scan())[1]
    assert log.log_end_offset == log.high_watermark == log.last_stable_offset == 3


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_append_takes_every_buffer(log: WritableLog, kind: type[bytes]) -> None:
    log.append(kind(b"value"), key=kind(b"key"), headers=[("name", kind(b"header"))])
    record = only_record(log)
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("name", b"header"),))


def test_append_takes_headers_of_any_shape(log: WritableLog) -> None:
    log.append(b"1", headers={"a": b"1", "b": None})  # type: ignore[dict-item]  # a mapping does as well
    log.append(b"2", headers=(pair for pair in [("a", b"1"), ("b", None)]))
    log.append(b"3", headers=[["a", b"1"], ["b", None]])  # type: ignore[list-item]  # a list is as good as a tuple
    assert [record.headers for record in log.scan()] == [(("a", b"1"), ("b", None))] * 3


def test_append_takes_times_as_ms_and_as_datetime(log: WritableLog) -> None:
    when = datetime(2023, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
    log.append(b"a", timestamp=when)
    log.append(b"b", timestamp=int(when.timestamp() * 1000))
    log.append(b"c", timestamp=-1)
    log.append(b"d")
    first, second, none, now = log.scan()
    assert first.timestamp == second.timestamp == 1_683_356_889_123
    assert first.datetime == when
    assert (none.timestamp, none.datetime) == (-1, None)
    assert now.timestamp == NOW


def test_without_a_clock_the_time_is_the_wall_clocks(tmp_path: Path) -> None:
    before = datetime.now(tz=UTC)
    with Log.open(tmp_path / "orders-0", "a") as log:
        log.append(b"")
        taken = only_record(log).datetime
    assert taken is not None
    assert before - timedelta(milliseconds=1) <= taken <= datetime.now(tz=UTC)


def test_append_records_is_one_batch_of_all_shapes(log: WritableLog, tmp_path: Path) -> None:
    with Log.open(tmp_path / "other-0", "a", clock=Clock(NOW - 1000)) as other:
        other.append(b"old", key=b"o", headers=[("h", b"x")])
        record = only_record(other)
    info = log.append_records([b"value", (b"key", b"both"), None, (None, None), (b"tombstone", None), record])
    assert info == AppendInfo(0, 5, NOW, -1, duplicate=False)
    assert [(r.key, r.value, r.timestamp) for r in log.scan()] == [
        (None, b"value", NOW),
        (b"key", b"both", NOW),
        (None, None, NOW),
        (None, None, NOW),
        (b"tombstone", None, NOW),
        (b"o", b"old", NOW - 1000),
    ]
    assert list(log.scan())[-1].headers == (("h", b"x"),)
    (frame,) = all_frames(Path(log.path))
    assert (frame.record_count, frame.codec, frame.leader_epoch) == (6, "none", 0)


def test_append_records_takes_a_generator_that_appends_too(log: WritableLog) -> None:
    def records() -> Iterator[bytes]:
        for number in range(3):
            log.append(b"inner%d" % number)
            yield b"outer%d" % number

    assert log.append_records(records()).base_offset == 3
    assert values(log) == [b"inner0", b"inner1", b"inner2", b"outer0", b"outer1", b"outer2"]


def test_an_iterable_that_fails_appends_nothing(log: WritableLog) -> None:
    def records() -> Iterator[bytes]:
        yield b"one"
        message = "no more"
        raise RuntimeError(message)

    before, on_disk = state(log), tree(Path(log.path))
    with pytest.raises(RuntimeError, match="no more"):
        log.append_records(records())
    assert (state(log), tree(Path(log.path))) == (before, on_disk)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_append_records_in_each_codec(log: WritableLog, codec: str) -> None:
    rows = [b"value %d " % n * 10 for n in range(50)]
    log.append_records(rows, compression=codec)  # type: ignore[arg-type]  # from the list above
    (frame,) = all_frames(Path(log.path))
    assert frame.codec == codec
    assert values(log) == rows
    assert [batch.codec for batch in log.batches()] == [codec]


def test_leader_epochs_are_given_or_the_newest(log: WritableLog) -> None:
    log.append(b"a")
    log.append(b"b", leader_epoch=4)
    log.append(b"c")
    log.append_records([b"d", b"e"], leader_epoch=5)
    log.append_batches(coded(b"f"), leader_epoch=6)
    log.append_batches(coded(b"g"), leader_epoch=None)
    assert [record.leader_epoch for record in log.scan()] == [0, 4, 4, 5, 5, 6, 6]
    assert log.leader_epoch == 6
    assert (Path(log.path) / "leader-epoch-checkpoint").read_text() == "0\n4\n0 0\n4 1\n5 3\n6 5\n"
    ends = {epoch: log.end_offset_for_epoch(epoch) for epoch in range(-1, 8)}
    assert ends == {-1: None, 0: (0, 1), 1: (0, 1), 2: (0, 1), 3: (0, 1), 4: (4, 3), 5: (5, 5), 6: (6, 7), 7: None}


def test_end_offset_for_epoch_of_an_empty_log(log: WritableLog) -> None:
    assert log.end_offset_for_epoch(0) is None


@pytest.mark.parametrize("flush", [False, True])
def test_flush_makes_durable(log: WritableLog, flush: bool) -> None:
    log.append(b"a", flush=flush)
    assert log.recovery_point == log.durable_end_offset == (1 if flush else 0)
    log.append_records([b"b"], flush=flush)
    log.append_batches(coded(b"c"), flush=flush)
    log.append_as_follower(coded(b"d", base_offset=3), flush=flush)
    log.append_marker(1, 0, commit=True, flush=flush)
    assert log.recovery_point == (5 if flush else 0)
    log.flush()
    log.flush()
    assert log.recovery_point == log.durable_end_offset == 5


def test_append_batches_as_a_leader(log: WritableLog) -> None:
    log.append(b"first")
    sent = coded(b"x", b"y", b"z")
    assert log.append_batches(sent, leader_epoch=3) == AppendInfo(1, 3, NOW + 2, -1, duplicate=False)
    stored = (Path(log.path) / FIRST).read_bytes()[-len(sent) :]
    assert stored == (1).to_bytes(8, "big") + sent[8:12] + (3).to_bytes(4, "big") + sent[16:]
    assert values(log) == [b"first", b"x", b"y", b"z"]


def test_append_batches_of_a_coordinator_may_be_anywhere(log: WritableLog) -> None:
    assert log.append_batches(coded(b"x", base_offset=77), origin="coordinator").base_offset == 0


def test_append_batches_takes_every_buffer(log: WritableLog) -> None:
    log.append_batches(bytearray(coded(b"x")))
    log.append_batches(memoryview(coded(b"y")))
    log.append_as_follower(memoryview(coded(b"z", base_offset=2)))
    assert values(log) == [b"x", b"y", b"z"]


def test_idempotent_producers_are_recognised(log: WritableLog) -> None:
    first = log.append_records([b"a", b"b"], producer_id=9, producer_epoch=1, base_sequence=0)
    log.append(b"between")
    again = log.append_records([b"a", b"b"], producer_id=9, producer_epoch=1, base_sequence=0)
    assert not first.duplicate
    assert again.duplicate
    assert again[:2] == first[:2] == (0, 1)
    sent = coded(b"c", producer=(9, 1, 2))
    assert log.append_batches(sent) == AppendInfo(3, 3, NOW, -1, duplicate=False)
    assert log.append_batches(sent)[:2] == (3, 3)
    assert log.append_batches(sent).duplicate
    assert values(log) == [b"a", b"b", b"between", b"c"]


def test_follower_keeps_bytes_offsets_and_gaps(log: WritableLog) -> None:
    first, second = coded(b"a", b"b", base_offset=100, leader_epoch=2), coded(b"c", base_offset=150, leader_epoch=5)
    assert log.append_as_follower(first + second, leader_epoch=5) == AppendInfo(100, 150, NOW + 1, -1, duplicate=False)
    assert (Path(log.path) / FIRST).read_bytes() == first + second
    assert offsets(log) == [100, 101, 150]
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (0, 151, 5)
    assert log.get(120) is None


def test_nothing_that_was_given_is_left_out_in_silence(log: WritableLog, caplog: pytest.LogCaptureFixture) -> None:
    first, second = coded(b"a", base_offset=0, leader_epoch=2), coded(b"b", base_offset=1, leader_epoch=5)
    assert log.append_as_follower(first + second).last_offset == 1
    assert not caplog.records
    third, fourth = coded(b"c", base_offset=2, leader_epoch=6), coded(b"d", base_offset=3, leader_epoch=7)
    # Kafka's follower leaves a newer leader's batches out, and what is behind them: it is sent them again.
    info = log.append_as_follower(third + fourth + third, leader_epoch=6)
    assert (info.last_offset, info.left_out_bytes) == (2, len(fourth + third))
    assert f"{info.left_out_bytes} of the bytes to append were left out" in caplog.text
    info = log.append_as_follower(fourth, leader_epoch=0)
    assert (info.base_offset, info.left_out_bytes) == (-1, len(fourth))
    # A fetch may end in the middle of a batch.
    info = log.append_as_follower(fourth + coded(b"e", base_offset=4)[:-1])
    assert (info.last_offset, info.left_out_bytes) == (3, len(third) - 1)
    caplog.clear()
    info = log.append_batches(coded(b"f") + b"half")
    assert (info.last_offset, info.left_out_bytes) == (4, 4)
    assert "4 of the bytes to append were left out" in caplog.text
    assert values(log) == [b"a", b"b", b"c", b"d", b"f"]


def test_transactions_and_read_committed(log: WritableLog) -> None:
    log.append(b"plain")
    log.append_records([b"lost"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_records([b"kept"], producer_id=2, producer_epoch=0, base_sequence=0, transactional=True)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)

    def committed() -> list[bytes | None]:
        return [record.value for record in log.scan(isolation_level="read_committed")]

    assert committed() == [b"plain"]
    assert log.append_marker(1, 0, commit=False).base_offset == 3
    assert (committed(), log.last_stable_offset) == ([b"plain"], 2)
    assert log.append_marker(2, 0, commit=True, timestamp=NOW + 9, coordinator_epoch=3, transaction_version=1).max_timestamp == NOW + 9
    assert (committed(), log.last_stable_offset) == ([b"plain", b"kept"], 5)
    assert values(log) == [b"plain", b"lost", b"kept"]
    assert log.get(3) is None
    fetched = log.fetch(0, isolation_level="read_committed")
    assert [tuple(entry) for entry in fetched.aborted] == [(1, 1)]
    assert [(frame.is_control, frame.is_transactional) for frame in all_frames(Path(log.path))] == [
        (False, False),
        (False, True),
        (False, True),
        (True, True),
        (True, True),
    ]
    assert len((Path(log.path) / f"{0:020}.txnindex").read_bytes()) == 34


def test_everything_that_reads_works_beside_the_appends(log: WritableLog) -> None:
    for number in range(20):
        log.append_records([(b"k%d" % (number % 3), b"v%d" % number)] * 3, leader_epoch=number // 10)
        if number % 5 == 4:
            log.roll()
    assert offsets(log) == list(range(60))
    assert log.scan(start=10, stop=12).count() == 2
    assert log.scan(keys=[b"k1"]).count() == 21
    assert log.scan().to_arrow().num_rows == 60
    assert [record.offset for record in log.take([59, 3, 3])] == [59, 3, 3]
    assert sum(split.stop - split.start for split in log.splits(count=3)) == 60
    assert len(list(log.batches())) == 20
    location = log.locate(37)
    assert (location.segment, location.batch.base_offset if location.batch else None) == (30, 36)
    assert len(log.fetch(0, max_bytes=1 << 20).records) > 0
    found = log.offset_for_timestamp(NOW)
    assert found is not None
    assert (found.offset, found.timestamp, found.leader_epoch) == (0, NOW, 0)
    assert log.offset_for_timestamp(NOW + 1) is None
    assert log.segments[-1].is_active
    assert log.size_bytes == sum(frame.size_bytes for frame in all_frames(Path(log.path)))


def test_a_scan_that_began_before_an_append_is_whole(log: WritableLog) -> None:
    log.append_records([b"%d" % n for n in range(10)])
    scan = log.scan()
    iterator = iter(scan)
    next(iterator)
    log.append(b"later")
    assert len(list(iterator)) == 9
    assert scan.count() == 11


def test_truncate_takes_the_end_away(tmp_path: Path) -> None:
    with Log.open(filled(tmp_path / "orders-0", 6, segments=3), "a", clock=Clock()) as log:
        assert len(log.segments) == 3
        assert not log.truncate_to(12)
        assert not log.truncate_to(99)
        assert log.truncate_to(6)
        assert (offsets(log), log.log_end_offset) == ([0, 1, 2, 3, 4, 5], 6)
        # Inside a batch: the whole batch goes, the offset stays.
        assert log.truncate_to(5)
        assert (offsets(log), log.log_end_offset) == ([0, 1, 2, 3], 5)
        assert log.append(b"again") == 5
        assert log.truncate_to(0)
        assert (offsets(log), log.log_end_offset, log.leader_epoch) == ([], 0, None)
        assert log.append(b"anew") == 0
    with Log.open(tmp_path / "orders-0") as log:
        assert values(log) == [b"anew"]


def test_truncate_fully_starts_anywhere(tmp_path: Path) -> None:
    with Log.open(filled(tmp_path / "orders-0"), "a", clock=Clock()) as log:
        log.truncate_fully_and_start_at(1000)
        assert (log.log_start_offset, log.log_end_offset, offsets(log), log.leader_epoch) == (1000, 1000, [], None)
        assert log.append(b"x") == 1000
        log.truncate_fully_and_start_at(50, 40)
        assert (log.log_start_offset, log.log_end_offset) == (40, 50)
        assert log.append(b"y") == 50
    # As a broker loads it: no lower than the first segment.
    with Log.open(tmp_path / "orders-0", "a") as log:
        assert (log.log_start_offset, offsets(log)) == (50, [50])


def test_delete_records_moves_the_start(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0", 6, segments=3)
    before = {name: data for name, data in tree(path).items() if name.endswith(".log")}
    with Log.open(path, "a") as log:
        assert not log.delete_records_before(0)
        assert log.delete_records_before(5)
        assert not log.delete_records_before(3)
        assert (log.log_start_offset, offsets(log)) == (5, [5, 6, 7, 8, 9, 10, 11])
        with pytest.raises(offsetlog.OffsetOutOfRangeError):
            log.get(4)
        with Log.open(path) as reader:
            assert reader.log_start_offset == 5
    with Log.open(path) as log:
        assert (log.log_start_offset, log.scan().count()) == (5, 7)
    with Log.open(path, "a") as log:
        assert log.log_start_offset == 5
        assert log.delete_records_before(12)
        assert (offsets(log), log.log_start_offset, log.log_end_offset) == ([], 12, 12)
        assert log.append(b"next") == 12
    assert all(tree(path)[name] == data for name, data in list(before.items())[:-1])


def test_close_is_final_and_may_be_called_twice(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "orders-0", "a", clock=Clock())
    log.append(b"a")
    iterator = iter(log.scan())
    log.close()
    log.close()
    assert log.closed
    assert repr(log) == f"Log({str(tmp_path / 'orders-0')!r}, closed)"
    assert [record.value for record in iterator] == [b"a"]
    on_disk = tree(tmp_path)
    reading = [lambda: log.log_end_offset, lambda: log.get(0), log.__enter__]
    for call in writing_calls(log) + reading:
        with pytest.raises(offsetlog.LogClosedError, match="closed"):
            call()
    assert tree(tmp_path) == on_disk


def test_a_body_that_raises_still_closes_cleanly(tmp_path: Path) -> None:
    def body() -> None:
        with Log.open(tmp_path / "orders-0", "a") as log:
            log.append(b"kept")
            message = "the caller's"
            raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="the caller's"):
        body()
    with Log.open(tmp_path / "orders-0", "a") as log:
        assert log.recovery_report.clean
        assert values(log) == [b"kept"]


def test_relative_paths_survive_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Log.open("orders-0", "a") as log:
        log.append(b"a")
        (tmp_path / "elsewhere").mkdir()
        os.chdir("elsewhere")
        log.append(b"b")
        log.roll()
        log.append(b"c")
        assert values(log) == [b"a", b"b", b"c"]
    assert tree(tmp_path / "elsewhere") == {}
    with Log.open(tmp_path / "orders-0") as log:
        assert values(log) == [b"a", b"b", b"c"]


def test_path_may_be_a_path_or_a_text(tmp_path: Path) -> None:
    Log.open(str(tmp_path / "a-0"), "a").close()
    Log.open(tmp_path / "b-0", mode="a").close()
    assert {entry.name for entry in tmp_path.iterdir()} == {"a-0", "b-0"}


def test_topic_id_is_stored_once(tmp_path: Path) -> None:
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    with Log.open(tmp_path / "orders-0", "a", topic_id=topic_id) as log:
        assert log.topic_id == topic_id
    assert (tmp_path / "orders-0" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {topic_id}"
    with Log.open(tmp_path / "orders-0", "a", topic_id=topic_id) as log:
        assert log.topic_id == topic_id
    with Log.open(tmp_path / "orders-0", "a") as log:
        assert log.topic_id == topic_id


def test_a_log_for_appending_does_not_pickle(log: WritableLog) -> None:
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(log)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(log.writer())
    log.append(b"a")


def test_values_pickle(log: WritableLog) -> None:
    info = log.append_records([b"a"])
    report = log.recovery_report
    assert pickle.loads(pickle.dumps((info, report, log.config))) == (info, report, log.config)


def test_threads_append_without_losing_or_mixing(log: WritableLog) -> None:
    taken: list[int] = []

    def work(number: int) -> None:
        taken.extend(log.append(b"%d/%d" % (number, turn)) for turn in range(50))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(300)) == offsets(log)
    found = values(log)
    for number in range(6):
        own = [value for value in found if value is not None and value.startswith(b"%d/" % number)]
        assert own == [b"%d/%d" % (number, turn) for turn in range(50)]


def test_limits_hold_for_appending_too(tmp_path: Path) -> None:
    with Log.open(tmp_path / "orders-0", "a", max_batch_bytes=1 << 20, max_decompressed_bytes=1 << 12, max_open_files=4) as log:
        for _ in range(10):
            log.append(b"x" * 100)
            log.roll()
        assert log.scan().count() == 10
        rows = [(None, bytes(5000))]
        with pytest.raises(offsetlog.DecompressionLimitError):
            log.append_batches(batch(0, rows, codec=1))
        assert log.log_end_offset == 10


def test_what_was_appended_is_what_others_read(log: WritableLog) -> None:
    """The frames as a plain walk over the bytes sees them, and as a reader's log does."""
    log.append_records([b"a", b"b"], leader_epoch=2, producer_id=7, producer_epoch=3, base_sequence=5)
    (frame,) = frames(Path(log.path) / FIRST)
    assert (frame.base_offset, frame.last_offset, frame.magic, frame.leader_epoch) == (0, 1, 2, 2)
    assert (frame.producer_id, frame.producer_epoch, frame.base_sequence, frame.max_timestamp) == (7, 3, 5, NOW)
    with Log.open(log.path) as reader:
        assert list(reader.scan()) == list(log.scan())


def test_every_public_call_is_tested_somewhere() -> None:
    public = {name for name in vars(WritableLog) if not name.startswith("_")} - {"close", "mode"}
    assert public == TESTED
    assert {name for name in vars(Writer) if not name.startswith("_")} == {"append", "flush", "close"}
    parameters = inspect.signature(Log.open).parameters
    assert set(parameters) == {
        "path",
        "mode",
        "config",
        "clock",
        "topic_id",
        "clean",
        "recovery_point",
        "broker",
        "metadata",
        "internal_topics",
        "single_replica",
        "mapped",
        "limits",
    }


def test_a_durable_scan_ends_where_the_last_flush_did(log: WritableLog) -> None:
    for value in (b"a", b"b"):
        log.append(value)
    log.flush()
    log.append(b"c")
    assert [record.value for record in log.scan(durable=True)] == [b"a", b"b"]
    assert [record.value for record in log.scan(1, 9, durable=True)] == [b"b"]
    assert [record.value for record in log.scan(0, 1, durable=True)] == [b"a"]
    assert len(list(log.scan())) == 3
    with Log.open(log.path) as reader, pytest.raises(offsetlog.ConfigError):
        reader.scan(durable=True)


def test_a_copy_of_a_durable_scan_is_durable(log: WritableLog) -> None:
    log.append(b"a", flush=True)
    log.append(b"b")
    scan = copy.copy(log.scan(durable=True))
    assert ([record.value for record in scan], scan.count()) == ([b"a"], 1)
    log.append(b"c", flush=True)
    assert scan.count() == 3
    assert copy.copy(log.scan(1)).count() == 2


def test_a_durable_scan_is_not_followed(log: WritableLog) -> None:
    """Its end is that of one moment, and what is flushed later would never come."""
    log.append(b"a", flush=True)
    with pytest.raises(offsetlog.ConfigError, match="scan again from where the last scan ended") as refused:
        log.scan(durable=True).follow(timeout_ms=1)
    assert refused.value.key == "durable"
    with pytest.raises(offsetlog.ConfigError):
        copy.copy(log.scan(durable=True)).follow(timeout_ms=1)


@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_closed_log_holds_no_file(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "orders-0"
    with Log.open(path, "a") as written:
        written.append(b"1")
    log: Log = Log.open(path)
    if mode == "a":
        log = Log.open(path, "a")
        log.append(b"2")
    assert len(list(log.scan())) == log.log_end_offset
    log.close()
    files = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
    assert [file for file in files if file.is_relative_to(tmp_path)] == []
    assert log.mode == mode
