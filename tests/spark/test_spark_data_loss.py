"""A log that shrinks between the plan and the task: an error that names partition and offsets, or a warning; never fewer rows in silence."""

from __future__ import annotations

import logging
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from golden import CLEAN_PARTITIONS, Golden, named
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

import offsetlog.spark
from offsetlog import Log, LogDir, OffsetOutOfRangeError, Split
from offsetlog.spark import OffsetLogSource, planning, splits, tasks
from offsetlog.spark.reader import OffsetLogReader
from spark_rows import load

ACTIVE_ONLY = "g-many-entries-0"
SEVERAL_SEGMENTS = "g-plain-0"


def planned(path: Path, **options: str) -> OffsetLogReader:
    """A reader of one partition directory."""
    source = OffsetLogSource({"path": str(path), "columns": "offset", **options})
    made = source.reader(source.schema())
    assert isinstance(made, OffsetLogReader)
    return made


def seen(batches: Iterable[pyarrow.RecordBatch]) -> list[int]:
    return sorted(offset for batch in batches for offset in batch.column("offset").to_pylist())


def read(reader: OffsetLogReader, partitions: Iterable[InputPartition]) -> list[int]:
    return sorted(offset for partition in partitions for offset in seen(reader.read(partition)))


def cut(directory: Path, offset: int) -> int:
    """Cut a log before the batch that holds `offset`, as a follower does; return where it ends now."""
    with Log.open(directory) as log:
        batch = next(iter(log.batches(offset)))
        removed = [segment.base_offset for segment in log.segments if segment.base_offset > batch.segment]
    for base in removed:
        for file in directory.glob(f"{base:020}.*"):
            file.unlink()
    os.truncate(directory / f"{batch.segment:020}.log", batch.position)
    return batch.base_offset


def drop_first_segment(directory: Path) -> int:
    """Delete the oldest segment, as retention does; return where the log starts now."""
    with Log.open(directory) as log:
        first, second = log.segments[:2]
    for file in directory.glob(f"{first.base_offset:020}.*"):
        file.unlink()
    return second.base_offset


def enlarged(golden: Golden, into: Path, times: int, segments: int = 1) -> tuple[Path, int]:
    """Write the batches of a log over and over with new offsets (no checksum covers them); return the directory and the end."""
    directory = into / golden.name
    directory.mkdir()
    (segment,) = golden.directory.glob("*.log")
    data, count = segment.read_bytes(), golden.end
    for repeat in range(times * segments):
        with (directory / f"{repeat // times * times * count:020}.log").open("ab") as file:
            position = 0
            while position < len(data):
                base, length = struct.unpack_from(">qi", data, position)
                file.write(struct.pack(">q", base + repeat * count) + data[position + 8 : position + 12 + length])
                position += 12 + length
    return directory, times * segments * count


@pytest.mark.parametrize("name", [ACTIVE_ONLY, SEVERAL_SEGMENTS])
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_records_cut_off_the_end_are_an_error_or_left_out(
    tmp_path: Path, name: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    (golden,) = named(name)
    directory = golden.copy(tmp_path, checkpoints=False)
    strict, lenient = planned(directory, isolationLevel=level), planned(directory, isolationLevel=level, failOnDataLoss="false")
    tasks = strict.partitions()
    end = cut(directory, golden.end // 3)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        read(strict, tasks)
    text = str(caught.value)
    assert f"offsets {end} to {golden.end - 1} of {name} are gone" in text
    assert "failOnDataLoss" in text
    assert (caught.value.requested, caught.value.log_end_offset) == (end, end)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert read(lenient, tasks) == [row.offset for row in golden.rows if row.offset < end]
    assert f"offsets {end} to {golden.end - 1} of {name} are gone" in caplog.text


def test_only_the_tasks_that_lose_something_fail(tmp_path: Path) -> None:
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    reader = planned(directory, maxRecordsPerPartition="50")
    tasks = reader.partitions()
    assert len(tasks) == 4
    end = cut(directory, 149)
    assert 100 <= end < 150
    assert read(reader, tasks[:2]) == list(range(100))
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets {end} to 149 of g-plain-0 are gone"):
        list(reader.read(tasks[2]))
    with pytest.raises(OffsetOutOfRangeError, match="offsets 150 to 199 of g-plain-0 are gone"):
        list(reader.read(tasks[3]))


def test_records_removed_from_the_front_name_partition_and_offsets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    strict, lenient = planned(directory), planned(directory, failOnDataLoss="false")
    tasks = strict.partitions()
    start = drop_first_segment(directory)
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets 0 to {start - 1} of g-plain-0 are gone"):
        read(strict, tasks)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert read(lenient, tasks) == list(range(start, golden.end))
    assert f"offsets 0 to {start - 1} of g-plain-0 are gone" in caplog.text


def test_a_log_cut_at_both_ends(tmp_path: Path) -> None:
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    strict, lenient = planned(directory), planned(directory, failOnDataLoss="false")
    tasks = strict.partitions()
    end, start = cut(directory, 190), drop_first_segment(directory)
    with pytest.raises(OffsetOutOfRangeError, match="of g-plain-0 are gone"):
        read(strict, tasks)
    assert read(lenient, tasks) == list(range(start, end))


def test_an_emptied_directory_is_an_error_too(tmp_path: Path) -> None:
    """Without a segment a log holds nothing from 0 to 0; that is not what was planned."""
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    strict, lenient = planned(directory), planned(directory, failOnDataLoss="false")
    tasks = strict.partitions()
    for file in directory.glob("0*"):
        file.unlink()
    with pytest.raises(OffsetOutOfRangeError, match="offsets 0 to 199 of g-plain-0 are gone"):
        read(strict, tasks)
    assert read(lenient, tasks) == []


def test_a_directory_that_is_gone_names_partition_and_offsets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    strict, lenient = planned(directory), planned(directory, failOnDataLoss="false")
    tasks = strict.partitions()
    shutil.rmtree(directory)
    with pytest.raises(FileNotFoundError, match="offsets 0 to 199 of g-plain-0 are gone") as caught:
        read(strict, tasks)
    assert caught.value.filename == str(directory)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert read(lenient, tasks) == []
    assert "offsets 0 to 199 of g-plain-0 are gone" in caplog.text


@pytest.mark.parametrize("strict", [True, False])
def test_a_log_that_is_cut_while_it_is_read(tmp_path: Path, strict: bool, caplog: pytest.LogCaptureFixture) -> None:
    """What was read ahead is given; behind it the file just ends, and nothing but a second look can tell."""
    (golden,) = named("g-big-0")
    directory, end = enlarged(golden, tmp_path, 40)
    reader = planned(directory, columns="offset,value", failOnDataLoss=str(strict), maxRecordsPerPartition=str(1 << 40))
    (task,) = reader.partitions()
    batches = iter(reader.read(task))
    found = seen([next(batches)])
    os.truncate(directory / f"{0:020}.log", 6 << 20)
    now = Log.open(directory).log_end_offset
    assert found[-1] < now < end
    if strict:
        with pytest.raises(OffsetOutOfRangeError, match=f"offsets {now} to {end - 1} of g-big-0 are gone"):
            found.extend(seen(batches))
    else:
        with caplog.at_level(logging.WARNING, logger="offsetlog"):
            found.extend(seen(batches))
        assert f"offsets {now} to {end - 1} of g-big-0 are gone" in caplog.text
        assert now - 111 < len(found) <= now


def test_segments_that_go_before_the_scan_comes_to_them(tmp_path: Path) -> None:
    """Their files fail to open; the error says which records that means."""
    (golden,) = named("g-big-0")
    directory, end = enlarged(golden, tmp_path, 12, segments=3)
    reader = planned(directory, columns="offset,value", maxRecordsPerPartition=str(1 << 40))
    (task,) = reader.partitions()
    batches = iter(reader.read(task))
    next(batches)
    drop_first_segment(directory)
    start = drop_first_segment(directory)
    assert start == end // 3 * 2
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets 0 to {start - 1} of g-big-0 are gone"):
        list(batches)


@pytest.mark.parametrize("strict", [True, False])
def test_a_range_that_goes_while_another_of_its_task_is_read(tmp_path: Path, strict: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It went long before the task came to it: without failOnDataLoss a warning, and the next range is read."""
    (golden,) = named("g-big-0")
    directory, end = enlarged(golden, tmp_path, 12, segments=3)
    reader = planned(directory, columns="offset,value", failOnDataLoss=str(strict), maxRecordsPerPartition=str(end // 3))
    ranges = [entry for task in reader.partitions() for entry in task.value]
    assert len(ranges) == 3
    batches = iter(reader.read(InputPartition(tuple(ranges))))
    found = seen([next(batches)])
    drop_first_segment(directory)
    start = drop_first_segment(directory)
    if strict:
        with pytest.raises(OffsetOutOfRangeError, match=f"of g-big-0 are gone: the log now starts at {start}"):
            list(batches)
        return
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        found.extend(seen(batches))
    assert f"offsets {end // 3} to {start - 1} of g-big-0 are gone" in caplog.text
    assert sorted(found) == [*range(end // 3), *range(start, end)]


def test_a_log_that_is_cut_while_a_query_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges that are cut for the tasks hold what was resolved a moment before, not what is there now."""
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    whole = Log.splits
    cuts: list[int] = []

    def late(log: Log, start: int, stop: int, **options: int | None) -> list[Split]:
        if not cuts:
            cuts.append(cut(directory, 120))
        return whole(log, start, stop, **options)

    monkeypatch.setattr(Log, "splits", late)
    reader = planned(directory, maxBytesPerPartition="4000")
    tasks = reader.partitions()
    assert cuts
    assert max(split[4] for task in tasks for split in task.value) == golden.end
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets {cuts[0]} to 199 of g-plain-0 are gone"):
        read(reader, tasks)


@pytest.mark.parametrize("gone", ["first segment", "directory"])
@pytest.mark.parametrize("options", [{"maxBytesPerPartition": "4000"}, {"minPartitions": "9"}, {}], ids=str)
def test_what_goes_while_a_query_is_planned_is_left_to_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str, options: dict[str, str]
) -> None:
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    starts: list[int] = []

    def go() -> None:
        if not starts and gone == "first segment":
            starts.append(drop_first_segment(directory))
        elif not starts:
            shutil.rmtree(directory)
            starts.append(golden.end)

    whole, size = Log.splits, Log.size_bytes

    def late_splits(log: Log, start: int, stop: int, **options: int | None) -> list[Split]:
        go()
        return whole(log, start, stop, **options)

    def late_size(log: Log) -> int:
        go()
        return size.__get__(log)  # type: ignore[no-any-return]  # a property

    monkeypatch.setattr(Log, "splits", late_splits)
    monkeypatch.setattr(Log, "size_bytes", property(late_size))
    strict, lenient = planned(directory, **options), planned(directory, **options, failOnDataLoss="false")
    tasks = strict.partitions()
    monkeypatch.undo()
    assert starts
    kind = OffsetOutOfRangeError if gone == "first segment" else FileNotFoundError
    with pytest.raises(kind, match=r"offsets 0 to \d+ of g-plain-0 are gone"):
        read(strict, tasks)
    assert read(lenient, tasks) == list(range(starts[0], golden.end))


def test_a_partition_that_goes_between_the_listing_and_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (one, other) = named("g-plain-0", "g-many-entries-0")
    one.copy(tmp_path, checkpoints=False)
    gone = other.copy(tmp_path, checkpoints=False)

    class Late(LogDir):
        def topics(self) -> dict[str, list[int]]:
            found = super().topics()
            shutil.rmtree(gone, ignore_errors=True)
            return found

    monkeypatch.setattr(planning, "LogDir", Late)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        ranges = splits(tmp_path, subscribePattern=".*", failOnDataLoss=False)
    assert {split.topic for split in ranges} == {"g-plain"}
    assert "g-many-entries-0 is gone" in caplog.text


# No false alarm.


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("golden", CLEAN_PARTITIONS, ids=lambda golden: golden.id)
def test_whole_logs_raise_no_alarm(golden: Golden, level: str, caplog: pytest.LogCaptureFixture) -> None:
    """Compacted ones with gaps, ones that end with markers, open transactions."""
    reader = planned(golden.directory, isolationLevel=level)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        found = read(reader, reader.partitions())
    wanted = golden.rows if level == "read_uncommitted" else golden.committed
    assert found == [row.offset for row in wanted]
    assert "gone" not in caplog.text


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", ["g-plain-0", "g-txn-0", "g-compact-txn-0", "g-time-1"])
def test_a_log_that_grows_raises_no_alarm(tmp_path: Path, name: str, level: str) -> None:
    """Planned at several lengths, read at full length: what was planned and nothing more."""
    (golden,) = named(name)
    for at in (golden.end // 3, golden.end // 2, golden.end - 1):
        place = tmp_path / str(at)
        directory = golden.copy(place, checkpoints=False)
        end = cut(directory, at)
        with Log.open(directory) as log:
            stop = log.last_stable_offset if level == "read_committed" else end
        reader = planned(directory, isolationLevel=level)
        tasks = reader.partitions()
        for file in golden.directory.iterdir():
            shutil.copyfile(file, directory / file.name)
        wanted = golden.rows if level == "read_uncommitted" else golden.committed
        assert read(reader, tasks) == [row.offset for row in wanted if row.offset < stop]


def test_a_log_that_grows_and_rolls_while_it_is_read_raises_no_alarm(tmp_path: Path) -> None:
    (golden,) = named("g-big-0")
    directory, end = enlarged(golden, tmp_path, 40)
    reader = planned(directory, columns="offset,value", maxRecordsPerPartition=str(1 << 40))
    (task,) = reader.partitions()
    batches = iter(reader.read(task))
    found = seen([next(batches)])
    (directory / f"{end:020}.log").touch()
    found.extend(seen(batches))
    per_copy = len(golden.rows)
    assert len(found) == 40 * per_copy


def test_retention_while_a_log_is_read_loses_nothing_that_was_open(tmp_path: Path) -> None:
    """The oldest segment goes after it was read: nothing is missing, so nothing is said."""
    (golden,) = named("g-big-0")
    directory, end = enlarged(golden, tmp_path, 40)
    (directory / f"{end:020}.log").touch()
    reader = planned(directory, columns="offset,value", maxRecordsPerPartition=str(1 << 40))
    (task,) = reader.partitions()
    batches = iter(reader.read(task))
    found = seen([next(batches)])
    (directory / f"{0:020}.log").unlink()
    found.extend(seen(batches))
    assert len(found) == 40 * len(golden.rows)


def test_a_query_that_needs_no_more_rows_is_not_checked_at_its_end(tmp_path: Path) -> None:
    (golden,) = named("g-big-0")
    directory, _ = enlarged(golden, tmp_path, 40)
    reader = planned(directory, columns="offset,value", maxRecordsPerPartition=str(1 << 40))
    (task,) = reader.partitions()
    batches = reader.read(task)
    assert isinstance(batches, Iterator)
    next(batches)
    os.truncate(directory / f"{0:020}.log", 100)
    batches.close()  # type: ignore[attr-defined]  # a generator


# Committed readers.


def test_a_last_stable_offset_that_goes_back_is_no_silent_loss(
    tmp_path: Path, lock_holder: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Planned without a broker; then one starts and takes the log dir, and replication has not confirmed the end of the log yet."""
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    committed = {"isolationLevel": "read_committed"}
    strict, lenient = planned(directory, **committed), planned(directory, **committed, failOnDataLoss="false")
    plain = planned(directory)
    tasks = strict.partitions()
    assert read(strict, tasks) == list(range(200))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\ng-plain 0 150\n")
    lock_holder(tmp_path)
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 150 to 199 of g-plain-0 .*last stable offset"):
        read(strict, tasks)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        assert read(lenient, tasks) == list(range(150))
    assert "offsets 150 to 199 of g-plain-0" in caplog.text
    assert read(plain, tasks) == list(range(200))


def test_an_end_above_the_last_stable_offset_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`endingOffsets` that a committed reader may not reach yet."""
    (golden,) = named("g-txn-0")
    directory = golden.copy(tmp_path, checkpoints=False)
    asked = {"endingOffsets": f'{{"g-txn":{{"0":{golden.end}}}}}', "assign": '{"g-txn":[0]}'}
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        reader = planned(directory, isolationLevel="read_committed", **asked)
        assert read(reader, reader.partitions()) == [row.offset for row in golden.committed if row.offset < golden.last_stable_offset]
    assert "g-txn-0 ends at its last stable offset 347" in caplog.text
    assert "found 394" in caplog.text


# Through Spark, and through the direct road.


def test_a_cut_log_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """Planned when its RDD was asked for its partitions, read afterwards. (Of a frame, PySpark 4.0 plans each action anew.)"""
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    strict = load(spark, str(directory), columns="offset").rdd
    lenient = load(spark, str(directory), columns="offset", failOnDataLoss="false").rdd
    assert strict.getNumPartitions() == lenient.getNumPartitions() > 0
    end = cut(directory, 120)
    with pytest.raises(PythonException, match=f"offsets {end} to 199 of g-plain-0 are gone"):
        strict.count()
    assert lenient.count() == end
    assert load(spark, str(directory), columns="offset").count() == end


def test_a_cut_log_fails_a_direct_scan(spark: SparkSession, tmp_path: Path) -> None:
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = golden.copy(tmp_path, checkpoints=False)
    strict = offsetlog.spark.scan(spark, directory, columns=["offset"])
    lenient = offsetlog.spark.scan(spark, directory, columns=["offset"], fail_on_data_loss=False)
    assert strict.count() == golden.end
    end = cut(directory, 120)
    with pytest.raises(PythonException, match=f"offsets {end} to 199 of g-plain-0 are gone"):
        strict.count()
    assert lenient.count() == end


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("moment", ["_still_there", "_begun"])
def test_retention_that_is_quicker_than_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, moment: str, *, strict: bool
) -> None:
    """Segments that go between the look at what is there and the beginning of the scan, or behind that and before its first batch."""
    (golden,) = named(SEVERAL_SEGMENTS)
    directory = tmp_path / golden.name
    shutil.copytree(golden.directory, directory)
    reader = planned(directory, failOnDataLoss=str(strict).lower())
    partitions = reader.partitions()
    followed = getattr(tasks, moment)
    starts: list[int] = []

    def then_it_goes(*arguments: Any) -> Any:  # noqa: ANN401  # whatever it is that retention follows
        done = followed(*arguments)
        if not starts:
            starts.append(drop_first_segment(directory))
        return done

    monkeypatch.setattr(tasks, moment, then_it_goes)
    if strict:
        with pytest.raises(OffsetOutOfRangeError, match=r"offsets 0 to \d+ of g-plain-0 are gone"):
            read(reader, partitions)
        return
    assert read(reader, partitions) == [row.offset for row in golden.rows if row.offset >= starts[0]]
    assert any("are gone" in record.getMessage() for record in caplog.records)
