"""What a scan tells the driver of what its workers read, and what it leaves out where bytes are damaged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden import CLEAN_PARTITIONS, DATA, named
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader

from offsetlog import ConfigError, Scan, Split
from offsetlog.spark import OffsetLogSource, PartitionRead, ReadReport, SplitRead, map_splits, scan, splits
from offsetlog.spark.options import settings_from
from offsetlog.spark.report import by_partition
from offsetlog.spark.stream_options import stream_settings_from
from spark_rows import CLEAN_PATH, load

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
TORN = [DATA / "kafka-4.3.0/torn" / log_dir for log_dir in ("log-dir-1", "log-dir-2")]
# Segments of 32 records, batches of four; the second batch of the second segment has a flipped byte.
FLIPPED = range(36, 40)


def lengths(data: bytes) -> Iterator[int]:
    """Of the batches, by the length field that each begins with."""
    at = 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        yield size
        at += size


def test_a_report_counts_what_a_consumer_saw(spark: SparkSession) -> None:
    report = ReadReport()
    frame = scan(spark, CLEAN_PATH, subscribePattern="^g-(plain|many-entries|empty)$", report=report, columns=["value"])
    assert report.tasks > 0
    assert report.tasks_done == 0
    assert not report.partitions
    counted = frame.count()
    wanted = {
        (golden.topic, golden.partition): len(golden.rows)
        for golden in CLEAN_PARTITIONS
        if golden.topic in {"g-plain", "g-many-entries"} and golden.rows
    }
    assert {(each.topic, each.partition): each.records for each in report.partitions} == wanted
    assert report.records == counted == sum(wanted.values())
    assert report.tasks_done == report.tasks
    many = next(each for each in report.partitions if each.topic == "g-many-entries")
    (golden,) = named("g-many-entries-0")
    data = (golden.directory / "00000000000000000000.log").read_bytes()
    assert (many.batches, many.records, many.log_bytes) == (len(list(lengths(data))), 1500, len(data))
    # Another action takes the place of the first one.
    frame.count()
    assert report.records == counted


def test_what_is_stepped_over_is_counted(spark: SparkSession) -> None:
    (golden,) = named("g-many-entries-0")
    middle = golden.rows[1000].timestamp
    wanted = [row for row in golden.rows if row.timestamp >= middle]
    report = ReadReport()
    assert scan(spark, golden.directory, start_timestamp=middle, report=report).count() == len(wanted)
    (read,) = report.partitions
    # Two records in each.
    assert len(wanted) / 2 <= read.batches <= len(wanted) / 2 + 1
    committed = ReadReport()
    scan(spark, CLEAN_PATH, subscribe="g-txn", isolationLevel="read_committed", report=committed).count()
    assert sum(each.batches_skipped for each in committed.partitions) > 0
    assert committed.records == sum(len(each.committed) for each in named("g-txn-0", "g-txn-1"))


def test_progress_is_told_while_it_runs(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[int, int]] = []
    report = ReadReport(lambda *now: told.append(now))
    frame = scan(spark, CLEAN_PATH, subscribe="g-plain", maxRecordsPerPartition=100, report=report)
    with caplog.at_level(logging.INFO, logger="offsetlog"):
        frame.count()
    assert told == [(number, 6) for number in range(1, 7)]
    assert [each.splits for each in report.partitions] == [2, 2, 2]
    ranges = sorted((read.split.partition, read.split.start, read.split.stop, read.records) for read in report.splits)
    assert ranges == [(partition, start, start + 100, 100) for partition in range(3) for start in (0, 100)]
    assert sum("200 records of" in record.getMessage() for record in caplog.records) == 3


def test_a_callback_that_fails_fails_nothing(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    def fails(done: int, tasks: int) -> None:
        raise KeyError(done, tasks)

    report = ReadReport(fails)
    assert scan(spark, CLEAN_PATH, subscribe="g-plain", maxRecordsPerPartition=100, report=report).count() == 600
    assert report.records == 600
    assert sum("could not be told" in record.getMessage() for record in caplog.records) == 1


def test_a_function_in_the_workers_reports_too(spark: SparkSession) -> None:
    def first(batches: Iterator[pa.RecordBatch]) -> int:
        rows: int = next(batches).num_rows
        return rows

    report = ReadReport()
    done = map_splits(spark, CLEAN_PATH, first, subscribe="g-plain", report=report)
    assert report.splits == tuple(read for task in done for read in task.reads)
    # It took of the first range only.
    assert [task.splits[:1] for task in done] == [tuple(read.split for read in task.reads) for task in done]
    # What the function did not take was not read.
    assert sum(task.result for task in done) == report.records


def test_one_report_is_of_one_scan(spark: SparkSession) -> None:
    report = ReadReport()
    scan(spark, CLEAN_PATH, subscribe="g-plain", report=report)
    with pytest.raises(ConfigError, match="that of another scan"):
        scan(spark, CLEAN_PATH, subscribe="g-plain", report=report)


def test_sums_of_partitions() -> None:
    one, other = (SplitRead(Split("/logs", topic, 0, 0, 7, 100), 2, 3, 4, 5, 6, ()) for topic in "ta")
    assert by_partition([one, other, one]) == (
        PartitionRead("a", 0, 1, 2, 3, 4, 5, 6, ()),
        PartitionRead("t", 0, 2, 4, 6, 8, 10, 12, ()),
    )


def flipped(**options: str) -> dict[str, Any]:
    return {"subscribe": "g-torn-flip-old", "columns": "offset", **options}


def test_damage_fails_unless_told(spark: SparkSession) -> None:
    path = ",".join(map(str, TORN))
    with pytest.raises(Exception, match=r"00000000000000000032\.log.*CRC|CRC.*00000000000000000032\.log"):
        load(spark, path, **flipped()).count()


@pytest.mark.parametrize(("on_corrupt", "wanted"), [("skip", [*range(36), *range(40, 96)]), ("stop", list(range(36)))])
def test_damage_is_left_out(spark: SparkSession, on_corrupt: str, wanted: list[int]) -> None:
    path = ",".join(map(str, TORN))
    found = load(spark, path, **flipped(onCorrupt=on_corrupt)).collect()
    assert sorted(row.offset for row in found) == wanted
    report = ReadReport()
    assert scan(spark, TORN, **flipped(on_corrupt=on_corrupt), report=report).count() == len(wanted)
    (hole,) = report.holes
    assert (hole.topic, hole.start, hole.stop) == (
        "g-torn-flip-old",
        FLIPPED.start,
        FLIPPED.stop if on_corrupt == "skip" else hole.stop,
    )
    assert Path(hole.path).name == "00000000000000000032.log"
    assert hole.error == "CorruptBatchError"


@pytest.mark.parametrize(
    "cut",
    [
        {},
        {"taskSlots": 7},
        {"minPartitions": 9},
        {"maxRecordsPerPartition": 10},
        {"maxBytesPerPartition": 300},
        {"minPartitions": 9, "maxRecordsPerPartition": 5, "maxBytesPerPartition": 300, "failOnDataLoss": "false"},
        {"failOnDataLoss": "false"},
    ],
    ids=str,
)
def test_stop_gives_a_clean_prefix_however_the_query_is_cut(spark: SparkSession, cut: dict[str, Any]) -> None:
    """One task for each partition: a second one would begin behind the damage, and know nothing of it."""
    options = flipped(onCorrupt="stop", **cut)
    prefix = list(range(FLIPPED.start))
    assert sorted(row.offset for row in load(spark, ",".join(map(str, TORN)), **options).collect()) == prefix
    report = ReadReport()
    assert sorted(row.offset for row in scan(spark, TORN, **options, report=report).collect()) == prefix
    assert (report.tasks, len(report.holes)) == (1, 1)
    (task,) = map_splits(
        spark, TORN, lambda batches: [offset for batch in batches for offset in batch["offset"].to_pylist()], **options
    )
    assert task.result == prefix
    (whole,) = splits(TORN, slots=8, **options)
    assert [record.offset for record in Scan.over([whole], on_corrupt="stop")] == prefix


def test_what_stop_ignores_is_told() -> None:
    settings = settings_from(
        {"path": "/logs", "subscribe": "t", "onCorrupt": "STOP", "maxBytesPerPartition": "9", "minPartitions": "2"}
    )
    assert settings.warnings == (
        "options that cut partitions are ignored, as onCorrupt = stop reads each by one task: minPartitions, maxBytesPerPartition",
    )


@pytest.mark.skipif(not hasattr(DataSourceReader, "pushFilters"), reason="PySpark 4.0 hands no filters to Python sources")
@pytest.mark.parametrize("query", ["offset >= 50", "timestamp >= timestamp'2001-01-01 00:00:00' and offset > 36", "offset > 30"])
def test_filters_do_not_step_over_the_damage_that_ends_a_range(spark: SparkSession, query: str) -> None:
    options = {**flipped(onCorrupt="stop"), "columns": "offset,timestamp"}
    path = ",".join(map(str, TORN))
    spark.conf.set(PUSHDOWN_CONF, "true")
    try:
        pushed = load(spark, path, **options, pushdown="true").where(query).collect()
    finally:
        spark.conf.unset(PUSHDOWN_CONF)
    assert pushed == load(spark, path, **options).where(query).collect()
    assert [row.offset for row in pushed] == ([] if "36" in query or "50" in query else list(range(31, FLIPPED.start)))


def test_a_stream_refuses_to_stop_at_damage() -> None:
    """Its next micro-batch would begin behind it."""
    options = {"path": str(TORN[0]), "subscribe": "g-torn-flip-old", "onCorrupt": "stop"}
    with pytest.raises(ConfigError, match=r"option onCorrupt: stop is for batch queries.*raise ends the query there, skip leaves out"):
        stream_settings_from(options)
    source = OffsetLogSource(options)
    schema = source.schema()
    source.reader(schema)
    with pytest.raises(ConfigError, match="option onCorrupt: stop is for batch queries"):
        source.streamReader(schema)


def test_damage_in_a_stream_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("offsetlog").options(**flipped(onCorrupt="skip", startingOffsets="earliest"))
    writer = stream.load(",".join(map(str, TORN))).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "at"))
    writer.option("path", str(tmp_path / "rows")).trigger(availableNow=True).start().awaitTermination()
    assert sorted(row.offset for row in spark.read.parquet(str(tmp_path / "rows")).collect()) == [*range(36), *range(40, 96)]


def test_other_words_are_refused(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"onCorrupt.*must be raise or skip or stop"):
        load(spark, onCorrupt="skipp", subscribe="g-plain").count()
