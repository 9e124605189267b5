"""Readers beside a writer: in the same process, in threads, in other processes. They see whole batches, in order, and only more of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from make_log import batch
from writing import FIRST, NOW, SMALL, Clock, coded, filled, offsets, python, running, values

from offsetlog import (
    Log,
    LogDir,
    LogDirError,
    OffsetLogError,
    OffsetOutOfRangeError,
    Scan,
    WritableLog,
    open_cached,
    verify,
)

WRITES = """
import sys, time
from offsetlog import Log
log = Log.open(sys.argv[1], "a", {"internal.segment.bytes": 20_000, "segment.index.bytes": 1000, "index.interval.bytes": 100})
print("ready", flush=True)
number = 0
while True:
    size = number % 7 + 1
    log.append_records([b"%d/%d/%d" % (number, at, size) + b"." * (number * 37 % 300) for at in range(size)], compression=[None, "lz4", "zstd"][number % 3])
    number += 1
    time.sleep(0.0005)
"""


def check_whole(found: list[bytes | None]) -> int:
    """Records of batches: each batch is complete, and they follow each other; gives how many there were."""
    at = batches = 0
    while at < len(found):
        number, first, size = map(int, (found[at] or b"").rstrip(b".").split(b"/"))
        assert (number, first) == (batches, 0)
        for place in range(size):
            assert (found[at + place] or b"").startswith(b"%d/%d/%d" % (number, place, size))
        at += size
        batches += 1
    return batches


def test_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with running(WRITES, path):
        seen = 0
        with Log.open(path) as follower:
            while follower.log_end_offset < 10:
                time.sleep(0.01)
            for turn in range(10):
                with Log.open(path) as reader:
                    fresh = check_whole(values(reader))
                    end = reader.log_end_offset
                    assert reader.scan(stop=end).count() <= end
                followed = check_whole(values(follower))
                assert fresh >= seen
                assert followed >= fresh
                seen = followed
                if turn % 5 == 0:
                    table = follower.scan(columns=["offset", "value"]).to_arrow()
                    assert table["offset"].to_pylist() == list(range(table.num_rows))
                    assert check_whole(table["value"].to_pylist()) >= seen
                    last = follower.log_end_offset - 1
                    record = follower.get(last)
                    assert record is not None
                    assert record.offset == last
                    assert follower.fetch(last).high_watermark > last
        assert seen > 10
        assert open_cached(path).log_end_offset > 0


def test_threads_read_while_others_append(tmp_path: Path) -> None:
    """Through the writing log itself and through readers of the same directory."""
    path = tmp_path / "orders-0"
    failures: list[BaseException] = []
    stop = threading.Event()
    with Log.open(path, "a", {"internal.segment.bytes": 3000, **SMALL}) as log:

        def read(own: bool) -> None:
            try:
                seen = 0
                while not stop.is_set():
                    if own:
                        found = values(log)
                    else:
                        with Log.open(path) as reader:
                            found = values(reader)
                    batches = check_whole(found)
                    assert batches >= seen
                    seen = batches
                    # Another log may see bytes a moment before the writer calls them appended.
                    if found and own:
                        record = log.get(len(found) - 1)
                        assert record is not None
                        assert record.value == found[-1]
            except BaseException as failure:  # noqa: BLE001  # the test's own thread raises it
                failures.append(failure)

        threads = [threading.Thread(target=read, args=(own,)) for own in (True, True, False)]
        for thread in threads:
            thread.start()
        for number in range(300):
            size = number % 4 + 1
            log.append_records([b"%d/%d/%d" % (number, at, size) for at in range(size)])
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert check_whole(values(log)) == 300


def test_a_reader_follows_appends_rolls_and_new_starts(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    with Log.open(path, "a", clock=Clock()) as log, Log.open(path) as reader:
        assert reader.log_end_offset == 6
        log.append(b"more")
        assert (reader.log_end_offset, values(reader)[-1]) == (7, b"more")
        log.roll()
        log.append(b"rolled")
        assert (values(reader)[-1], len(reader.segments)) == (b"rolled", 2)
        log.delete_records_before(2)
        with Log.open(path) as fresh:
            assert (fresh.log_start_offset, offsets(fresh)) == (2, [2, 3, 4, 5, 6, 7])
        assert [record.value for record in reader.take([7, 6])] == [b"rolled", b"more"]


@pytest.mark.parametrize("segments", [1, 3])
def test_a_reader_survives_truncation(tmp_path: Path, segments: int) -> None:
    """What was cut is gone; what stays is served, and what comes in its place."""
    path = filled(tmp_path / "orders-0", 6, segments=segments)
    with Log.open(path, "a", clock=Clock()) as log, Log.open(path) as reader:
        before = iter(reader.scan())
        next(before)
        log.truncate_to(5)
        assert offsets(log) == [0, 1, 2, 3]
        log.append_as_follower(coded(b"other", base_offset=5, leader_epoch=1), leader_epoch=1)
        with Log.open(path) as fresh:
            assert offsets(fresh) == offsets(log) == [0, 1, 2, 3, 5]
            assert values(fresh)[-1] == b"other"
        assert [record.offset for record in reader.scan()] == [0, 1, 2, 3, 5]
        found: list[int] = []
        try:
            found.extend(record.offset for record in before)
        except (OffsetLogError, OSError):
            # Cut under a scan that was under way: an error is an answer, wrong records are none.
            assert found == list(range(1, len(found) + 1))
        else:
            assert found[:3] == [1, 2, 3]


def test_a_reader_beside_truncation_to_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0", 6, segments=3)
    with Log.open(path, "a", clock=Clock()) as log:
        log.truncate_fully_and_start_at(100)
        log.append(b"new world")
        with Log.open(path) as reader:
            assert (reader.log_start_offset, offsets(reader), values(reader)) == (100, [100], [b"new world"])
            assert reader.offset_for_timestamp(NOW) is not None


def start_inside_a_batch(log: WritableLog) -> None:
    log.append_records([b"%d" % offset for offset in range(10)])
    log.delete_records_before(5)
    log.truncate_to(6)


BOUNDS = """
import sys
from offsetlog import Log
with Log.open(sys.argv[1]) as log:
    print(log.log_start_offset, log.log_end_offset, [record.offset for record in log.scan()])
"""


@pytest.mark.parametrize("place", ["a folder", "a log dir"])
def test_a_start_inside_a_batch_that_was_truncated(tmp_path: Path, place: str) -> None:
    """What is left was deleted before: the closed log is empty at its start, as Kafka's `UnifiedLog` makes it of the same files.

    So it is for readers in other processes while it is open; those beside the writer know where it goes on.
    """
    path = tmp_path / "orders-0"
    if place == "a log dir":
        (tmp_path / "meta.properties").write_text("node.id=1\nversion=1\ncluster.id=abc\n")
    with Log.open(path, "a", clock=Clock()) as log:
        start_inside_a_batch(log)
        with Log.open(path) as reader:
            assert (reader.log_start_offset, reader.log_end_offset, offsets(reader)) == (5, 6, [])
        assert python(BOUNDS, path) == "5 5 []\n"
    with Log.open(path) as reader:
        assert (reader.log_start_offset, reader.log_end_offset, offsets(reader)) == (5, 5, [])
        with pytest.raises(OffsetOutOfRangeError, match="the log is empty at 5"):
            reader.get(5)
    assert not verify(path).findings
    with Log.open(path, "a") as log:
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
        assert log.append(b"next") == 5
    with Log.open(path) as reader:
        assert (offsets(reader), values(reader)) == ([5], [b"next"])


def torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"!")


def without_header(file: Path) -> None:
    file.write_bytes(bytes(61) + file.read_bytes()[61:])


def lost(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def restored(file: Path) -> None:
    """Somebody put an older copy of the segments back beside what we noted."""
    file.write_bytes(batch(0, [(None, b"an older copy", ())]))


@pytest.mark.parametrize("happen", [torn, without_header, lost, restored])
def test_a_start_behind_other_files_hides_nothing(tmp_path: Path, happen: Callable[[Path], None]) -> None:
    """Only as it was closed is a log empty that ends below its start. Bytes that are no batch may have been one with records behind it."""
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    path = log_dir / "orders-0"
    (log_dir / "meta.properties").write_text("node.id=1\nversion=1\ncluster.id=abc\n")
    with Log.open(path, "a", clock=Clock()) as log:
        log.append_records([b"%d" % offset for offset in range(10)])
        log.delete_records_before(5)
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\norders 0 10\n")
    happen(path / FIRST)
    with Log.open(path) as reader:
        with pytest.raises(LogDirError, match=r"log start offset 5 .* is above the log end offset [01]"):
            offsets(reader)
        with Log.open(tmp_path / "copy/orders-0", "a") as copy, pytest.raises(LogDirError, match="is above the log end offset"):
            copy.append_log(reader, preserve_offsets=True)
        # What is said of such a log is out of order, and still said.
        assert reader.high_watermark == reader.log_end_offset == reader.last_stable_offset < reader.log_start_offset
    assert "LogDirError" in {finding.kind for finding in verify(path).findings}
    done = subprocess.run([sys.executable, "-m", "offsetlog", "cat", str(path)], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"is above the log end offset" in done.stderr


def test_a_batch_that_is_being_written_behind_a_start_above_the_end_is_waited_for(tmp_path: Path) -> None:
    """The end of the log lies in a gap, and so does its start; another process writes the next batch in two halves."""
    path = tmp_path / "orders-0"
    (tmp_path / "meta.properties").write_text("node.id=1\nversion=1\ncluster.id=abc\n")
    writes = """
import sys
from offsetlog import Log
with Log.open(sys.argv[1], "a") as log:
    log.append_records([b"0", b"1", b"2"])
    log.truncate_to(2)
    log.delete_records_before(2)
    print("ready", flush=True)
    sys.stdin.read()
"""
    with running(writes, path), Log.open(path) as reader:
        whole = batch(2, [(None, b"2", ())])
        (path / FIRST).write_bytes(whole[:40])

        def write_the_rest() -> None:
            with (path / FIRST).open("ab") as file:
                file.write(whole[40:])

        finish = threading.Timer(0.1, write_the_rest)
        finish.start()
        assert [found.base_offset for found in reader.batches()] == [2]
        assert offsets(reader) == [2]
        assert reader.log_start_offset == 2
        finish.join()


def two_segments(path: Path) -> int:
    """Records 0 and 1 in one segment, 2 and 3 as one batch in another; returns the size of the first batch."""
    with Log.open(path, "a", clock=Clock()) as log:
        for value in (b"0", b"1"):
            log.append(value)
        log.roll()
        log.append_records([b"2", b"3"])
        (first, *_) = log.batches()
    time.sleep(0.05)  # until the times of the files tell of changes
    return first.size_bytes


def test_a_range_never_mixes_segments_of_two_states(tmp_path: Path) -> None:
    """Another process truncates the first segment and renames the second one, which the reader has open.

    Ten times, as a reader that is slow has forgotten by then what it has seen before.
    """
    for attempt in range(10):
        path = tmp_path / str(attempt) / "orders-0"
        size = two_segments(path)
        second = path / f"{2:020}.log"
        with Log.open(path) as reader:
            assert [record.value for record in reader.scan(2, 4)] == [b"2", b"3"]
            os.truncate(path / FIRST, size)
            second.rename(second.with_suffix(".log.deleted"))
            assert [record.value for record in reader.scan(0, 4)] == [b"0"]


def test_a_range_sees_what_took_the_place_of_the_end_of_its_segment(tmp_path: Path) -> None:
    """Another process truncates the segment of a range and appends to a new one."""
    path = tmp_path / "orders-0"
    size = two_segments(path)
    with Log.open(path) as reader:
        assert [record.value for record in reader.scan(2, 4)] == [b"2", b"3"]
        os.truncate(path / FIRST, size)
        (path / f"{2:020}.log").unlink()
        (path / f"{1:020}.log").write_bytes(batch(1, [(None, b"new", ())]))
        assert [record.value for record in reader.scan(0, 2)] in ([b"0", b"1"], [b"0", b"new"])


def test_an_aborted_record_is_not_returned_when_its_marker_is_cut_off(tmp_path: Path) -> None:
    """Another process truncates the log, and the marker with it, while a scan of committed records is under way."""
    path = tmp_path / "orders-0"
    with Log.open(path, "a", clock=Clock()) as log:
        log.append(b"plain")
        log.append_records([b"aborted"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_marker(1, 0, commit=False)
        log.append(b"behind")
    with Log.open(path) as reader:
        sizes = [found.size_bytes for found in reader.batches()]
        under_way = iter(reader.scan(isolation_level="read_committed"))
        assert next(under_way).value == b"plain"
        os.truncate(path / FIRST, sum(sizes[:2]))
        assert [record.value for record in under_way if not record.is_control] == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_scan_of_committed_records_loses_no_key_to_a_compaction_under_it(tmp_path: Path, elsewhere: bool) -> None:
    """The newest value of the key is appended behind the end that the scan began with, and the one before it is compacted away."""
    path = tmp_path / "orders-0"
    changes = """
import sys
from offsetlog import Log
with Log.open(sys.argv[1], "a") as log:
    log.append(b"new", key=b"k")
    log.roll()
    log.compact()
"""
    with Log.open(path, "a", clock=Clock()) as log:
        log.append(b"plain")
        log.append_records([b"t"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_marker(1, 0, commit=True)
        log.append(b"old", key=b"k")
        log.roll()
        if not elsewhere:
            under_way = iter(log.scan(isolation_level="read_committed"))
            assert next(under_way).value == b"plain"
            log.append(b"new", key=b"k")
            log.roll()
            log.compact()
            assert {record.value for record in under_way} & {b"old", b"new"}
    if elsewhere:
        with Log.open(path) as reader:
            under_way = iter(reader.scan(isolation_level="read_committed"))
            assert next(under_way).value == b"plain"
            python(changes, path)
            assert {record.value for record in under_way} & {b"old", b"new"}


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[tuple[Log, Log]]:
    """A writer and a reader of one log with transactions under way."""
    with Log.open(tmp_path / "orders-0", "a", SMALL, clock=Clock()) as log:
        log.append(b"before")
        log.append_records([b"t1"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        log.append(b"after")
        with Log.open(tmp_path / "orders-0") as reader:
            yield log, reader


@pytest.mark.parametrize("commit", [True, False])
def test_read_committed_beside_an_open_transaction(beside: tuple[WritableLog, WritableLog], commit: bool) -> None:
    log, reader = beside

    def committed(which: Log) -> list[bytes | None]:
        return [record.value for record in which.scan(isolation_level="read_committed")]

    for which in (log, reader):
        assert which.last_stable_offset == 1
        assert committed(which) == [b"before"]
        assert values(which) == [b"before", b"t1", b"after"]
        assert which.offset_for_timestamp(NOW, isolation_level="read_committed") is not None
    log.append_marker(1, 0, commit=commit)
    expected = [b"before", b"t1", b"after"] if commit else [b"before", b"after"]
    for which in (log, reader):
        assert which.last_stable_offset == 4
        assert committed(which) == expected
        assert [tuple(entry) for entry in which.fetch(0, isolation_level="read_committed").aborted] == ([] if commit else [(1, 1)])


def test_splits_and_log_dirs_beside_a_writer(tmp_path: Path) -> None:
    with Log.open(filled(tmp_path / "orders-0", 6, segments=3), "a", clock=Clock()) as log:
        log.append(b"new")
        assert Scan.over(log.splits(count=4)).count() == 13
        with LogDir.open(tmp_path) as log_dir:
            assert log_dir.scan().count() == 13
            assert log_dir.log("orders", 0).log_end_offset == 13
