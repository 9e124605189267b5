"""No handle answers from the past: what a verb changed is seen by every later question in this process, and by a look in another one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from writing import NOW, Clock, environment

from offsetlog import Log, LogDir, LogLockedError, OffsetOutOfRangeError, WritableLog, open_cached, partition_for, recover
from offsetlog._topics import Partitioner
from offsetlog.errors import LogClosedError

HANDLES = ["the writer", "a reader", "a reader of a log dir", "a cached one"]
CONFIG = {"internal.segment.bytes": 1000, "retention.ms": -1, "index.interval.bytes": 100}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> WritableLog:
    log = Log.open(tmp_path / "t-0", "a", CONFIG, clock=clock)
    for number in range(20):
        log.append(b"old%d" % number * 10, key=b"k%d" % (number % 3), timestamp=NOW + number)
    return log


@pytest.fixture(params=HANDLES)
def handle(request: pytest.FixtureRequest, log: Log) -> Log:
    """One that has answered before."""
    folder = Path(log.path)
    made: dict[str, Callable[[], Log]] = {
        "the writer": lambda: log,
        "a reader": lambda: Log.open(folder),
        "a reader of a log dir": lambda: LogDir.open(folder).log("t", 0),
        "a cached one": lambda: open_cached(folder),
    }
    handle = made[request.param]()
    assert handle.get(0) is not None
    assert handle.scan(stop=20).count() == 20
    assert handle.offset_for_timestamp(NOW, isolation_level="read_committed") is not None
    return handle


def outside(ask: Callable[[], Any]) -> tuple[int | None, int | None]:
    """The bounds that an answer out of range names."""
    with pytest.raises(OffsetOutOfRangeError) as raised:
        ask()
    return raised.value.log_start_offset, raised.value.log_end_offset


def offsets(log: Log, **options: Any) -> list[int]:  # noqa: ANN401  # as for the scan
    return [record.offset for record in log.scan(**options)]


def values(log: Log, start: int | None = None, **options: Any) -> list[bytes | None]:  # noqa: ANN401
    return [record.value for record in log.scan(start, **options)]


def test_deleted_records_do_not_come_back(log: WritableLog, handle: WritableLog) -> None:
    log.delete_records_before(5)
    assert outside(lambda: handle.get(0)) == outside(lambda: handle.locate(0)) == outside(lambda: list(handle.scan(0, 8))) == (5, 20)
    assert offsets(handle, stop=8) == [5, 6, 7]
    assert handle.scan(stop=8).count() == 3
    assert handle.scan(stop=8).to_arrow()["offset"].to_pylist() == [5, 6, 7]
    assert (found := handle.offset_for_timestamp(NOW)) is not None
    assert found.offset == 5


def test_a_durable_scan_does_not_give_deleted_records(log: WritableLog) -> None:
    log.flush()
    assert len(values(log)) == 20
    log.delete_records_before(15)
    assert offsets(log, durable=True) == [15, 16, 17, 18, 19]


def test_a_durable_scan_ends_where_it_is_durable_when_it_is_read(log: WritableLog) -> None:
    log.flush()
    scan = log.scan(durable=True)
    assert scan.count() == 20
    log.truncate_to(10)
    log.append(b"not synced")
    assert [record.offset for record in scan] == list(range(10))
    assert offsets(log, start=11, durable=True) == []


def test_truncated_records_do_not_come_back(log: WritableLog, handle: WritableLog) -> None:
    log.truncate_to(18)
    assert outside(lambda: handle.get(18)) == outside(lambda: handle.locate(18)) == outside(lambda: list(handle.scan(19))) == (0, 18)
    assert offsets(handle, start=17, stop=20) == [17]


def test_what_took_the_place_of_truncated_records_is_seen(log: WritableLog, handle: WritableLog) -> None:
    log.truncate_to(16)
    for _ in range(4):
        log.append(b"NEW" * 40)
    assert [record.value for offset in range(16, 20) if (record := handle.get(offset))] == [b"NEW" * 40] * 4
    assert values(handle, 16, stop=20) == [b"NEW" * 40] * 4


def test_records_of_other_sizes_are_found_after_truncations(log: WritableLog, handle: WritableLog) -> None:
    for start, value in ((12, b"n" * 77), (5, b"m" * 91), (1, b"s")):
        log.truncate_to(start)
        for _ in range(start, 20):
            log.append(value)
        assert [record.value if (record := handle.get(offset)) else None for offset in range(start, 20)] == [value] * (20 - start)


def test_a_log_that_was_begun_anew_is_empty(log: WritableLog, handle: WritableLog) -> None:
    log.truncate_fully_and_start_at(100)
    assert outside(lambda: handle.get(3)) == (100, 100)
    assert offsets(handle, stop=8) == []
    assert handle.offset_for_timestamp(NOW) is None
    log.append(b"first")
    assert offsets(handle) == [100]


def test_what_retention_took_is_gone(log: WritableLog, handle: WritableLog, clock: Clock) -> None:
    clock.now += 10**8
    log.append(b"late", timestamp=clock.now)
    log.config = {**CONFIG, "retention.ms": 1000, "file.delete.delay.ms": 0}
    log.maintain()
    start = log.log_start_offset
    assert start > 8
    assert outside(lambda: handle.get(0)) == (start, 21)
    assert offsets(handle, stop=8) == []
    assert (found := handle.offset_for_timestamp(NOW)) is not None
    assert found.offset == start


def test_what_compaction_took_is_gone(log: WritableLog, handle: WritableLog) -> None:
    log.compact()
    kept = [offset for offset in range(20) if log.get(offset)]
    assert len(kept) < 10
    assert [offset for offset in range(20) if handle.get(offset)] == kept
    assert offsets(handle, stop=20) == kept
    assert (found := handle.offset_for_timestamp(NOW)) is not None
    assert found.offset == kept[0]


def test_a_commit_is_seen_though_nothing_was_removed(log: WritableLog, handle: WritableLog, clock: Clock) -> None:
    clock.now += 1000
    log.append_records([b"a"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    when = handle.scan(20).to_arrow()["timestamp"][0].as_py()
    assert handle.offset_for_timestamp(when, isolation_level="read_committed") is None
    log.append_marker(1, 0, commit=True)
    assert (found := handle.offset_for_timestamp(when, isolation_level="read_committed")) is not None
    assert found.offset == 20


@pytest.mark.parametrize("segment_bytes", [1000, 1 << 20])
def test_committed_questions_of_a_log_that_was_cut_are_no_errors(tmp_path: Path, segment_bytes: int) -> None:
    log = Log.open(tmp_path / "c-0", "a", {**CONFIG, "internal.segment.bytes": segment_bytes})
    for number in range(40):
        log.append(b"o" * 50, timestamp=NOW + number)
    reader = Log.open(tmp_path / "c-0")
    assert (reader.get(0), reader.get(39)) != (None, None)
    log.truncate_to(20)
    for _ in range(2):
        assert reader.scan(0, 10, isolation_level="read_committed").count() == 10
        assert (found := reader.offset_for_timestamp(NOW, isolation_level="read_committed")) is not None
        assert found.offset == 0
    assert not reader.verify().damaged


def test_following_gives_each_record_once_after_a_truncation(log: WritableLog, handle: WritableLog) -> None:
    log.truncate_to(5)
    new = [b"NEW%d-with-a-longer-value" % number for number in range(5)]
    for value in new:
        log.append(value)
    assert [record.value for record in handle.scan(5).follow(timeout_ms=0)] == new == values(handle, 5)


def test_a_follower_is_told_that_the_log_was_cut_below_what_it_read(log: WritableLog, handle: WritableLog) -> None:
    followed = handle.scan(18).follow(timeout_ms=2000, poll_interval_ms=10)
    assert [next(followed).offset for _ in range(2)] == [18, 19]
    log.truncate_to(20)
    log.append(b"next")
    assert next(followed).value == b"next"
    log.truncate_to(19)
    for _ in range(5):
        log.append(b"in its place")
    assert outside(lambda: next(followed)) == (0, 19)


def test_a_scan_under_way_goes_on_behind_a_cut(log: WritableLog, handle: WritableLog) -> None:
    scan = iter(handle.scan())
    assert next(scan).offset == 0
    log.truncate_to(10)
    for _ in range(3):
        log.append(b"other" * 30)
    rest = list(scan)
    assert [record.offset for record in rest] == list(range(1, rest[-1].offset + 1))
    assert rest[-1].offset == 12


def test_a_gap_that_only_the_writer_knows_is_seen_by_readers_beside_it(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "g-0", "a")
    reader = Log.open(tmp_path / "g-0")
    log.append_records([b"a", b"b", b"c"])
    assert reader.log_end_offset == 3
    log.truncate_to(1)
    assert (log.log_end_offset, reader.log_end_offset) == (1, 1)
    assert reader.scan().count() == 0
    log.close()
    assert reader.log_end_offset == 0


def test_recovery_in_this_process_is_seen(log: Log, handle: Log) -> None:
    path = Path(log.path)
    with pytest.raises(LogLockedError):
        recover(path)
    log.close()
    last = max(path.glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 5)
    if handle is log:
        with pytest.raises(LogClosedError):
            handle.get(18)
        return
    assert handle.get(18) is not None
    end = recover(path).log_end_offset
    assert end == 19
    assert outside(lambda: handle.get(19)) == (0, 19)


def test_a_topic_made_anew_is_another_log(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t")
        log_dir.append("t", b"old")
        reader = Log.open(tmp_path / "t-0")
        assert values(reader) == [b"old"]
        log_dir.delete_topic("t")
        with pytest.raises(FileNotFoundError):
            reader.get(0)
        log_dir.create_topic("t")
        log_dir.append("t", b"new")
        assert (found := reader.get(0)) is not None
        assert found.value == b"new"


ELSEWHERE = """
import sys
from offsetlog import Log
with Log.open(sys.argv[1], "a") as log:
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
"""


def test_a_look_shows_what_another_process_did(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with Log.open(path, "a", CONFIG) as log:
        for number in range(20):
            log.append(b"old%d" % number * 10, timestamp=NOW + number)
    command = [sys.executable, "-c", ELSEWHERE, str(path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
    told, said = child.stdin, child.stdout
    assert told is not None
    assert said is not None

    def do(line: str) -> None:
        told.write(line + "\n")
        told.flush()
        assert said.readline() == "done\n"

    reader = Log.open(path)
    do("pass")
    assert reader.scan(stop=20).count() == 20
    assert (found := reader.get(17)) is not None
    assert (found.value or b"").startswith(b"old")
    do("log.truncate_to(16); [log.append(b'NEW' * 40, timestamp=1) for _ in range(4)]")
    reader.refresh()
    assert (found := reader.get(17)) is not None
    assert found.value == b"NEW" * 40
    do("log.delete_records_before(18)")
    reader.refresh()
    assert outside(lambda: reader.get(17)) == (18, 20)
    do("log.truncate_fully_and_start_at(7)")
    assert reader.log_end_offset == 7
    assert reader.scan(isolation_level="read_committed").count() == 0
    assert outside(lambda: reader.get(18)) == (7, 7)
    told.close()
    assert child.wait(300) == 0
    said.close()


def test_what_another_process_did_after_our_writer_went_is_seen(log: WritableLog) -> None:
    """A reader beside a writer of its process asks that one. Once it is closed, it looks at the directory as any reader does."""
    readers = [Log.open(log.path), LogDir.open(Path(log.path).parent).log("t", 0)]
    for reader in readers:
        assert reader.get(3) is not None
    log.close()
    command = [sys.executable, "-c", ELSEWHERE, log.path]
    subprocess.run(
        command, input="log.delete_records_before(18)\n", text=True, env=environment(), check=True, stdout=subprocess.DEVNULL
    )
    # For so long a look is good.
    time.sleep(0.02)
    for reader in readers:
        assert outside(partial(reader.get, 3)) == (18, 20)


def test_a_log_dir_that_looks_again_knows_new_partitions(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as writing:
        writing.create_topic("a")
        reading = LogDir.open(tmp_path)
        writing.create_topic("b")
        assert reading.topics() == {"a": [0]}
        reading.refresh()
        assert reading.topics() == {"a": [0], "b": [0]}


REMADE = """
import sys
from offsetlog import LogDir

with LogDir.open(sys.argv[1], "a") as log_dir:
    log_dir.delete_topic("t")
    log_dir.create_topic("t", partitions=int(sys.argv[2]))
"""


@pytest.mark.parametrize("counts", [(2, 5), (5, 2)])
@pytest.mark.parametrize("partitioner", ["default", lambda _topic, key, _value, count: partition_for(key, count)])
def test_keys_go_where_they_belong_in_a_topic_that_another_process_made_anew(
    tmp_path: Path, counts: tuple[int, int], partitioner: Partitioner
) -> None:
    """The answer is `partition_for`'s, which Kafka's own partitioner is compared with elsewhere."""
    before, after = counts
    with LogDir.open(tmp_path, "a", partitioner=partitioner) as log_dir:
        log_dir.create_topic("t", partitions=before)
        subprocess.run([sys.executable, "-c", REMADE, tmp_path, str(after)], check=True, env=environment())
        keys = [b"k%d" % number for number in range(30)]
        went = [log_dir.append("t", b"v", key=key).partition for key in keys]
        assert went == [partition_for(key, after) for key in keys]
        assert [partition.partition for partition in log_dir.partitions()] == list(range(after))


@pytest.mark.parametrize("commit", [True, False])
def test_a_range_whose_end_is_known_sees_the_marker_behind_it(tmp_path: Path, commit: bool) -> None:
    """The handle has looked while the transaction was open; its marker is the only change since."""
    with Log.open(tmp_path / "t-0", "a") as writer, Log.open(tmp_path / "t-0") as reader:
        writer.append_records([b"x"] * 5, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        for log in (writer, reader):
            assert log.last_stable_offset == 0
            assert log.scan(0, 5, isolation_level="read_committed").count() == 0
        writer.append_marker(7, 0, commit=commit)
        for log in (reader, writer):
            assert log.scan(0, 5, isolation_level="read_committed").count() == (5 if commit else 0)
            assert log.scan(0, 6, isolation_level="read_committed").count() == (5 if commit else 0)
