"""``Log.writer``: many small appends gathered by size and by time."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from frames import all_frames
from writing import NOW, SMALL, Clock, offsets, tree, values

from offsetlog import AppendInfo, InvalidTimestampError, Log, LogClosedError, RecordTooLargeError, WritableLog

NEVER = 1 << 40


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=Clock()) as log:
        yield log


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for another thread."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def counts(log: Log) -> list[int | None]:
    """How many records each batch has."""
    return [frame.record_count for frame in all_frames(Path(log.path))]


def test_fields_arrive(log: WritableLog) -> None:
    when = datetime(2023, 1, 2, tzinfo=UTC)
    with log.writer(leader_epoch=3, linger_ms=0) as writer:
        writer.append(b"value", key=b"key", headers=[("h", b"1"), ("n", None)], timestamp=5)
        writer.append(None, timestamp=when)
        writer.append(bytearray(b"x"), key=memoryview(b"y"), headers={"m": b""})  # type: ignore[dict-item]  # a mapping does as well
    first, second, third = log.scan()
    assert (first.key, first.value, first.headers, first.timestamp) == (b"key", b"value", (("h", b"1"), ("n", None)), 5)
    assert (second.value, second.datetime) == (None, when)
    assert (third.key, third.value, third.headers, third.timestamp) == (b"y", b"x", (("m", b""),), NOW)
    assert {record.leader_epoch for record in (first, second, third)} == {3}
    assert counts(log) == [3]


def test_size_ends_a_batch(log: WritableLog) -> None:
    with log.writer(batch_bytes=500, linger_ms=0) as writer:
        for number in range(22):
            writer.append(bytes(100), key=b"%d" % number)
        assert 0 < log.log_end_offset < 22
    assert offsets(log) == list(range(22))
    *full, last = counts(log)
    # 61 bytes of header; a record of 110, or 111 where its key has two digits.
    assert set(full) == {3}
    assert last == 1
    assert all(frame.size_bytes <= 500 for frame in all_frames(Path(log.path)))


def test_a_record_larger_than_the_batch_goes_alone(log: WritableLog) -> None:
    with log.writer(batch_bytes=1, linger_ms=0) as writer:
        writer.append(b"a")
        assert log.log_end_offset == 1
        writer.append(b"b")
    assert counts(log) == [1, 1]


def test_batches_as_large_as_the_topic_takes_are_not_refused(log: WritableLog) -> None:
    log.config = {"max.message.bytes": 1000, **SMALL}
    sent = [bytes([number % 256]) * (number * 37 % 400) for number in range(300)]
    with log.writer(batch_bytes=1000) as writer:
        for value in sent:
            writer.append(value)
    assert values(log) == sent


def test_the_record_that_fills_a_batch_goes_with_it(log: WritableLog) -> None:
    log.config = {"max.message.bytes": 300, **SMALL}
    writer = log.writer(batch_bytes=300, linger_ms=0)
    writer.append(b"a")
    with pytest.raises(RecordTooLargeError) as caught:
        # It does not fit beside the first, which is appended; by itself it fills a batch, which is refused.
        writer.append(bytes(300))
    assert not hasattr(caught.value, "__notes__")
    assert values(log) == [b"a"]
    writer.close()
    assert values(log) == [b"a"]


def test_time_ends_a_batch(log: WritableLog) -> None:
    with log.writer(batch_bytes=NEVER, linger_ms=200) as writer:
        began = time.monotonic()
        writer.append(b"a")
        writer.append(b"b")
        end = log.log_end_offset
        # On a busy machine the time may be over by now.
        assert end == 0 or time.monotonic() - began >= 0.2
        eventually(lambda: log.log_end_offset == 2)
        writer.append(b"c")
        eventually(lambda: log.log_end_offset == 3)
    assert values(log) == [b"a", b"b", b"c"]


def test_no_linger_waits_for_flush_and_close(log: WritableLog) -> None:
    with log.writer(batch_bytes=NEVER, linger_ms=0) as writer:
        writer.append(b"a")
        time.sleep(0.05)
        assert log.log_end_offset == 0
        assert writer.flush() == AppendInfo(0, 0, NOW, -1, duplicate=False)
        assert log.log_end_offset == 1
        writer.append(b"b")
    assert log.log_end_offset == 2


def test_flush_tells_the_last_append(log: WritableLog) -> None:
    writer = log.writer(linger_ms=0)
    assert writer.flush() is None
    writer.append(b"a")
    writer.append(b"b")
    info = writer.flush()
    assert info == AppendInfo(0, 1, NOW, -1, duplicate=False)
    assert writer.flush() == info
    log.append(b"between")
    writer.append(b"c")
    assert writer.flush() == AppendInfo(3, 3, NOW, -1, duplicate=False)
    writer.close()


@pytest.mark.parametrize("codec", [None, "none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(log: WritableLog, codec: str | None) -> None:
    with log.writer(compression=codec) as writer:  # type: ignore[arg-type]  # from the list above
        for _ in range(50):
            writer.append(b"again and again")
    assert {frame.codec for frame in all_frames(Path(log.path))} == {codec or "none"}
    assert values(log) == [b"again and again"] * 50


def test_use_after_close(log: WritableLog) -> None:
    writer = log.writer()
    writer.append(b"a")
    writer.close()
    writer.close()
    before = tree(Path(log.path))
    for call in (lambda: writer.append(b"b"), writer.flush, writer.__enter__):
        with pytest.raises(LogClosedError, match="the writer is closed"):
            call()
    assert tree(Path(log.path)) == before
    assert values(log) == [b"a"]


def test_the_log_closed_first(tmp_path: Path) -> None:
    """It appends what waits; the writer is of no use any more."""
    log = Log.open(tmp_path / "orders-0", "a", SMALL)
    writer = log.writer(batch_bytes=NEVER, linger_ms=NEVER)
    writer.append(b"waits")
    log.close()
    for call in (lambda: writer.append(b"late"), writer.flush):
        with pytest.raises(LogClosedError, match="the writer is closed"):
            call()
    writer.close()
    writer.close()
    with Log.open(tmp_path / "orders-0", "a") as log:
        assert log.recovery_report.clean
        assert values(log) == [b"waits"]


def test_a_closed_writer_holds_no_log_open(tmp_path: Path) -> None:
    """A log that is let go without being closed gives its lock back, also if somebody still has its writer."""
    log = Log.open(tmp_path / "orders-0", "a", SMALL)
    writer = log.writer(linger_ms=0)
    writer.append(b"a")
    writer.close()
    del log
    with Log.open(tmp_path / "orders-0", "a") as again:
        assert values(again) == [b"a"]
    writer.close()


def test_arguments_of_other_types_are_taken_as_by_append(log: WritableLog) -> None:
    class Bytes(bytes):
        """Somebody's own."""

    class Number(int):
        """Somebody's own."""

    with log.writer() as writer:
        for append in (log.append, writer.append):
            append(Bytes(b"a"), key=Bytes(b"b"), headers=[], timestamp=Number(7))
            append(b"", headers=iter([("h", Bytes(b"c"))]), timestamp=-1)
            append(bytearray(b"d"), headers=(("h", bytearray(b"e")),))  # type: ignore[arg-type]  # a buffer does as well
    found = [(record.key, record.value, record.headers, record.timestamp) for record in log.scan()]
    assert found[:3] == [(b"b", b"a", (), 7), (None, b"", (("h", b"c"),), -1), (None, b"d", (("h", b"e"),), NOW)]
    assert found[3:] == found[:3]


def test_a_body_that_raises_appends_what_was_given(log: WritableLog) -> None:
    def body() -> None:
        with log.writer(linger_ms=0) as writer:
            writer.append(b"a")
            message = "the caller's"
            raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="the caller's"):
        body()
    assert values(log) == [b"a"]


def test_a_bad_argument_leaves_what_waits(log: WritableLog) -> None:
    with log.writer(linger_ms=0) as writer:
        writer.append(b"a")
        with pytest.raises(TypeError, match="value must be bytes"):
            writer.append("text")  # type: ignore[arg-type]  # what it must refuse
        with pytest.raises(TypeError, match="a header must be a pair"):
            writer.append(b"", headers=[("a",)])  # type: ignore[list-item]  # what it must refuse
        writer.append(b"b")
    assert values(log) == [b"a", b"b"]


def test_a_refused_batch_is_told_by_the_call_that_appended_it(log: WritableLog) -> None:
    log.config = {"max.message.bytes": 300, **SMALL}
    writer = log.writer(batch_bytes=400, linger_ms=0)
    for _ in range(3):
        writer.append(bytes(100))
    with pytest.raises(RecordTooLargeError) as caught:
        writer.append(bytes(100))
    assert caught.value.__notes__ == ["the record of this call was not taken"]
    assert log.log_end_offset == 0
    writer.append(b"fine")
    assert writer.flush() == AppendInfo(0, 0, NOW, -1, duplicate=False)
    writer.append(bytes(400)[:0], timestamp=NOW * 2)
    with pytest.raises(InvalidTimestampError):
        writer.flush()
    writer.append(bytes(1), timestamp=NOW * 2)
    with pytest.raises(InvalidTimestampError):
        writer.close()
    writer.close()
    assert values(log) == [b"fine"]


@pytest.mark.parametrize("call", ["append", "flush", "close"])
def test_an_error_of_the_timer_comes_with_the_next_call_once(tmp_path: Path, call: str) -> None:
    asks, tests = threading.Event(), threading.get_ident()

    def clock() -> int:
        # The timer's thread has the writer to itself from before this until the error is stored: the next call waits for that.
        if threading.get_ident() != tests:
            asks.set()
        return NOW

    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=clock) as log:
        writer = log.writer(linger_ms=1)
        writer.append(b"too late", timestamp=NOW * 2)
        assert asks.wait(300)
        with pytest.raises(InvalidTimestampError, match=str(NOW * 2)) as caught:
            getattr(writer, call)(*([b"this one is not taken"] if call == "append" else []))
        assert getattr(caught.value, "__notes__", []) == (["the record of this call was not taken"] if call == "append" else [])
        if call != "close":
            writer.append(b"fine")
            assert writer.flush() is not None
            writer.close()
        assert values(log) == ([] if call == "close" else [b"fine"])


def test_several_writers_of_one_log(log: WritableLog) -> None:
    with log.writer(linger_ms=0) as one, log.writer(linger_ms=0, compression="lz4") as two:
        for number in range(10):
            one.append(b"1/%d" % number)
            two.append(b"2/%d" % number)
            log.append(b"0/%d" % number)
    found = [value or b"" for value in values(log)]
    assert len(found) == 30
    for source in (b"0/", b"1/", b"2/"):
        assert [value for value in found if value.startswith(source)] == [source + b"%d" % number for number in range(10)]


def test_threads_share_a_writer(log: WritableLog) -> None:
    with log.writer(batch_bytes=300, linger_ms=1) as writer:

        def work(number: int) -> None:
            for turn in range(200):
                writer.append(b"%d/%d" % (number, turn))
                if turn % 50 == 0:
                    writer.flush()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [value or b"" for value in values(log)]
    assert offsets(log) == list(range(1000))
    for number in range(5):
        assert [value for value in found if value.startswith(b"%d/" % number)] == [b"%d/%d" % (number, turn) for turn in range(200)]


def test_a_writer_that_is_forgotten_ends_with_its_timer(log: WritableLog) -> None:
    """Its timer appends what waits; nothing is left running that a second writer or closing would wait for."""
    writer = log.writer(linger_ms=20)
    writer.append(b"a")
    with warnings.catch_warnings():
        # On a busy machine it may be appended already.
        warnings.simplefilter("ignore", ResourceWarning)
        del writer
        gc.collect()
    eventually(lambda: log.log_end_offset == 1)
    names = [thread.name for thread in threading.enumerate()]
    assert len(names) == len(set(names))


def test_records_survive_as_they_are_for_many_sizes(log: WritableLog) -> None:
    sizes = [0, 1, 63, 64, 127, 128, 8191, 8192, 16383, 16384, 16385, 70_000]
    with log.writer(batch_bytes=16_384, linger_ms=5) as writer:
        for size in sizes:
            writer.append(b"x" * size, key=b"y" * (size % 300))
    assert [(len(record.value or b""), len(record.key or b"")) for record in log.scan()] == [(size, size % 300) for size in sizes]


def test_a_clock_that_raises_tells_whether_the_record_was_taken(tmp_path: Path) -> None:
    broken = False

    def clock() -> int:
        if broken:
            raise ValueError("no time")
        return NOW

    def note(value: bytes, timestamp: int | None) -> str:
        nonlocal broken
        broken = True
        with pytest.raises(ValueError, match="no time") as caught:
            writer.append(value, timestamp=timestamp)
        broken = False
        (found,) = caught.value.__notes__
        return str(found)

    not_taken = "the record of this call was not taken"
    with Log.open(tmp_path / "orders-0", "a", clock=clock) as log:
        writer = log.writer(batch_bytes=400, linger_ms=0)
        # It fills a batch alone.
        assert note(b"a" * 500, NOW) == "the record of this call was taken and waits; flush() appends it"
        writer.flush()
        assert values(log) == [b"a" * 500]
        writer.append(b"b" * 250, timestamp=NOW)
        # It has no room beside the one that waits.
        assert note(b"c" * 250, NOW) == not_taken
        assert note(b"without a timestamp", None) == not_taken
        writer.close()
        assert values(log) == [b"a" * 500, b"b" * 250]
