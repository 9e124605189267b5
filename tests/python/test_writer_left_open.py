"""A ``Writer`` that nobody closes: closing the log appends what it holds, or says how many records are lost; dropped, it is a warning."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from writing import NOW, SMALL, Clock, values

from offsetlog import InvalidTimestampError, Log, LogClosedError, LogDir, WritableLog

NEVER = 1 << 40
LINGERS = [0, 5, NEVER]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=Clock()) as log:
        yield log


def there(path: Path) -> list[bytes | None]:
    with Log.open(path) as log:
        return values(log)


def at_once(calls: Sequence[Callable[[], object]]) -> None:
    """Call each in a thread of its own; raise what one of them raises."""
    start = threading.Barrier(len(calls))

    def call(each: Callable[[], object]) -> None:
        start.wait()
        each()

    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(call, each) for each in calls]:
            done.result()


@pytest.mark.parametrize("linger", LINGERS)
def test_closing_the_log_appends_what_waits(linger: int, tmp_path: Path) -> None:
    sent = [b"%d" % number for number in range(100)]
    with Log.open(tmp_path / "orders-0", "a", SMALL) as log:
        first, second = log.writer(linger_ms=linger), log.writer(linger_ms=linger, compression="lz4")
        for value in sent:
            first.append(value)
        for value in sent:
            second.append(value)
    assert sorted(value or b"" for value in there(tmp_path / "orders-0")) == sorted(sent * 2)
    with pytest.raises(LogClosedError, match="the writer is closed"):
        first.append(b"late")
    first.close()
    with Log.open(tmp_path / "orders-0", "a") as log:
        assert log.recovery_report.clean


@pytest.mark.parametrize("linger", LINGERS)
def test_closing_the_log_dir_appends_what_waits_in_all_its_logs(linger: int, tmp_path: Path) -> None:
    """Also where nobody has the log any more."""
    with LogDir.open(tmp_path, "a", max_open_partitions=1) as log_dir:
        log_dir.create_topic("t", 3)
        writers = [log_dir.log("t", partition).writer(linger_ms=linger) for partition in range(3)]
        gc.collect()
        for partition, writer in enumerate(writers):
            writer.append(b"%d" % partition)
            log_dir.append("t", b"x", partition=partition)
    with LogDir.open(tmp_path) as log_dir:
        for partition in range(3):
            assert sorted(value or b"" for value in values(log_dir.log("t", partition))) == [b"%d" % partition, b"x"]


def test_closing_one_log_of_a_log_dir_ends_its_writers_only(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 2)
        logs = [log_dir.log("t", partition) for partition in range(2)]
        writers = [log.writer(linger_ms=0) for log in logs]
        for writer in writers:
            writer.append(b"a")
        logs[0].close()
        with pytest.raises(LogClosedError):
            writers[0].append(b"b")
        writers[1].append(b"b")
    assert (there(tmp_path / "t-0"), there(tmp_path / "t-1")) == ([b"a"], [b"a", b"b"])


@pytest.mark.parametrize("kind", ["log", "log dir", "log of a log dir"])
def test_closing_says_how_many_records_are_lost(kind: str, tmp_path: Path) -> None:
    """And closes all the same; another writer's records are appended."""
    with LogDir.open(tmp_path, "a", clock=Clock()) as log_dir:
        log_dir.create_topic("t", 1)
    opened = LogDir.open(tmp_path, "a", clock=Clock()) if kind != "log" else None
    log = Log.open(tmp_path / "t-0", "a", clock=Clock()) if opened is None else opened.log("t", 0)
    bad, good, worse = (log.writer(linger_ms=0) for _ in range(3))
    for number in range(3):
        bad.append(b"%d" % number, timestamp=NOW * 2)
    good.append(b"good")
    worse.append(b"too late", timestamp=NOW * 2)
    closes = opened.close if opened is not None and kind == "log dir" else log.close
    with pytest.raises(InvalidTimestampError, match=str(NOW * 2)) as caught:
        closes()
    (note,) = caught.value.__notes__
    assert note.startswith("4 records that waited in a Writer could not be appended when the log was closed")
    closes()
    if opened is not None:
        opened.close()
    assert there(tmp_path / "t-0") == [b"good"]
    with Log.open(tmp_path / "t-0", "a") as again:
        assert again.recovery_report.clean


def test_what_the_timer_could_not_append_is_told_by_closing(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "orders-0", "a", SMALL, clock=Clock())
    writer = log.writer(linger_ms=1)
    writer.append(b"a", timestamp=NOW * 2)
    time.sleep(0.1)
    with pytest.raises(InvalidTimestampError) as caught:
        log.close()
    assert caught.value.__notes__[0].startswith("1 record that waited in a Writer")
    writer.close()


def test_a_clock_that_raises_loses_nothing(tmp_path: Path) -> None:
    broken = False

    def clock() -> int:
        if broken:
            raise ValueError("no time")
        return NOW

    told: list[str] = []
    log = Log.open(tmp_path / "orders-0", "a", SMALL, clock=clock)
    writer = log.writer(linger_ms=0)
    writer.append(b"a")
    broken = True
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "unraisablehook", lambda unraisable: told.append(str(unraisable.exc_value)))
        log.close()
    assert there(tmp_path / "orders-0") == [b"a"]
    assert set(told) <= {"no time"}
    writer.close()


@pytest.mark.parametrize("error", [ValueError, CancelledError])
def test_a_clock_that_raises_while_the_writer_is_closed_loses_nothing(error: type[BaseException], tmp_path: Path) -> None:
    """The error is raised all the same, and says so; one that is no Exception, which the clock raises twice, too."""
    broken = False

    def clock() -> int:
        if broken:
            raise error("no time")
        return NOW

    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=clock) as log:
        writer = log.writer(linger_ms=0)
        writer.append(b"a")
        broken = True
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "unraisablehook", lambda _: None)
            with pytest.raises(error, match="no time") as caught:
                writer.close()
        broken = False
        assert caught.value.__notes__ == ["the records that waited were appended at the system's time"]
        assert values(log) == [b"a"]
        writer.close()


def test_a_clock_that_raises_hides_no_record_that_is_refused(tmp_path: Path) -> None:
    broken = False

    def clock() -> int:
        if broken:
            raise ValueError("no time")
        return NOW

    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=clock) as log:
        writer = log.writer(linger_ms=0)
        writer.append(b"a", timestamp=NOW * 2)
        broken = True
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "unraisablehook", lambda _: None)
            with pytest.raises(ValueError, match="no time") as caught:
                writer.close()
        broken = False
        (note,) = caught.value.__notes__
        assert note.startswith("not appended, and not in the log: 1 record that waited: ")
        assert values(log) == []


def test_a_deleted_topic_takes_along_what_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 1)
        log = log_dir.log("t", 0)
        writer = log.writer(linger_ms=0)
        writer.append(b"a")
        log_dir.delete_topic("t")
        log_dir.create_topic("t", 1)
    assert "t-0: 1 record that waited in a Writer went with the topic" in caplog.text
    writer.close()
    assert there(tmp_path / "t-0") == []


@pytest.mark.parametrize("closers", ["two logs", "log dir and log", "log dir twice", "log and its twin"])
def test_two_closings_at_once_lose_nothing(closers: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each waits for what the other one appends of its writers."""
    for turn in range(25):
        place = tmp_path / str(turn)
        log_dir = LogDir.open(place, "a")
        log_dir.create_topic("t", 2)
        logs = [log_dir.log("t", partition) for partition in range(2)]
        writers = [log.writer(linger_ms=0, batch_bytes=1 << 20, compression="gzip") for log in logs]
        for writer in writers:
            for _ in range(100):
                writer.append(os.urandom(1000))
        calls = {
            "two logs": [logs[1].close, logs[0].close],
            "log dir and log": [log_dir.close, logs[1].close],
            "log dir twice": [log_dir.close, log_dir.close],
            "log and its twin": [logs[1].close, log_dir.log("t", 1).close],
        }[closers]
        at_once(calls)
        log_dir.close()
        assert [len(there(place / f"t-{partition}")) for partition in range(2)] == [100, 100], turn
        for writer in writers:
            writer.close()
    assert caplog.text == ""


@pytest.mark.parametrize("whole", [False, True])
def test_a_writer_is_closed_with_its_log_at_once(*, whole: bool, tmp_path: Path) -> None:
    for turn in range(25):
        place = tmp_path / str(turn)
        log_dir = LogDir.open(place, "a")
        log_dir.create_topic("t", 1)
        log = log_dir.log("t", 0)
        writer = log.writer(linger_ms=0, batch_bytes=1 << 20, compression="gzip")
        for _ in range(100):
            writer.append(os.urandom(1000))
        at_once([writer.close, log_dir.close if whole else log.close])
        log_dir.close()
        assert len(there(place / "t-0")) == 100, turn


def test_a_writer_is_dropped_while_its_log_is_closed(tmp_path: Path) -> None:
    for turn in range(25):
        log = Log.open(tmp_path / f"t-{turn}", "a")
        writers = [log.writer(linger_ms=0, batch_bytes=1 << 20, compression="gzip")]
        for _ in range(100):
            writers[0].append(os.urandom(1000))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            at_once([log.close, writers.clear])
        assert len(there(tmp_path / f"t-{turn}")) == 100, turn


@pytest.mark.parametrize("kind", ["log", "log dir"])
def test_a_log_that_ended_without_its_writers_is_an_error(kind: str, tmp_path: Path) -> None:
    """Only where its topic was deleted did the records go with it."""
    log_dir = LogDir.open(tmp_path, "a")
    log_dir.create_topic("t", 1)
    log = log_dir.log("t", 0)
    writer = log.writer(linger_ms=0)
    writer.append(b"a")
    log._abandon()  # noqa: SLF001  # made for tests
    with pytest.raises(LogClosedError) as caught:
        (log_dir if kind == "log dir" else log).close()
    assert caught.value.__notes__ == [
        "1 record that waited in a Writer could not be appended when the log was closed, and is not in the log"
    ]
    log_dir.close()
    writer.close()


def test_a_clock_that_ctrl_c_ends_loses_nothing(tmp_path: Path) -> None:
    """The log is closed, and Ctrl-C raised."""
    pressed = False

    def clock() -> int:
        nonlocal pressed
        if pressed:
            pressed = False
            raise KeyboardInterrupt
        return NOW

    log = Log.open(tmp_path / "orders-0", "a", SMALL, clock=clock)
    writer = log.writer(linger_ms=0)
    writer.append(b"a")
    pressed = True
    with pytest.raises(KeyboardInterrupt):
        log.close()
    assert there(tmp_path / "orders-0") == [b"a"]
    writer.close()


def test_threads_that_append_meanwhile_are_told(tmp_path: Path) -> None:
    """Each record that was taken is in the log, and each other one raised."""
    log = Log.open(tmp_path / "orders-0", "a", SMALL)
    writer = log.writer(batch_bytes=300, linger_ms=1)
    taken: list[bytes] = []

    def work(name: int) -> None:
        for number in range(100_000):
            value = b"%d/%d" % (name, number)
            try:
                writer.append(value)
            except LogClosedError:
                return
            taken.append(value)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    log.close()
    for thread in threads:
        thread.join()
    writer.close()
    assert sorted(value or b"" for value in there(tmp_path / "orders-0")) == sorted(taken)


@pytest.mark.parametrize("linger", [0, NEVER])
def test_a_writer_that_is_dropped_is_a_warning(log: WritableLog, linger: int, caplog: pytest.LogCaptureFixture) -> None:
    writer = log.writer(linger_ms=linger)
    for number in range(3):
        writer.append(b"%d" % number)
    with pytest.warns(ResourceWarning) as warned:
        del writer
    (told,) = (str(each.message) for each in warned)
    assert told.startswith(f"{log.path}: a Writer was not closed: 3 records that waited in it are appended in the background")
    assert [each.message for each in caplog.records if each.levelno == logging.WARNING] == [told]
    deadline = time.monotonic() + 300
    while log.log_end_offset < 3:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    assert values(log) == [b"0", b"1", b"2"]


def test_a_dropped_writer_whose_log_is_closed_at_once(tmp_path: Path) -> None:
    for turn in range(20):
        log = Log.open(tmp_path / f"t-{turn}", "a")
        writer = log.writer(linger_ms=0)
        writer.append(b"a")
        with pytest.warns(ResourceWarning, match="1 record that waited"):
            del writer
        log.close()
        assert there(tmp_path / f"t-{turn}") == [b"a"]


def test_a_dropped_writer_whose_records_are_refused_is_an_error_in_the_logger(
    log: WritableLog, caplog: pytest.LogCaptureFixture
) -> None:
    writer = log.writer(linger_ms=0)
    writer.append(b"a", timestamp=NOW * 2)
    with pytest.warns(ResourceWarning, match="1 record that waited"):
        del writer
    deadline = time.monotonic() + 300
    while "could not be appended" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    assert "orders-0: 1 record of a Writer that was not closed could not be appended" in caplog.text


def test_a_writer_without_records_is_dropped_in_silence(log: WritableLog) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for linger in LINGERS:
            writer = log.writer(linger_ms=linger)
            del writer
        writer = log.writer(linger_ms=0)
        writer.append(b"a")
        writer.flush()
        del writer
        gc.collect()


def test_a_writer_is_dropped_while_its_timer_appends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the timer cannot append then is told all the same."""
    asked, go_on = threading.Event(), threading.Event()
    main = threading.current_thread()

    def clock() -> int:
        if threading.current_thread() is not main:
            asked.set()
            assert go_on.wait(300)
        return NOW

    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=clock) as log:
        writer = log.writer(linger_ms=1)
        writer.append(b"a", timestamp=NOW * 2)
        assert asked.wait(300)
        del writer
        go_on.set()
        deadline = time.monotonic() + 300
        while "could not be appended" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.002)
    assert "orders-0: 1 record of a Writer that was not closed could not be appended" in caplog.text
