"""One damaged or unreadable partition never hides the others, nor what is sound of itself."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow
import pytest
from golden import CLEAN_LOG_DIRS, DATA

from offsetlog import (
    CorruptBatchError,
    Log,
    LogDir,
    LogDirError,
    OffsetAndTimestamp,
    OffsetLogError,
    TopicPartition,
    UnreadPartitionsError,
    arrow_digest,
    folder_kind,
    verify,
)

T = TypeVar("T")

DAMAGED = TopicPartition("g-plain", 0)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "offsetlog", *words], capture_output=True, text=True, check=False)


def last_segment(partition: Path) -> Path:
    return max(partition.glob("*.log"))


def hide_end(partition: Path) -> None:
    """Damage the active segment's first batch; without an index, whoever looks for the end meets it."""
    segment = last_segment(partition)
    segment.with_suffix(".index").unlink()
    flip(segment, 40)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A copy of a broker's log dir in which one partition's end cannot be told: whole batches stand behind a damaged one."""
    copied = tmp_path / "log-dir-1"
    shutil.copytree(CLEAN_LOG_DIRS[0], copied)
    hide_end(copied / f"{DAMAGED.topic}-{DAMAGED.partition}")
    return copied


def test_offsets_of_the_others_come_with_the_error(log_dir: Path) -> None:
    with LogDir.open(CLEAN_LOG_DIRS[0]) as sound:
        expected_ends, expected_starts = sound.end_offsets(), sound.beginning_offsets()
        times = dict.fromkeys(sound.partitions(), 1_700_000_000_000)
        expected_times = sound.offsets_for_times(times)
    del expected_ends[DAMAGED]
    with LogDir.open(log_dir) as damaged:
        assert damaged.beginning_offsets() == expected_starts
        for level in ("read_uncommitted", "read_committed"):
            with pytest.raises(UnreadPartitionsError, match=r"g-plain-0: .*checksum") as caught:
                damaged.end_offsets(isolation_level=level)
            assert set(caught.value.partial) == set(expected_ends)
        with pytest.raises(UnreadPartitionsError) as caught:
            damaged.end_offsets()
        assert caught.value.partial == expected_ends
        assert list(caught.value.failed) == [DAMAGED]
        assert isinstance(caught.value.failed[DAMAGED], OffsetLogError)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.partial, str(again.failed)) == (caught.value.partial, str(caught.value.failed))
        # The damage does not touch the first records of that time.
        assert damaged.offsets_for_times(times)[DAMAGED] == expected_times[DAMAGED]
        # What is asked alone is raised as it is.
        with pytest.raises(OffsetLogError, match="checksum") as caught_alone:
            damaged.end_offsets([DAMAGED])
        assert not isinstance(caught_alone.value, UnreadPartitionsError)
        with pytest.raises(LogDirError):
            damaged.end_offsets([("g-plain", 0), ("no-such", 1)])


def damage_first_batch_of(log_dir: Path, name: str) -> Path:
    """Damage the second batch of a partition's first segment, which is a closed one or has whole batches behind it."""
    with Log.open(log_dir / name) as log:
        second = list(log.batches())[1]
    segment = log_dir / name / f"{second.segment:020}.log"
    flip(segment, second.position + second.size_bytes - 1)
    return segment


def upto_error(found: Iterable[T]) -> Iterator[T]:
    """What comes before the error."""
    with suppress(OffsetLogError, pyarrow.ArrowException, OSError):
        yield from found


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_scan_gives_the_other_partitions_and_then_the_error(tmp_path: Path, mode: Literal["r", "a"]) -> None:
    place = tmp_path / "logs"
    with LogDir.open(place, "a") as made:
        made.create_topic("orders", 4, config={"internal.segment.bytes": 1000})
        for number in range(80):
            made.append("orders", b"%d" % number * 20, partition=number % 4)
    sound = [(partition, offset) for partition in range(4) for offset in range(20)]
    segments = [damage_first_batch_of(place, f"orders-{number}") for number in (1, 2)]
    # The first batch of each damaged one comes before the damage.
    expected = [(partition, offset) for partition, offset in sound if partition in (0, 3) or offset == 0]
    with LogDir.open(place, mode) as log_dir:
        scan = log_dir.scan()
        for each in (scan, pickle.loads(pickle.dumps(scan)) if mode == "r" else scan):
            with pytest.raises(UnreadPartitionsError, match=r"2 partitions .*orders-1: .*checksum.*and 1 more") as caught:
                list(each)
            assert [(record.partition, record.offset) for record in upto_error(each)] == expected
        assert list(caught.value.failed) == [TopicPartition("orders", 1), TopicPartition("orders", 2)]
        for error, segment in zip(caught.value.failed.values(), segments, strict=True):
            assert isinstance(error, CorruptBatchError)
            assert (error.path, error.offset) == (str(segment), 1)
        with pytest.raises(UnreadPartitionsError) as caught:
            scan.count()
        assert caught.value.partial == len(expected)
        for threads in (1, 2):
            with pytest.raises(UnreadPartitionsError) as caught:
                log_dir.scan(columns=["partition", "offset"], threads=threads).to_arrow()
            table = caught.value.partial
            assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == expected
        reader = pyarrow.RecordBatchReader.from_stream(log_dir.scan(batch_rows=1))
        assert sum(batch.num_rows for batch in upto_error(reader)) == len(expected)
        with pytest.raises(Exception, match=r"2 partitions could not be read whole, the others were: orders-1: .*; and 1 more"):
            list(pyarrow.RecordBatchReader.from_stream(log_dir.scan()))
        # A limit that is reached, and a filter.
        with pytest.raises(UnreadPartitionsError) as caught:
            log_dir.scan(limit=25).count()
        assert caught.value.partial == 25
        assert log_dir.scan(limit=20).count() == 20
        # What is asked alone is raised as it is, and so is what is followed.
        with pytest.raises(CorruptBatchError):
            log_dir.scan([("orders", 1)]).count()
        with pytest.raises(CorruptBatchError):
            list(scan.follow(timeout_ms=10))
        assert log_dir.scan([("orders", 0), ("orders", 3)]).count() == 40
        assert log_dir.scan(on_corrupt="stop").count() == len(expected)
        assert log_dir.scan(on_corrupt="skip").count() == len(sound) - 2


def another_topics_id(place: Path) -> None:
    (place / "orders-3" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")


def no_segment(place: Path) -> None:
    segment = last_segment(place / "orders-2")
    segment.unlink()
    segment.mkdir()


@pytest.mark.parametrize("damage", [lambda place: damage_first_batch_of(place, "orders-1"), another_topics_id, no_segment])
@pytest.mark.parametrize("mode", ["r", "a"])
def test_what_cannot_be_read_whole_is_not_appended(tmp_path: Path, mode: Literal["r", "a"], damage: Callable[[Path], object]) -> None:
    """As Arrow data or as records, in whatever way the scan is used: a copy is never short without a word."""
    place = tmp_path / "logs"
    with LogDir.open(place, "a") as made:
        made.create_topic("orders", 4, config={"internal.segment.bytes": 1000})
        for number in range(80):
            made.append("orders", b"%d" % number * 20, partition=number % 4)
    damage(place)
    with LogDir.open(place, mode) as log_dir, Log.open(tmp_path / "copy-0", "a") as log:
        scan = log_dir.scan()
        uses: list[Callable[[], object]] = [
            lambda: log.append_arrow(scan),
            lambda: log.append_arrow(copy.copy(scan)),
            lambda: log.append_arrow(log_dir.scan(columns=["value"], limit=1000)),
            lambda: log.append_records(scan),
            lambda: log.append_arrow(scan.to_arrow()),
            scan.to_polars,
            scan.to_pandas,
            scan.count,
        ]
        for use in uses:
            with pytest.raises(UnreadPartitionsError, match="1 partition could not be read"):
                use()
        with pytest.raises(RuntimeError, match="1 partition could not be read"):
            arrow_digest(scan)
        assert log.log_end_offset == 0
        left_out = log_dir.scan(on_corrupt="stop")
        log.append_arrow(left_out)
        assert log.log_end_offset == left_out.count() < 80
        assert left_out.report.hole_count == 1


def test_ls_and_time_name_what_they_cannot_read(log_dir: Path) -> None:
    whole = command("ls", "--json", str(CLEAN_LOG_DIRS[0]))
    listed = command("ls", "--json", str(log_dir))
    assert listed.returncode == 2
    assert "g-plain-0: " in listed.stderr
    sound = {(row["topic"], row["partition"]): row for row in map(json.loads, whole.stdout.splitlines())}
    rows = {(row["topic"], row["partition"]): row for row in map(json.loads, listed.stdout.splitlines())}
    assert set(rows) == set(sound)
    row = rows.pop(DAMAGED)
    assert "checksum" in row["error"]
    assert row["log_end_offset"] is None
    for name in ("topic_id", "segments", "size_bytes", "log_start_offset", "first_timestamp"):
        assert row[name] == sound[DAMAGED][name]
    assert all("error" not in row for row in rows.values())
    table = command("ls", str(log_dir))
    assert table.returncode == 2
    assert any(line.split()[:2] == ["g-plain", "0"] for line in table.stdout.splitlines())
    topics = [json.loads(line) for line in command("ls", "--json", "--by-topic", str(log_dir)).stdout.splitlines()]
    assert {row["topic"]: row.get("unread") for row in topics if "unread" in row} == {"g-plain": [0]}
    # A closed segment without its time index, cut: nobody can say what its lost batches' times were.
    partition = log_dir / "g-plain-2"
    closed = min(partition.glob("*.log"))
    closed.with_suffix(".timeindex").unlink()
    os.truncate(closed, closed.stat().st_size - 10)
    late = command("time", "--json", "-t", "g-plain", "2030-01-01", str(log_dir))
    answers = [json.loads(line) for line in late.stdout.splitlines()]
    assert late.returncode == 2
    assert [(row["partition"], "error" in row) for row in answers] == [(0, False), (2, True)]


def test_cat_goes_on_with_the_next_partition(log_dir: Path) -> None:
    whole = command("cat", "-t", "g-plain", "-f", "%p %o\n", str(CLEAN_LOG_DIRS[0]))
    printed = command("cat", "-t", "g-plain", "-f", "%p %o\n", str(log_dir))
    assert printed.returncode == 2
    assert "g-plain-0: " in printed.stderr
    expected = whole.stdout.splitlines()
    assert [line for line in printed.stdout.splitlines() if line[0] == "2"] == [line for line in expected if line[0] == "2"]


def test_groups_and_transactions_tell_what_they_can(tmp_path: Path) -> None:
    paths = []
    for source in CLEAN_LOG_DIRS:
        shutil.copytree(source, tmp_path / source.name)
        paths.append(tmp_path / source.name)
    hide_end(next(path / "g-plain-0" for path in paths if (path / "g-plain-0").exists()))
    with LogDir.open(CLEAN_LOG_DIRS) as sound, LogDir.open(paths) as damaged:
        expected = sound.groups()
        with pytest.raises(UnreadPartitionsError) as caught:
            damaged.groups()
        assert list(caught.value.failed) == [DAMAGED]
        found = caught.value.partial
        assert [group.group_id for group in found] == [group.group_id for group in expected]
        for one, other in zip(found, expected, strict=True):
            for mine, theirs in zip(one.offsets, other.offsets, strict=True):
                same = theirs._replace(log_end_offset=None, lag=None) if (mine.topic, mine.partition) == DAMAGED else theirs
                assert mine == same
        assert damaged.transactions() == sound.transactions()
    told = command("groups", "--json", *map(str, paths))
    assert told.returncode == 2
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line["partition"] for line in lines if "error" in line] == [0]
    assert len(lines) == len(expected) + 1
    # A damaged coordinator's partition: nothing of it is told, what its other records say is not.
    offsets = next(place for path in paths for place in path.glob("__transaction_state-*") if last_segment(place).stat().st_size)
    flip(min(offsets.glob("*.log")), 40)
    with LogDir.open(paths) as damaged, pytest.raises(OffsetLogError, match=offsets.name):
        damaged.transactions()


def test_verify_goes_on_behind_what_it_cannot_read(log_dir: Path) -> None:
    partition = log_dir / "g-epochs-0"
    index = min(partition.glob("*.index"))
    index.unlink()
    os.mkfifo(index)
    checkpoint = log_dir / "replication-offset-checkpoint"
    checkpoint.unlink()
    os.mkfifo(checkpoint)
    segment = last_segment(log_dir / "g-epochs-1")
    segment.unlink()
    segment.mkdir()
    report = verify(log_dir)
    found = {finding.path for finding in report.findings if finding.severity == "error"}
    assert {str(index), str(checkpoint), str(segment)} <= found
    assert report.partitions == sum(path.is_dir() for path in log_dir.iterdir())
    told = command("verify", str(log_dir))
    assert told.returncode == 3
    assert str(segment) in told.stdout


def test_what_a_folder_is() -> None:
    clean = DATA / "kafka-4.3.0" / "clean"
    assert [folder_kind(path) for path in (clean, clean / "log-dir-1", clean / "log-dir-1" / "g-plain-0", Path(__file__).parent)] == [
        "around_log_dirs",
        "log_dir",
        "partition",
        "other",
    ]
    for mode in ("r", "a"):
        with pytest.raises(LogDirError, match=r"log-dir-1 .*log-dir-2"):
            LogDir.open(DATA / "kafka-4.3.0" / "unclean", mode)


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("name", ["logs", "logs-1"])
def test_a_log_dir_is_no_partition(tmp_path: Path, name: str, mode: Literal["r", "a"]) -> None:
    """Whatever it is called, as the folder around it; and nothing is made in it."""
    around = tmp_path / name
    with LogDir.open(around / name, "a") as log_dir:
        log_dir.create_topic("t")
        log_dir.append("t", b"value")
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    with pytest.raises(LogDirError, match=r"a log dir, which is no partition's directory.*open it as a log dir"):
        Log.open(around / name, mode)
    with pytest.raises(LogDirError, match=f"the folder around one: give it instead: {around / name}"):
        Log.open(around, mode)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_cut_closed_segment_hides_only_its_own_records(tmp_path: Path) -> None:
    source = DATA / "kafka-4.3.0" / "torn" / "log-dir-1" / "g-torn-none-0"
    with Log.open(source) as log:
        segments, end = [segment.base_offset for segment in log.segments], log.log_end_offset
        batches = list(log.batches())
        stable = log.last_stable_offset
        records = list(log.scan())
    # The first of those with the greatest timestamp: in the active segment.
    late = max(records, key=lambda record: (record.timestamp, -record.offset))
    copied = tmp_path / "orders-0"
    shutil.copytree(source, copied)
    active = segments[-1]
    assert late.offset >= active
    # The closed segment before the active one loses a part of its last batch.
    last = [batch for batch in batches if batch.last_offset < active][-1]
    closed = copied / f"{segments[-2]:020}.log"
    os.truncate(closed, closed.stat().st_size - 10)
    with Log.open(copied) as log, Log.open(tmp_path / "copy-0", "a") as target:
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (0, end, stable)
        assert log.fetch(active).records
        # Whole batches up to the damage, which is met by who goes on from there.
        assert len(log.fetch(segments[-2]).records) == last.position
        with pytest.raises(OffsetLogError):
            log.fetch(last.base_offset)
        assert target.append_log(log, start=active).last_offset == end - active - 1
        assert log.offset_for_timestamp(late.timestamp) == OffsetAndTimestamp(late.offset, late.timestamp, late.leader_epoch)
        assert log.offset_for_timestamp(late.timestamp + 1) is None
    listed = command("ls", "--json", str(copied))
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["log_end_offset"] == end
    assert command("time", str(late.timestamp), str(copied)).returncode == 0
